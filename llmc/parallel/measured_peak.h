// The peak speed of the machine, measured.
#pragma once

#include <algorithm>
#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/convert.h"
#include "llmc/ops/gemm/matmul.h"
#include "llmc/ops/random_fill.h"

namespace llmc {

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

}  // namespace llmc
