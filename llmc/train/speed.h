// How fast a run is, against how fast the machine could be.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>

#include "llmc/device/device.h"
#include "llmc/model/parameters.h"
#include "llmc/ops/matmul.h"
#include "llmc/ops/random_fill.h"

namespace llmc {

// Forward and backward: 6 FLOP for each parameter that a token is multiplied with (positions are
// only added) and 6·L·T·C for attention, of which causality leaves half (Chowdhery et al., 2022,
// appendix B, has 12·L·T·C for the whole square).
inline double flops_per_token(const ParameterTable& table, const Gpt2Config& config,
                              std::int64_t T) {
  const auto multiplied = static_cast<double>(table.count() - table.find("wpe.weight").size());
  return 6.0 * multiplied + 6.0 * static_cast<double>(config.layers * T * config.channels);
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

// `given` TFLOP/s, unless that is 0. With tf32, fp32 products run on tensor cores, whose rate no
// table here has: it is measured. Needs three matrices of 8192 x 8192 on a GPU (1024 x 1024 on a
// CPU) for a moment.
template <class T>
Peak peak_of(double given, const DeviceProperties& properties, bool tf32, Gemm& gemm,
             Stream& stream) {
  if (given > 0) return {1e12 * given, "--peak-tflops"};
  const bool by_tf32 = tf32 && std::is_same_v<T, float>;
  const double known = by_tf32 ? 0 : peak_flops(properties, kDtypeOf<T>);
  if (known > 0) return {known, "by the device's properties"};
  return {measured_peak_flops<T>(gemm, stream), "measured: the fastest matrix product"};
}

inline std::string teraflops(double flops) {
  char text[32];
  std::snprintf(text, sizeof text, flops < 1e13 ? "%.2f TFLOP/s" : "%.0f TFLOP/s", 1e-12 * flops);
  return text;
}

}  // namespace llmc
