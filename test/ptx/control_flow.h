// The order in which statements of a function may follow each other.
#pragma once

#include <vector>

#include "test/ptx/source.h"

namespace llmc_ptx {

// Statements [first, end) that run one after the other. The number of blocks stands for the end of
// the function.
struct BasicBlock {
  int first = 0, end = 0;
  std::vector<int> next;
};

class ControlFlow {
 public:
  explicit ControlFlow(const Function& function);

  const std::vector<BasicBlock>& blocks() const { return blocks_; }
  int block_of(int statement) const { return block_of_[static_cast<std::size_t>(statement)]; }
  int end() const { return static_cast<int>(blocks_.size()); }
  // The first block that every path from `block` to the end of the function passes after it.
  int post_dominator(int block) const { return post_dominators_[static_cast<std::size_t>(block)]; }

 private:
  void find_blocks(const Function& function);
  void find_post_dominators();

  std::vector<BasicBlock> blocks_;
  std::vector<int> block_of_, post_dominators_;
};

}  // namespace llmc_ptx
