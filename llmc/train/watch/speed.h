// The FLOP of a run's tokens, and the peak speed of the machine.
#pragma once

#include <algorithm>
#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/device/peak.h"
#include "llmc/model/parameters.h"
#include "llmc/ops/gemm/matmul.h"
#include "llmc/ops/random_fill.h"
#include "llmc/train/watch/mfu.h"

namespace llmc {

// FLOP per token, forward and backward, in the two common conventions: attention counts as the half
// of the (T, T) square that the causal mask leaves, or as the full square.
struct FlopsPerToken {
  double causal = 0, full = 0;
};

// 6N + 6·L·T·C and 6N + 12·L·T·C (Chowdhery et al., 2022, appendix B, has the latter). N counts all
// parameters except the position embeddings. The backward pass costs twice the forward pass.
inline FlopsPerToken flops_per_token(const ParameterTable& table, const Gpt2Config& config,
                                     std::int64_t T) {
  std::int64_t forward = 0;
  for (const ParameterSpec& spec : table.specs()) forward += spec.flops_per_token();
  const double products = 3.0 * static_cast<double>(forward);
  const double attention = 6.0 * static_cast<double>(config.layers * T * config.channels);
  return {products + attention, products + 2 * attention};
}

// Whether a run can measure the peak between its steps. On a GPU, the model uses the memory that a
// measurement needs.
inline constexpr bool kPeakFitsNextToModel = !kCudaTarget;

// Measures the FLOP/s of equal square matrix products on random data until they do not become
// faster; returns the highest. A processor needs time to reach its highest clock. Temporarily needs
// three matrices of 8192 x 8192 on a GPU (1024 x 1024 on a CPU).
template <class T>
double measured_peak_flops(Gemm& gemm, Stream& stream) {
  const std::int64_t n = kCudaTarget ? 8192 : 1024;
  constexpr int kMaxRepeats = 24, kEnoughEqual = 4;
  constexpr double kFaster = 1.02;
  Buffer<float> random(n * n);
  normal_fill(random.data(), n * n, 0, 1, 0, 0.0f, 1.0f, stream);
  Buffer<T> a(n * n), c(n * n);
  convert(a.data(), static_cast<const float*>(random.data()), n * n, stream);
  const auto operand = make_tensor(static_cast<const T*>(a.data()), n, n);
  double max_flops = 0;
  int num_equal = 0;  // products in a row that were not faster than those before
  for (int repeat = 0; repeat < kMaxRepeats && num_equal < kEnoughEqual; ++repeat) {
    Event start, end;
    start.record(stream);
    matmul(make_tensor(c.data(), n, n), operand, Transpose::no, operand, Transpose::no, 0.0f,
           static_cast<const T*>(nullptr), gemm, stream);
    end.record(stream);
    end.synchronize();
    const double seconds = 1e-3 * milliseconds_between(start, end);
    const auto size = static_cast<double>(n);
    const double flops = 2 * size * size * size / seconds;
    num_equal = flops > kFaster * max_flops ? 0 : num_equal + 1;
    max_flops = std::max(max_flops, flops);
  }
  return max_flops;
}

// Returns `override_tflops` unless it is 0, else the peak of the data sheet. If the table lacks the
// architecture, measured_peak_flops() must measure the peak.
inline Peak known_peak(double override_tflops, const DeviceProperties& properties, Dtype dtype,
                       bool tf32) {
  if (override_tflops > 0) return {1e12 * override_tflops, "--peak-tflops"};
  const DataSheetPeak data_sheet = data_sheet_peak(properties, dtype, tf32);
  if (data_sheet.flops() > 0) {
    return {data_sheet.flops(), "data sheet: " + data_sheet.text()};
  }
  return {0, "measured: the fastest matrix product", true};
}

}  // namespace llmc
