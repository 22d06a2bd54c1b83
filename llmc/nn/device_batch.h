// The input of a pass through the model: token ids, and data that the host derives from them.
#pragma once

#include <cstdint>

#include "llmc/device/tensor.h"
#include "llmc/ops/embedding.h"

namespace llmc {

// A batch in device memory.
struct DeviceBatch {
  std::int64_t B = 0, T = 0;
  Tensor<const std::int32_t, 1> tokens;          // (B*T)
  Tensor<const std::int32_t, 1> targets;         // (B*T), -1: no target; empty if there is no loss
  TokenBucketsView buckets{};                    // rows of each token; for the backward pass
  const std::int32_t* doc_start = nullptr;       // (B*T) first visible key of each query; null: 0
  const std::int32_t* first_position = nullptr;  // (B) start position of each sequence; null: 0

  std::int64_t rows() const { return B * T; }
};

}  // namespace llmc
