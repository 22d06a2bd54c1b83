#include "test/ptx/warp.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/hash.h"
#include "test/ptx/forms.h"
#include "test/ptx/memory.h"
#include "test/ptx/undefined.h"

namespace llmc_ptx {

Warp::Warp(Block& block, int index, std::byte* registers)
    : block_(&block), index_(index), bases_{registers, block.program->constants.get()} {
  const int count = std::min(kLanes, block.threads - index * kLanes);
  live_ = count == kLanes ? ~0u : (1u << count) - 1;
  paths_.push_back({live_, 0, static_cast<int>(block.program->code.size())});
  local_.resize(static_cast<std::size_t>(block.program->local_bytes) * kLanes, std::byte{0xA1});
  if (checks_undefined()) make_undefined();
  set_special_registers();
}

void Warp::make_undefined() {
  const Program& program = *block_->program;
  const auto bytes = static_cast<std::size_t>(program.register_bytes);
  has_undefined_.assign(bytes / 64 + 1, 0);
  std::memset(bases_[0] + bytes, 0, bytes);
  for (const PlacedRegister& unwritten : program.undefined_at_start) {
    std::memset(lanes<std::byte>(undefined(unwritten.place)), 0xFF, unwritten.bytes);
    update_undefined(unwritten.place, unwritten.bytes);
  }
  local_undefined_.assign(local_.size(), std::byte{0xFF});
}

void Warp::update_undefined(Operand operand, std::uint32_t bytes) {
  const bool any = any_undefined(lanes<std::byte>(undefined(operand)), bytes);
  std::uint8_t& known = has_undefined_[operand.place / 64];
  num_undefined_ += static_cast<int>(any) - known;
  known = static_cast<std::uint8_t>(any);
}

void Warp::set_special_registers() {
  const Dim3 &index = block_->index, &grid = block_->grid;
  const std::array<std::int64_t, kSpecialNames.size()> same = {
      0, 0, 0, block_->threads, 1, 1, index.x, index.y, index.z, grid.x, grid.y, grid.z, 0};
  for (const SpecialRegister& special : block_->program->special) {
    auto* const values = lanes<std::uint32_t>(special.place);
    const bool is_thread = special.number == 0, is_lane = special.number + 1 == same.size();
    const std::int64_t first = is_thread ? index_ * kLanes : same[special.number];
    for (int lane = 0; lane < kLanes; ++lane) {
      values[lane] = static_cast<std::uint32_t>(first + (is_thread || is_lane ? lane : 0));
    }
  }
}

void Warp::run() {
  const Instruction* const code = block_->program->code.data();
  while (!paths_.empty()) {
    Path& path = paths_.back();
    active_ = path.lanes;
    const auto width = static_cast<std::uint64_t>(std::popcount(active_));
    const std::uint64_t before = num_instructions_;
    std::size_t at = static_cast<std::size_t>(path.next);
    bool is_straight = true;
    while (is_straight) {
      const Instruction& instruction = code[at];
      if (instruction.is_join && static_cast<int>(at) == path.join) break;
      at_ = at;
      ++num_instructions_;
      std::uint32_t lanes = active_;
      const bool any_undefined = num_undefined_ != 0;
      if (instruction.is_predicated) {
        if (any_undefined) require_defined(*this, instruction.predicate, active_);
        const std::uint32_t bits = predicate(instruction.predicate);
        lanes &= instruction.negated ? ~bits : bits;
      }
      switch (instruction.kind) {
        case Kind::plain:
          if (lanes == active_ && !any_undefined) {
            instruction.run(*this, instruction);
          } else if (lanes != 0) {
            const std::uint32_t all = std::exchange(active_, lanes);
            if (any_undefined) flow_undefined(*this, instruction);
            instruction.run(*this, instruction);
            active_ = all;
          }
          ++at;
          break;
        case Kind::branch:
          if (lanes == active_) {
            at = static_cast<std::size_t>(instruction.target);
          } else if (lanes == 0) {
            ++at;
          } else {
            num_thread_instructions_ += (num_instructions_ - before) * width;
            step_branch(instruction, lanes);
            is_straight = false;
          }
          break;
        case Kind::exit:
          if (lanes != 0) {
            num_thread_instructions_ += (num_instructions_ - before) * width;
            path.next = static_cast<int>(at) + 1;
            end_lanes(lanes);
            is_straight = false;
          } else {
            ++at;
          }
          break;
        case Kind::barrier:
          if (active_ != live_) error("a barrier of the block, reached by a part of a warp");
          if (any_undefined && reduces()) require_defined(*this, instruction.operands[1], live_);
          state_ = State::at_barrier;
          num_thread_instructions_ += (num_instructions_ - before) * width;
          return;
      }
    }
    if (!is_straight) continue;
    num_thread_instructions_ += (num_instructions_ - before) * width;
    paths_.pop_back();  // the path below continues at the join, with these lanes
  }
  require_no_pending_copies();
  state_ = State::done;
}

// One side of a branch runs until both meet again, then the other one. Which is first is not
// defined.
void Warp::step_branch(const Instruction& instruction, std::uint32_t taken) {
  const std::uint32_t others = active_ & ~taken;
  Path branch = {taken, instruction.target, instruction.join};
  Path rest = {others, static_cast<int>(at_) + 1, instruction.join};
  if ((llmc::mix64(block_->seed, at_, static_cast<std::uint64_t>(index_)) & 1) != 0)
    std::swap(branch, rest);
  Path& below = paths_.back();
  if (instruction.join == below.join) {
    paths_.pop_back();  // nothing is left to run before the join of the path below
  } else {
    below.next = instruction.join;
  }
  for (const Path& path : {branch, rest}) {
    if (path.next != path.join) paths_.push_back(path);
  }
}

void Warp::end_lanes(std::uint32_t lanes) {
  live_ &= ~lanes;
  for (Path& path : paths_) path.lanes &= ~lanes;
  while (!paths_.empty() && paths_.back().lanes == 0) paths_.pop_back();
}

// The barrier combines a predicate of all threads.
bool Warp::reduces() const {
  return block_->program->origins[at_].form->operands.starts_with('P');
}

void Warp::set_reduction(bool any) {
  const Operand result = barrier().operands[0];
  predicate(result) = any ? ~0u : 0u;
  if (!checks_undefined()) return;
  predicate(undefined(result)) = 0;
  update_undefined(result, sizeof(std::uint32_t));
}

void Warp::require_no_pending_copies() const {
  const auto group = std::ranges::find_if(groups_, [](const auto& g) { return !g.empty(); });
  const auto& copies = group == groups_.end() ? open_copies_ : *group;
  if (copies.empty()) return;
  error("copies of cp.async are pending at the end, requested at " +
        block_->program->place_of(copies[0].instruction) + ",");
}

namespace {

// Bytes that have arrived are as undefined as their source.
void copy_undefined(Warp& warp, const PendingCopy& copy) {
  std::byte* const to = undefined_bits(warp, copy.destination, copy.bytes + copy.zeros);
  std::memset(to, 0, copy.bytes + copy.zeros);
  if (copy.bytes == 0) return;
  const std::byte* const from = undefined_bits(warp, copy.source, copy.bytes);
  if (from == nullptr) return;
  if (any_undefined(from, copy.bytes))
    require_defined_by_others(warp, copy.lane, copy.source, copy.bytes);
  std::memcpy(to, from, copy.bytes);
}

}  // namespace

void PendingCopy::arrive() const {
  if (bytes > 0) std::memcpy(destination, source, bytes);
  std::memset(destination + bytes, 0, zeros);
}

void Warp::add_copy(PendingCopy copy) {
  // Some seeds let copies arrive early.
  if (block_->seed % 2 == 0 && block_->seed != 0) {
    const auto moment = llmc::mix64(block_->seed, at_, static_cast<std::uint64_t>(copy.lane)) % 3;
    copy.arrival = static_cast<PendingCopy::Arrival>(moment);
  }
  copy.instruction = at_;
  if (copy.arrival == PendingCopy::Arrival::at_once) copy.arrive();
  open_copies_.push_back(copy);
}

void Warp::commit_copies() {
  for (const PendingCopy& copy : open_copies_) {
    if (copy.arrival == PendingCopy::Arrival::at_commit) copy.arrive();
  }
  groups_.push_back(std::exchange(open_copies_, {}));
}

void Warp::wait_for_copies(std::int64_t most) {
  while (static_cast<std::int64_t>(groups_.size()) > most) {
    for (const PendingCopy& copy : groups_.front()) {
      note_write(*this, copy.lane, copy.destination, copy.bytes + copy.zeros);
      copy.arrive();
      if (checks_undefined()) copy_undefined(*this, copy);
    }
    groups_.erase(groups_.begin());
  }
}

std::string Warp::place_text(int lane) const {
  const Program& program = *block_->program;
  const Dim3& block = block_->index;
  return program.name + ", block (" + std::to_string(block.x) + ", " + std::to_string(block.y) +
         ", " + std::to_string(block.z) + "), " +
         (lane < 0 ? "warp " + std::to_string(index_)
                   : "thread " + std::to_string(index_ * kLanes + lane)) +
         ", in " + program.origins[at_].form->name + " at " + program.place_of(at_);
}

void Warp::error(const std::string& what, int lane) const {
  const std::string place = place_text(lane);
  const std::size_t in = place.rfind(", in ");
  llmc::fail(place.substr(0, in) + ": " + what + place.substr(in + 1));
}

}  // namespace llmc_ptx
