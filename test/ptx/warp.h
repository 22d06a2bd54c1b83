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

// Bytes [begin, end) of an allocation.
struct Range {
  std::uint64_t begin = 0, end = 0;

  bool holds(std::uint64_t address, std::uint64_t bytes) const {
    return address >= begin && address + bytes <= end;
  }
};

struct Dim3 {
  std::int64_t x = 1, y = 1, z = 1;
};

class SharedRaces;
class GlobalRaces;

// A block, as its warps see it.
struct Block {
  const Program* program = nullptr;
  std::uint64_t seed = 0;
  Dim3 index, grid;
  int threads = 0;
  const std::byte* parameters = nullptr;
  std::byte* shared = nullptr;
  std::int64_t shared_bytes = 0;
  SharedRaces* shared_races = nullptr;  // both null: races are not checked
  GlobalRaces* global_races = nullptr;
};

// Bytes that cp.async has requested.
struct PendingCopy {
  int lane;
  std::byte* destination;
  const std::byte* source;
  std::uint32_t bytes, zeros;  // of the source, and after them
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

  // `registers`: program.register_bytes, aligned by 64.
  Warp(Block& block, int index, std::byte* registers);

  // Runs until all lanes end or the warp is at a barrier. Throws an Error that names the place.
  void run();

  State state() const { return state_; }
  // The instruction of a warp at a barrier.
  const Instruction& barrier() const { return block_->program->code[at_]; }
  std::size_t place() const { return at_; }
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

  // Throws an Error about the current instruction, and a lane if it is not negative.
  [[noreturn]] void error(const std::string& what, int lane = -1) const;
  // Throws unless all live lanes, of which there must be 32, run this instruction together.
  void require_whole(const char* what) const {
    if (active_ != ~0u) error(std::string(what) + " by a part of a warp");
  }

  std::byte* local() { return local_.data(); }
  // The allocation of the last access, which is often that of the next one.
  Range& last_range() { return last_range_; }
  std::vector<PendingCopy>& open_copies() { return open_copies_; }
  bool has_pending_copies() const;
  void commit_copies();
  // Makes copies until at most `most` groups are pending.
  void wait_for_copies(std::int64_t most);

 private:
  void step_branch(const Instruction& instruction, std::uint32_t taken);
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
  std::vector<std::byte> local_;
  Range last_range_;
  std::vector<PendingCopy> open_copies_;
  std::vector<std::vector<PendingCopy>> groups_;
};

}  // namespace llmc_ptx
