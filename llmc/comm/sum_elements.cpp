#include "llmc/comm/sum_elements.h"

#include <type_traits>

#include "llmc/base/error.h"
#include "llmc/device/dtype.h"

namespace llmc {

namespace {

// out[i] = arrays[0][i] + arrays[1][i] + ..., in this order; bf16 and fp16 are added in fp32 and
// rounded once. `out` may be one of the arrays.
template <class T>
void sum_arrays(T* out, std::span<const void* const> arrays, std::int64_t n) {
  constexpr std::int64_t kBlock = 256;  // sums that stay in the L1 cache
  using Sum = std::conditional_t<std::is_same_v<T, std::int64_t>, std::int64_t, float>;
  const auto widen = [](T x) -> Sum {
    if constexpr (std::is_same_v<T, std::int64_t>) {
      return x;
    } else {
      return to_float(x);
    }
  };
  for (std::int64_t first = 0; first < n; first += kBlock) {
    const std::int64_t count = n - first < kBlock ? n - first : kBlock;
    Sum sums[kBlock];
    for (std::int64_t i = 0; i < count; ++i) {
      sums[i] = widen(static_cast<const T*>(arrays[0])[first + i]);
    }
    for (const void* array : arrays.subspan(1)) {
      for (std::int64_t i = 0; i < count; ++i) {
        sums[i] += widen(static_cast<const T*>(array)[first + i]);
      }
    }
    for (std::int64_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<T, std::int64_t>) {
        out[first + i] = sums[i];
      } else {
        out[first + i] = from_float<T>(sums[i]);
      }
    }
  }
}

}  // namespace

void sum_elements(Element element, void* out, std::span<const void* const> arrays, std::int64_t n) {
  switch (element) {
    case Element::fp32:
      return sum_arrays(static_cast<float*>(out), arrays, n);
    case Element::bf16:
      return sum_arrays(static_cast<bf16*>(out), arrays, n);
    case Element::fp16:
      return sum_arrays(static_cast<fp16*>(out), arrays, n);
    case Element::int64:
      return sum_arrays(static_cast<std::int64_t*>(out), arrays, n);
    case Element::byte:
      break;
  }
  fail("bytes have no sum");
}

}  // namespace llmc
