// The speed of a run, relative to the peak speed of the machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

#include "llmc/device/device.h"
#include "llmc/device/peak.h"
#include "llmc/model/parameters.h"
#include "llmc/ops/gemm/matmul.h"
#include "llmc/ops/random_fill.h"

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

// Measures the FLOP/s of equal square matrix products on random data until they do not become
// faster; returns the highest. A processor needs time to reach its highest clock.
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

// The peak that MFU is relative to, and its origin. MFU is the fraction of the peak that a run
// reaches.
struct Peak {
  double flops = 0;
  std::string origin;
};

// Returns `override_tflops` unless it is 0, else the peak of the data sheet. If the table lacks the
// architecture, the peak is measured, which temporarily needs three matrices of 8192 x 8192 on a
// GPU (1024 x 1024 on a CPU).
template <class T>
Peak peak_of(double override_tflops, const DeviceProperties& properties, bool tf32, Gemm& gemm,
             Stream& stream) {
  if (override_tflops > 0) return {1e12 * override_tflops, "--peak-tflops"};
  const DataSheetPeak data_sheet = data_sheet_peak(properties, kDtypeOf<T>, tf32);
  if (data_sheet.flops() > 0) {
    return {data_sheet.flops(), "data sheet: " + data_sheet.text()};
  }
  return {measured_peak_flops<T>(gemm, stream), "measured: the fastest matrix product"};
}

inline std::string teraflops(double flops) {
  char text[32];
  std::snprintf(text, sizeof text, flops < 1e13 ? "%.2f TFLOP/s" : "%.0f TFLOP/s", 1e-12 * flops);
  return text;
}

// The definition of MFU in a run of so many ranks, for stderr.
inline std::string mfu_text(const Peak& peak, int ranks) {
  return "MFU: 6N + 6LTC FLOP per token (causal attention); with 'full', 6N + 12LTC; relative to " +
         (ranks > 1 ? std::to_string(ranks) + " x " : "") + teraflops(peak.flops) + " (" +
         peak.origin + ")";
}

}  // namespace llmc
