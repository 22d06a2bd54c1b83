// GELU, AdamW and dropout with one number per thread, for comparison with 16-byte accesses. A warp
// then requests 64 or 128 bytes at a time instead of 512. It computes every index, and in dropout
// all four words of a draw, for only one number.
#pragma once

#include <cmath>
#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/dropout.h"
#include "llmc/ops/gelu_gate.h"
#include "llmc/ops/optimizer/adamw.h"

namespace llmc_dev {

template <class T>
__global__ void gelu_forward_scalar_kernel(T* out, const T* inp, std::int64_t n) {
  const std::int64_t i = llmc::global_thread();
  if (i >= n) return;
  const float x = llmc::to_float(inp[i]);
  out[i] = llmc::from_float<T>(x * llmc::gelu_gate<T>(x));
}

template <class T>
__global__ void gelu_backward_scalar_kernel(T* d_inp, const T* d_out, const T* inp,
                                            std::int64_t n) {
  const std::int64_t i = llmc::global_thread();
  if (i >= n) return;
  const float derivative = llmc::gelu_derivative<T>(llmc::to_float(inp[i]));
  d_inp[i] = llmc::from_float<T>(llmc::to_float(d_out[i]) * derivative);
}

template <class T>
__global__ void adamw_scalar_kernel(float* param, T* working_weights, float* m, float* v,
                                    const float* gradient, std::int64_t n, llmc::AdamWStep step,
                                    const llmc::OptimizerState* state) {
  const std::int64_t i = llmc::global_thread();
  if (i >= n || state->finite == 0) return;
  const float g = state->gradient_scale * gradient[i];
  m[i] += step.one_minus_beta1 * (g - m[i]);
  v[i] = step.beta2 * v[i] + step.one_minus_beta2 * (g * g);
  const float root = std::sqrt(v[i]) / state->bias_correction2_root;
  const float rate = step.learning_rate / state->bias_correction1;
  param[i] = step.decay_factor * param[i] - rate * m[i] / (root + step.eps);
  if (working_weights != nullptr) working_weights[i] = llmc::from_float<T>(param[i]);
}

// inp (rows, C) is a part of a batch of sequences of T_seq rows.
template <class T>
__global__ void dropout_scalar_kernel(T* out, const T* inp, std::int64_t n, std::int64_t T_seq,
                                      std::int64_t C, llmc::Dropout dropout) {
  const std::int64_t i = llmc::global_thread();
  if (i >= n) return;
  const std::int64_t row = dropout.first_row + i / C;
  const float factor = dropout.row_mask(row / T_seq).factor_at(row % T_seq, i % C, 0);
  out[i] = llmc::from_float<T>(factor == 0.0f ? 0.0f : llmc::to_float(inp[i]) * factor);
}

}  // namespace llmc_dev
