// The state of a warp and of its block, and how a warp runs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "test/ptx/program.h"

namespace llmc_ptx {

// Generic addresses of a block's shared memory and of a thread's local memory start here. Other
// generic addresses are global: those of the host.
inline constexpr std::uint64_t kSharedWindow = 0x1000000000000000;
inline constexpr std::uint64_t kLocalWindow = 0x2000000000000000;
inline constexpr std::uint64_t kParamWindow = 0x3000000000000000;
inline constexpr std::uint64_t kWindowSize = 0x1000000000000000;

// Bytes [begin, end) of an allocation, or of a tensor in it.
struct Range {
  std::uint64_t begin = 0, end = 0;
  std::byte* undefined = nullptr;  // of the byte at `begin`: its undefined bits; null: unknown

  bool holds(std::uint64_t address, std::uint64_t bytes) const {
    return address >= begin && address + bytes <= end;
  }
};

struct Dim3 {
  std::int64_t x = 1, y = 1, z = 1;
};

class SharedRaces;
class GlobalRaces;
class EarlierLaunches;

// A block, as its warps see it.
struct Block {
  const Program* program = nullptr;
  std::uint64_t seed = 0;
  Dim3 index, grid;
  int threads = 0;
  const std::byte* parameters = nullptr;
  std::byte* shared = nullptr;
  std::int64_t shared_bytes = 0;
  std::byte* shared_undefined = nullptr;  // undefined bits of shared memory; null: not checked
  std::uint64_t launch = 0;               // a number that no other launch has
  // The tensors of each entry of Program::roots.
  const std::vector<std::vector<Range>>* tensors = nullptr;
  SharedRaces* shared_races = nullptr;  // both null: races are not checked
  GlobalRaces* global_races = nullptr;
  // Null: the launch began after the end of those before it.
  const EarlierLaunches* earlier = nullptr;
};

// Bytes that cp.async has requested. They arrive at some moment until its wait.
struct PendingCopy {
  enum class Arrival : std::uint8_t { at_once, at_commit, at_wait };

  int lane;
  std::byte* destination;
  const std::byte* source;
  std::uint32_t bytes, zeros;  // of the source, and after them
  Arrival arrival = Arrival::at_wait;
  std::size_t instruction = 0;

  void arrive() const;
};

// Lanes that run the same instructions.
struct Path {
  std::uint32_t lanes = 0;
  int next = 0;  // instruction
  int join = 0;  // where they meet the lanes of the path below
};

class Warp {
 public:
  enum class State : std::uint8_t { running, at_barrier, done };

  // `registers`: twice program.register_bytes, aligned by 64: the values, then their undefined
  // bits.
  Warp(Block& block, int index, std::byte* registers);

  // Runs until all lanes end or the warp is at a barrier. Throws an Error that names the place.
  void run();

  State state() const { return state_; }
  // The instruction of a warp at a barrier.
  const Instruction& barrier() const { return block_->program->code[at_]; }
  std::size_t place() const { return at_; }
  bool reduces() const;
  // The result of a barrier that reduces.
  void set_reduction(bool any);
  // Lets it continue after the barrier.
  void pass_barrier() {
    state_ = State::running;
    paths_.back().next = static_cast<int>(at_) + 1;
  }

  std::uint32_t active() const { return active_; }
  void set_active(std::uint32_t lanes) { active_ = lanes; }
  std::uint32_t live() const { return live_; }
  int index() const { return index_; }
  Block& block() const { return *block_; }
  std::uint64_t num_instructions() const { return num_instructions_; }
  std::uint64_t num_thread_instructions() const { return num_thread_instructions_; }

  // The values of an operand, one per lane; of a predicate, one bit per lane.
  template <class T>
  T* lanes(Operand operand) {
    return reinterpret_cast<T*>(bases_[operand.place >> 31] + operand.offset());
  }
  std::uint32_t& predicate(Operand operand) { return *lanes<std::uint32_t>(operand); }

  // "KERNEL, block (0, 0, 0), thread 7, in add.s32 at row.h:70 (line 812 of ops.ptx)"; without a
  // lane, with the warp.
  std::string place_text(int lane) const;
  // Throws an Error about the current instruction, and a lane if it is not negative.
  [[noreturn]] void error(const std::string& what, int lane = -1) const;
  // Throws unless all live lanes, of which there must be 32, run this instruction together.
  void require_whole(const char* what) const {
    if (active_ != ~0u) error(std::string(what) + " by a part of a warp");
  }

  // The undefined bits of an operand, as another operand; zeros for a constant.
  Operand undefined(Operand operand) const {
    if ((operand.place & Operand::kConstant) != 0) return block_->program->zero;
    return {operand.place + static_cast<std::uint32_t>(block_->program->register_bytes)};
  }
  // Whether a register may have undefined bits in some lane.
  bool has_undefined(Operand operand) const {
    return (operand.place & Operand::kConstant) == 0 && has_undefined_[operand.place / 64] != 0;
  }
  // After a change of the undefined bits of a register of so many bytes.
  void update_undefined(Operand operand, std::uint32_t bytes);
  std::byte* local_undefined() { return local_undefined_.data(); }
  bool checks_undefined() const { return block_->shared_undefined != nullptr; }

  // Whether this block has waited for the launches before.
  bool has_waited() const { return has_waited_; }
  void set_waited() { has_waited_ = true; }

  std::byte* local() { return local_.data(); }
  // The tensors in which the current instruction may access global memory; empty: any.
  const std::vector<Range>& tensors() const {
    return (*block_->tensors)[static_cast<std::size_t>(block_->program->code[at_].roots)];
  }
  // The tensor of the last access, which is often that of the next one.
  Range& last_range() { return last_range_; }
  void add_copy(PendingCopy copy);
  void commit_copies();
  // Makes copies until at most `most` groups are pending.
  void wait_for_copies(std::int64_t most);

 private:
  void step_branch(const Instruction& instruction, std::uint32_t taken);
  void make_undefined();
  void require_no_pending_copies() const;
  void end_lanes(std::uint32_t lanes);
  void set_special_registers();

  Block* block_;
  int index_;
  std::array<std::byte*, 2> bases_;
  State state_ = State::running;
  std::uint32_t active_ = 0, live_ = 0;
  std::size_t at_ = 0;
  std::vector<Path> paths_;  // the last one runs
  std::uint64_t num_instructions_ = 0, num_thread_instructions_ = 0;
  std::vector<std::byte> local_, local_undefined_;
  std::vector<std::uint8_t> has_undefined_;  // by 64 bytes of the registers
  int num_undefined_ = 0;                    // of them
  bool has_waited_ = false;
  Range last_range_;
  std::vector<PendingCopy> open_copies_;
  std::vector<std::vector<PendingCopy>> groups_;
};

}  // namespace llmc_ptx
