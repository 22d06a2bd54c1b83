#include "llmc/device/device.h"
#include "llmc/ops/elementwise.h"
#include "llmc/ops/global_index.h"
#include "llmc/ops/instantiate.h"
#include "llmc/ops/optimizer/stochastic_rounding.h"

namespace llmc {

template <class T>
__global__ void stochastic_convert_kernel(T* out, const float* inp, std::int64_t n,
                                          StochasticRounding rounding, std::int32_t step) {
  constexpr int N = 8;
  const std::int64_t i = global_thread() * N;
  if (i >= n) return;
  const Vec<float, N> x = load_up_to<N>(inp + i, n - i);
  Vec<T, N> y;
  rounding.round<T, N>(y, x, i, step);
  store_up_to(out + i, y, n - i);
}

template <class T>
void stochastic_convert(T* out, const float* inp, std::int64_t n,
                        const StochasticRounding& rounding, std::int32_t step, Stream& stream) {
  rounding.check("stochastic_convert");
  launch_elementwise<8>(stochastic_convert_kernel<T>, n, stream, out, inp, n, rounding, step);
}

LLMC_INSTANTIATE_HALF(stochastic_convert)

}  // namespace llmc
