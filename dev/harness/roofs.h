// The roofs of this machine: bytes per second of a copy in device memory, and FLOP per second of a
// large matrix product. They are measured in the same process as the runs compared with them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "dev/harness/arrays.h"
#include "llmc/ops/gemm/matmul.h"

namespace llmc_dev {

using llmc::bf16;
using llmc::fp16;

struct Roofs {
  double copy_bytes = 0;                               // per second, read plus written
  double gemm_fp32 = 0, gemm_bf16 = 0, gemm_fp16 = 0;  // FLOP per second
  double gemm(llmc::Dtype dtype) const {               // roof of a product in this dtype
    if (dtype == llmc::Dtype::fp32) return gemm_fp32;
    return dtype == llmc::Dtype::bf16 ? gemm_bf16 : gemm_fp16;
  }
};

// Milliseconds that `run` takes on the device: the median of some runs after a warm-up run.
template <class Run>
double median_milliseconds(const Run& run, Stream& stream) {
  constexpr int kRuns = 15;
  std::vector<double> times;
  run();
  for (int i = 0; i < kRuns; ++i) {
    llmc::Event start, end;
    start.record(stream);
    run();
    end.record(stream);
    end.synchronize();
    times.push_back(llmc::milliseconds_between(start, end));
  }
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

__global__ inline void copy_kernel(float* to, const float* from, std::int64_t n) {
  const std::int64_t i = llmc::global_thread() * 4;
  if (i < n) llmc::store_vec(to + i, llmc::load_vec<4>(from + i));
}

// Bytes per second of the faster of two copies: the runtime's, and a plain kernel that moves 16
// bytes per thread.
inline double copy_roof(Stream& stream) {
  constexpr std::int64_t kFloats = std::int64_t{1} << 28;  // 1 GiB each
  const DeviceArray<float> from(kFloats, 1, Role::input, normal(901), stream);
  const DeviceArray<float> to(kFloats, 1, Role::input, normal(902), stream);
  const double runtime = median_milliseconds(
      [&] { llmc::copy_on_device(to.at(0), from.at(0), kFloats, stream); }, stream);
  const double kernel = median_milliseconds(
      [&] {
        llmc::launch_elementwise<4>(copy_kernel, kFloats, stream, to.at(0), from.at(0), kFloats);
      },
      stream);
  return 2.0 * sizeof(float) * kFloats / (1e-3 * std::min(runtime, kernel));
}

// FLOP per second of a square product by the library that the engine uses.
template <class T>
double gemm_roof(std::int64_t size, Stream& stream) {
  const DeviceArray<T> a(size * size, 1, Role::input, normal(903), stream);
  const DeviceArray<T> b(size * size, 1, Role::input, normal(904), stream);
  const DeviceArray<T> c(size * size, 1, Role::input, normal(905), stream);
  llmc::Gemm gemm;
  const auto in = [&](const DeviceArray<T>& x) {
    return llmc::make_tensor(static_cast<const T*>(x.at(0)), size, size);
  };
  const double milliseconds = median_milliseconds(
      [&] {
        llmc::matmul(llmc::make_tensor(c.at(0), size, size), in(a), llmc::Transpose::no, in(b),
                     llmc::Transpose::no, 0.0f, static_cast<const T*>(nullptr), gemm, stream);
      },
      stream);
  const double n = static_cast<double>(size);
  return 2 * n * n * n / (1e-3 * milliseconds);
}

inline Roofs measure_roofs(Stream& stream) {
  return {copy_roof(stream), gemm_roof<float>(4096, stream), gemm_roof<bf16>(8192, stream),
          gemm_roof<fp16>(8192, stream)};
}

}  // namespace llmc_dev
