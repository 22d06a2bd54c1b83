#include "llmc/eval/task.h"

#include <iterator>

namespace llmc {

void RowScoreSums::add(double nll) {
  while (num_missing_ == 0) {
    num_missing_ = task_.row(std::ssize(scores_)).num_scored;
    scores_.emplace_back();
  }
  --num_missing_;
  scores_.back().nll += nll;
  scores_.back().nll_squares += nll * nll;
}

}  // namespace llmc
