// Conversion of arrays between dtypes, for example master weights to working weights.
#pragma once

#include "llmc/device/device.h"
#include "llmc/ops/elementwise.h"

namespace llmc {

template <class To, class From>
__global__ void convert_kernel(To* out, const From* inp, std::int64_t n) {
  constexpr int N = 8;
  const std::int64_t i = global_thread() * N;
  if (i >= n) return;
  const Vec<From, N> x = load_up_to<N>(inp + i, n - i);
  Vec<To, N> y;
  for (int k = 0; k < N; ++k) y[k] = from_float<To>(to_float(x[k]));
  store_up_to(out + i, y, n - i);
}

// out[i] = inp[i] for i < n, rounded to nearest even if To is the narrower type. Both pointers are
// aligned to 16 bytes; the arrays do not overlap.
template <class To, class From>
void convert(To* out, const From* inp, std::int64_t n, Stream& stream) {
  launch_elementwise<8>(convert_kernel<To, From>, n, stream, out, inp, n);
}

}  // namespace llmc
