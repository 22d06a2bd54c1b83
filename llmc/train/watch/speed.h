// How fast a run is, against how fast the machine could be.
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

// FLOP per token, forward and backward, in the two conventions in use: attention counted as the
// half that causality leaves, or as the whole (T, T) square.
struct FlopsPerToken {
  double causal = 0, full = 0;
};

// 6N + 6·L·T·C and 6N + 12·L·T·C (Chowdhery et al., 2022, appendix B, has the latter). N counts the
// parameters that a token is multiplied with; the backward pass costs twice the forward pass.
inline FlopsPerToken flops_per_token(const ParameterTable& table, const Gpt2Config& config,
                                     std::int64_t T) {
  std::int64_t forward = 0;
  for (const ParameterSpec& spec : table.specs()) forward += spec.flops_per_token();
  const double products = 3.0 * static_cast<double>(forward);
  const double attention = 6.0 * static_cast<double>(config.layers * T * config.channels);
  return {products + attention, products + 2 * attention};
}

// FLOP/s of the fastest of some square matrix products on random data.
template <class T>
double measured_peak_flops(Gemm& gemm, Stream& stream) {
  const std::int64_t n = kCudaTarget ? 8192 : 1024;
  constexpr int kRepeats = 24;  // a CPU takes a while to reach its clock
  Buffer<float> random(n * n);
  normal_fill(random.data(), n * n, 0, 1, 0, 0.0f, 1.0f, stream);
  Buffer<T> a(n * n), c(n * n);
  convert(a.data(), static_cast<const float*>(random.data()), n * n, stream);
  const auto operand = make_tensor(static_cast<const T*>(a.data()), n, n);
  double best = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    Event start, end;
    start.record(stream);
    matmul(make_tensor(c.data(), n, n), operand, Transpose::no, operand, Transpose::no, 0.0f,
           static_cast<const T*>(nullptr), gemm, stream);
    end.record(stream);
    end.synchronize();
    const double seconds = 1e-3 * milliseconds_between(start, end);
    const auto size = static_cast<double>(n);
    best = std::max(best, 2 * size * size * size / seconds);
  }
  return best;
}

// The peak that MFU (the share of it a run reaches) is measured against, and where it is from.
struct Peak {
  double flops = 0;
  std::string origin;
};

// `given` TFLOP/s, unless that is 0; else the data sheet's; else, on an architecture the table does
// not have, measured, which needs three matrices of 8192 x 8192 on a GPU (1024 x 1024 on a CPU) for
// a moment.
template <class T>
Peak peak_of(double given, const DeviceProperties& properties, bool tf32, Gemm& gemm,
             Stream& stream) {
  if (given > 0) return {1e12 * given, "--peak-tflops"};
  const DataSheetPeak known = data_sheet_peak(properties, kDtypeOf<T>, tf32);
  if (known.flops() > 0) return {known.flops(), "data sheet: " + known.text()};
  return {measured_peak_flops<T>(gemm, stream), "measured: the fastest matrix product"};
}

inline std::string teraflops(double flops) {
  char text[32];
  std::snprintf(text, sizeof text, flops < 1e13 ? "%.2f TFLOP/s" : "%.0f TFLOP/s", 1e-12 * flops);
  return text;
}

// The definition of MFU in this run, for stderr.
inline std::string mfu_text(const Peak& peak) {
  return "MFU: 6N + 6LTC FLOP per token (causal attention); with 'full', 6N + 12LTC; against " +
         teraflops(peak.flops) + " (" + peak.origin + ")";
}

}  // namespace llmc
