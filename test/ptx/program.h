// A kernel that is ready to run: its instructions, and the places of their operands in a warp's
// registers.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "test/ptx/source.h"
#include "test/ptx/undefined_rule.h"

namespace llmc_ptx {

class Warp;
struct Form;
struct Instruction;

inline constexpr int kLanes = 32;

// Runs an instruction for the active lanes of a warp.
using Run = void (*)(Warp& warp, const Instruction& instruction);

// The place of an operand: bytes from the start of the warp's registers or of the kernel's
// constants. A predicate has a bit per lane in 4 bytes; other registers have a value per lane.
struct Operand {
  static constexpr std::uint32_t kConstant = 0x80000000u;
  std::uint32_t place = 0;

  std::uint32_t offset() const { return place & ~kConstant; }
};

struct PlacedRegister {
  Operand place;
  std::uint32_t bytes = 0;
};

enum class Kind : std::uint8_t { plain, branch, exit, barrier };

struct Instruction {
  Run run = nullptr;                  // of a plain one
  const Operand* operands = nullptr;  // in the order of Form::operands
  std::int64_t immediate = 0;         // a number among the operands, or that of the form
  std::int64_t offset = 0;            // of the first address
  std::int64_t second_offset = 0;     // of the second one
  Operand predicate;
  Kind kind = Kind::plain;
  bool is_predicated = false, negated = false;
  bool negates_source = false;  // its predicate is read inverted
  bool is_join = false;         // paths of a warp that diverged may meet here
  int target = 0;               // of a branch: the index of an instruction
  int join = 0;                 // of a branch: where its two paths meet at the latest
  int roots = 0;                // of an access to global memory: in Program::roots
};

// The place of an instruction, which only reports need.
struct Origin {
  const Form* form = nullptr;
  int line = 0;       // in the file of PTX
  int location = -1;  // in Program::locations
};

// Memory aligned for registers of the largest SIMD instructions.
struct AlignedFree {
  void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
};
using AlignedBytes = std::unique_ptr<std::byte[], AlignedFree>;
inline AlignedBytes aligned_bytes(std::int64_t count) {
  return AlignedBytes(static_cast<std::byte*>(
      ::operator new[](static_cast<std::size_t>(count), std::align_val_t{64})));
}

// Registers that the hardware sets.
inline constexpr std::array kSpecialNames = {
    "%tid.x",   "%tid.y",   "%tid.z",    "%ntid.x",   "%ntid.y",   "%ntid.z", "%ctaid.x",
    "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z", "%laneid"};

// Where a kernel reads one of them.
struct SpecialRegister {
  std::size_t number = 0;  // in kSpecialNames
  Operand place;
};

struct Program {
  std::string name, file;
  bool has_fusable_sums = false;  // contraction.h
  bool can_overlap = true;        // its GPU may start a launch before the end of the one before
  std::vector<Instruction> code;
  std::vector<Origin> origins;       // of the instructions
  std::vector<UndefinedRule> rules;  // of the instructions
  std::vector<Operand> operands;
  std::vector<Location> locations;
  // Offsets of parameters that point to the tensors of an access; without any, it may be to any
  // tensor.
  std::vector<std::vector<std::int64_t>> roots;
  std::vector<SpecialRegister> special;
  std::int64_t parameter_bytes = 0;
  std::int64_t register_bytes = 0;  // of a warp
  std::int64_t local_bytes = 0;     // of a thread
  std::int64_t shared_bytes = 0;    // that the kernel declares itself
  AlignedBytes constants;           // values that are the same in every launch, once per lane
  Operand zero;                     // 64 bits of 0
  std::vector<PlacedRegister> undefined_at_start;  // a lane may read them before it writes them

  std::vector<AlignedBytes> values;  // of variables in global memory

  // Allocates a variable in global memory, and returns its address.
  std::int64_t add_values(const Variable& variable);
  // "row.h:70, called at layernorm.cu:31 (line 812 of ops.ptx)".
  std::string place_of(std::size_t instruction) const;
};

inline std::uint32_t bytes_of_width(Width width) {
  switch (width) {
    case Width::predicate:
      return 4;
    case Width::bits16:
      return 2 * kLanes;
    case Width::bits32:
      return 4 * kLanes;
    case Width::bits64:
      return 8 * kLanes;
  }
  return 0;
}

}  // namespace llmc_ptx
