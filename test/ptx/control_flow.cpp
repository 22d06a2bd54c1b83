#include "test/ptx/control_flow.h"

#include <algorithm>

namespace llmc_ptx {

namespace {

bool is_branch(const Statement& statement) {
  return statement.form.starts_with("bra");
}
bool is_exit(const Statement& statement) {
  return statement.form == "ret" || statement.form == "exit";
}

}  // namespace

ControlFlow::ControlFlow(const Function& function) {
  find_blocks(function);
  find_post_dominators();
}

void ControlFlow::find_blocks(const Function& function) {
  const auto count = function.statements.size();
  std::vector<bool> starts(count + 1, false);
  starts[0] = true;
  for (const auto& [label, place] : function.labels) starts[static_cast<std::size_t>(place)] = true;
  for (std::size_t i = 0; i < count; ++i) {
    if (is_branch(function.statements[i]) || is_exit(function.statements[i])) starts[i + 1] = true;
  }
  block_of_.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (starts[i]) blocks_.push_back({static_cast<int>(i), 0, {}});
    blocks_.back().end = static_cast<int>(i) + 1;
    block_of_[i] = static_cast<int>(blocks_.size()) - 1;
  }
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    const Statement& last = function.statements[static_cast<std::size_t>(blocks_[b].end - 1)];
    const bool goes_on = !(is_branch(last) || is_exit(last)) || !last.predicate.empty();
    if (goes_on) blocks_[b].next.push_back(static_cast<int>(b) + 1);
    if (is_branch(last)) blocks_[b].next.push_back(block_of(function.labels.at(last.operands[0])));
    if (is_exit(last)) blocks_[b].next.push_back(end());
  }
}

// Cooper, Harvey and Kennedy, "A simple, fast dominance algorithm", on the reversed graph.
void ControlFlow::find_post_dominators() {
  const int count = end();
  std::vector<std::vector<int>> before(static_cast<std::size_t>(count) + 1);
  for (int b = 0; b < count; ++b) {
    for (const int next : blocks_[static_cast<std::size_t>(b)].next) {
      before[static_cast<std::size_t>(next)].push_back(b);
    }
  }
  // Places in an order in which, walking backwards from the end, a block comes after those that
  // follow it.
  std::vector<int> order, place(static_cast<std::size_t>(count) + 1, -1);
  std::vector<std::pair<int, std::size_t>> stack = {{count, 0}};
  std::vector<bool> seen(static_cast<std::size_t>(count) + 1, false);
  seen[static_cast<std::size_t>(count)] = true;
  while (!stack.empty()) {
    auto& [block, next] = stack.back();
    const auto& sources = before[static_cast<std::size_t>(block)];
    if (next == sources.size()) {
      place[static_cast<std::size_t>(block)] = static_cast<int>(order.size());
      order.push_back(block);
      stack.pop_back();
      continue;
    }
    const int source = sources[next++];
    if (!seen[static_cast<std::size_t>(source)]) {
      seen[static_cast<std::size_t>(source)] = true;
      stack.emplace_back(source, 0);
    }
  }
  std::reverse(order.begin(), order.end());
  // A block from which no path leads to the end never meets another one.
  post_dominators_.assign(static_cast<std::size_t>(count) + 1, -1);
  post_dominators_.back() = count;
  const auto meet = [&](int a, int b) {
    while (a != b) {
      int& lower = place[static_cast<std::size_t>(a)] < place[static_cast<std::size_t>(b)] ? a : b;
      lower = post_dominators_[static_cast<std::size_t>(lower)];
    }
    return a;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (const int block : order) {
      if (block == count) continue;
      int common = -1;
      for (const int next : blocks_[static_cast<std::size_t>(block)].next) {
        if (post_dominators_[static_cast<std::size_t>(next)] < 0) continue;
        common = common < 0 ? next : meet(common, next);
      }
      changed = changed || common != post_dominators_[static_cast<std::size_t>(block)];
      post_dominators_[static_cast<std::size_t>(block)] = common;
    }
  }
  std::replace(post_dominators_.begin(), post_dominators_.end(), -1, count);
}

}  // namespace llmc_ptx
