#include "llmc/device/device.h"
#include "llmc/ops/convert.h"
#include "llmc/ops/elementwise.h"
#include "llmc/ops/instantiate.h"

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

template <class To, class From>
void convert(To* out, const From* inp, std::int64_t n, Stream& stream) {
  launch_elementwise<8>(convert_kernel<To, From>, n, stream, out, inp, n);
}

template decltype(convert<float, float>) convert<float, float>;
template decltype(convert<bf16, float>) convert<bf16, float>;
template decltype(convert<fp16, float>) convert<fp16, float>;
template decltype(convert<float, bf16>) convert<float, bf16>;
template decltype(convert<float, fp16>) convert<float, fp16>;

}  // namespace llmc
