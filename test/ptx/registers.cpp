#include "test/ptx/registers.h"

#include <algorithm>
#include <limits>
#include <queue>

namespace llmc_ptx {

namespace {

using Set = std::vector<std::uint64_t>;

bool has(const Set& set, std::size_t i) {
  return (set[i / 64] >> (i % 64) & 1) != 0;
}
void insert(Set& set, std::size_t i) {
  set[i / 64] |= std::uint64_t{1} << (i % 64);
}
void erase(Set& set, std::size_t i) {
  set[i / 64] &= ~(std::uint64_t{1} << (i % 64));
}

// The statements between which a register is needed.
struct Interval {
  int first = std::numeric_limits<int>::max(), last = -1;

  void include(int statement) {
    first = std::min(first, statement);
    last = std::max(last, statement);
  }
};

// Finds the registers that are needed at the start of each block.
class Liveness {
 public:
  Liveness(const ControlFlow& flow, const std::vector<Use>& uses,
           const std::map<std::string, std::size_t>& numbers)
      : flow_(flow), uses_(uses), numbers_(numbers), words_((numbers.size() + 63) / 64) {
    const std::size_t count = flow.blocks().size();
    in_.assign(count + 1, Set(words_, 0));
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t b = count; b-- > 0;) changed = update(b) || changed;
    }
  }

  const Set& at_start(std::size_t block) const { return in_[block]; }
  Set at_end(std::size_t block) const {
    Set live(words_, 0);
    for (const int next : flow_.blocks()[block].next) {
      for (std::size_t i = 0; i < words_; ++i) live[i] |= in_[static_cast<std::size_t>(next)][i];
    }
    return live;
  }

 private:
  bool update(std::size_t block) {
    Set live = at_end(block);
    const BasicBlock& range = flow_.blocks()[block];
    for (int s = range.end; s-- > range.first;) {
      const Use& use = uses_[static_cast<std::size_t>(s)];
      if (use.writes_all_lanes) {
        for (const std::string& name : use.writes) erase(live, numbers_.at(name));
      }
      for (const std::string& name : use.reads) insert(live, numbers_.at(name));
    }
    if (live == in_[block]) return false;
    in_[block] = std::move(live);
    return true;
  }

  const ControlFlow& flow_;
  const std::vector<Use>& uses_;
  const std::map<std::string, std::size_t>& numbers_;
  std::size_t words_;
  std::vector<Set> in_;
};

std::vector<Interval> find_intervals(const ControlFlow& flow, const std::vector<Use>& uses,
                                     const std::map<std::string, std::size_t>& numbers,
                                     const Liveness& liveness) {
  std::vector<Interval> intervals(numbers.size());
  for (std::size_t b = 0; b < flow.blocks().size(); ++b) {
    const BasicBlock& range = flow.blocks()[b];
    const Set start = liveness.at_start(b), end = liveness.at_end(b);
    for (std::size_t i = 0; i < intervals.size(); ++i) {
      if (has(start, i)) intervals[i].include(range.first);
      if (has(end, i)) intervals[i].include(range.end - 1);
    }
  }
  for (std::size_t s = 0; s < uses.size(); ++s) {
    for (const auto* names : {&uses[s].reads, &uses[s].writes}) {
      for (const std::string& name : *names)
        intervals[numbers.at(name)].include(static_cast<int>(s));
    }
  }
  return intervals;
}

}  // namespace

RegisterPlaces place_registers(const Function& function, const ControlFlow& flow,
                               const std::vector<Use>& uses, std::int64_t first) {
  std::map<std::string, std::size_t> numbers;
  for (const Use& use : uses) {
    for (const auto* names : {&use.reads, &use.writes}) {
      for (const std::string& name : *names) numbers.try_emplace(name, numbers.size());
    }
  }
  const Liveness liveness(flow, uses, numbers);
  const std::vector<Interval> intervals = find_intervals(flow, uses, numbers, liveness);

  std::vector<const std::string*> names(numbers.size());
  for (const auto& [name, number] : numbers) names[number] = &name;
  std::vector<std::size_t> order(numbers.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, {}, [&](std::size_t i) { return intervals[i].first; });

  RegisterPlaces result;
  result.bytes = first;
  const Set at_start = liveness.at_start(0);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (has(at_start, i)) result.undefined_at_start.push_back(*names[i]);
  }
  std::map<Width, std::vector<Operand>> free;
  struct Busy {
    int last;
    Width width;
    Operand place;
    bool operator<(const Busy& other) const { return last > other.last; }
  };
  std::priority_queue<Busy> busy;
  for (const std::size_t i : order) {
    // A statement may read a register and write another one in the same place, if it reads all
    // first. Some do not, so a place is free only for later statements.
    while (!busy.empty() && busy.top().last < intervals[i].first) {
      free[busy.top().width].push_back(busy.top().place);
      busy.pop();
    }
    const Width width = function.registers.at(*names[i]);
    std::vector<Operand>& places = free[width];
    if (places.empty()) {
      places.push_back({static_cast<std::uint32_t>(result.bytes)});
      result.bytes += std::max<std::uint32_t>(bytes_of_width(width), 64);
    }
    result.places[*names[i]] = places.back();
    busy.push({intervals[i].last, width, places.back()});
    places.pop_back();
  }
  return result;
}

}  // namespace llmc_ptx
