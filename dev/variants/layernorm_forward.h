// LayerNorm forward in two simpler forms than the one in llmc/ops/layernorm.cu. They teach that
// neighbouring threads must read neighbouring memory, and that a row must be read only once.
#pragma once

#include <cmath>
#include <cstdint>

#include "llmc/device/device.h"

namespace llmc_dev {

// One thread per row, as the definition reads. Each load of a warp touches 32 rows, C elements
// apart, and uses 2 or 4 bytes of every 32 that memory sends. Three passes over the row.
template <class T>
__global__ void layernorm_thread_per_row_kernel(T* out, float* mean_out, float* rstd_out,
                                                const T* inp, const T* weight, const T* bias,
                                                float eps, std::int64_t rows, std::int64_t C) {
  const std::int64_t row = llmc::global_thread();
  if (row >= rows) return;
  const T* x = inp + row * C;
  float sum = 0.0f;
  for (std::int64_t c = 0; c < C; ++c) sum += llmc::to_float(x[c]);
  const float mean = sum / static_cast<float>(C);
  float squares = 0.0f;
  for (std::int64_t c = 0; c < C; ++c) {
    const float difference = llmc::to_float(x[c]) - mean;
    squares += difference * difference;
  }
  const float rstd = 1.0f / std::sqrt(squares / static_cast<float>(C) + eps);
  for (std::int64_t c = 0; c < C; ++c) {
    const float z = (llmc::to_float(x[c]) - mean) * rstd;
    out[row * C + c] = llmc::from_float<T>(z * llmc::to_float(weight[c]) + llmc::to_float(bias[c]));
  }
  mean_out[row] = mean;
  rstd_out[row] = rstd;
}

// One warp per row, one number per lane at a time. Loads are contiguous but narrow, and the row
// still comes from memory (or cache) three times.
template <class T>
__global__ void layernorm_warp_per_row_kernel(T* out, float* mean_out, float* rstd_out,
                                              const T* inp, const T* weight, const T* bias,
                                              float eps, std::int64_t rows, std::int64_t C) {
  const std::int64_t row = llmc::block_x() * llmc::warps_per_block() + llmc::warp_index();
  if (row >= rows) return;
  constexpr int kLanes = llmc::cooperating_threads(llmc::kWarp);
  const T* x = inp + row * C;
  float sum = 0.0f;
  for (std::int64_t c = llmc::lane(); c < C; c += kLanes) sum += llmc::to_float(x[c]);
  const float mean = llmc::warp_sum(sum) / static_cast<float>(C);
  float squares = 0.0f;
  for (std::int64_t c = llmc::lane(); c < C; c += kLanes) {
    const float difference = llmc::to_float(x[c]) - mean;
    squares += difference * difference;
  }
  const float rstd = 1.0f / std::sqrt(llmc::warp_sum(squares) / static_cast<float>(C) + eps);
  for (std::int64_t c = llmc::lane(); c < C; c += kLanes) {
    const float z = (llmc::to_float(x[c]) - mean) * rstd;
    out[row * C + c] = llmc::from_float<T>(z * llmc::to_float(weight[c]) + llmc::to_float(bias[c]));
  }
  if (llmc::lane() == 0) {
    mean_out[row] = mean;
    rstd_out[row] = rstd;
  }
}

}  // namespace llmc_dev
