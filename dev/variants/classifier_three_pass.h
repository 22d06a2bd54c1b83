// The classifier with a textbook softmax: one pass over the row for its maximum, one for the sum of
// exponentials, one for the gradients. Each thread handles one number at a time. The classifier in
// llmc/ops/classifier.cu computes maximum and sum in one pass, so it reads the row twice, not three
// times.
#pragma once

#include <cmath>
#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/classifier_row.h"

namespace llmc_dev {

// One block per row.
template <class T>
__global__ __launch_bounds__(1024) void classifier_three_pass_kernel(T* logits, float* losses,
                                                                     const std::int32_t* targets,
                                                                     float dloss, std::int64_t V,
                                                                     std::int64_t Vp) {
  llmc::SharedMemory shared;
  float* scratch = shared.take<float>(llmc::kBlockScratch);
  T* row = logits + llmc::block_x() * Vp;
  const std::int64_t target = targets[llmc::block_x()];
  const float target_logit = llmc::to_float(row[target]);

  float max = llmc::kMinLogit;
  for (std::int64_t c = llmc::thread_index(); c < V; c += llmc::block_size()) {
    max = std::fmax(max, llmc::to_float(row[c]));
  }
  max = llmc::block_max(max, scratch);
  float sum = 0.0f;
  for (std::int64_t c = llmc::thread_index(); c < V; c += llmc::block_size()) {
    sum += llmc::exp_minus_max<T>(llmc::to_float(row[c]), max);
  }
  sum = llmc::block_sum(sum, scratch);
  for (std::int64_t c = llmc::thread_index(); c < Vp; c += llmc::block_size()) {
    float d = 0.0f;
    if (c < V) d = dloss / sum * llmc::exp_minus_max<T>(llmc::to_float(row[c]), max);
    if (c == target) d -= dloss;
    row[c] = llmc::from_float<T>(d);
  }
  if (llmc::thread_index() == 0) {
    losses[llmc::block_x()] = std::log(sum) + max - target_logit;
  }
}

}  // namespace llmc_dev
