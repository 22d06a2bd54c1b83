// Arithmetic on short vectors of floats, element by element. On a GPU a thread computes one element
// after the other. On the host it uses SIMD registers (host/simd.h).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "llmc/device/dtype.h"
#include "llmc/device/math.h"
#include "llmc/device/target.h"
#include "llmc/device/vec.h"
#ifndef __CUDACC__
#include "llmc/device/host/extremes.h"
#include "llmc/device/host/simd.h"
#endif

namespace llmc {

// Floats in one register, and the number of registers of a thread.
#ifdef __CUDACC__
inline constexpr int kRegisterFloats = 1;
inline constexpr int kFloatRegisters = 255;
#else
inline constexpr int kRegisterFloats = host::kSimdWidth;
inline constexpr int kFloatRegisters = host::kSimdRegisters;
#endif

namespace detail {
// Floats in each register of a vector of N: the largest number up to `width` that divides N, or 1
// instead of 2.
__host__ __device__ constexpr int register_floats(int N, int width) {
  while (width > 1 && N % width != 0) width /= 2;
  return width < 4 ? 1 : width;
}

#ifdef __CUDACC__
template <int W>
using Register = float;
#else
template <int W>
using Register = typename host::Simd<W>::Float;
#endif
}  // namespace detail

// N floats in registers; N is 1, or a multiple of 4.
template <int N>
class Floats {
 public:
  static constexpr int kWidth = detail::register_floats(N, kRegisterFloats);
  static constexpr int kRegisters = N / kWidth;
  using Register = detail::Register<kWidth>;

  // All elements are x. Operators also take a float and a vector.
  __device__ __forceinline__ Floats(float x = 0.0f) {
    for (int i = 0; i < kRegisters; ++i) registers_[i] = x - Register{};
  }

  __device__ __forceinline__ Register& in_register(int i) { return registers_[i]; }
  __device__ __forceinline__ const Register& in_register(int i) const { return registers_[i]; }
  __device__ __forceinline__ float operator[](int k) const {
    if constexpr (kWidth == 1) {
      return registers_[k];
    } else {
      return registers_[k / kWidth][k % kWidth];
    }
  }

  __device__ __forceinline__ Floats& operator+=(const Floats& x) { return *this = *this + x; }
  __device__ __forceinline__ Floats& operator*=(const Floats& x) { return *this = *this * x; }

  __device__ __forceinline__ friend Floats operator+(const Floats& x, const Floats& y) {
    Floats sum;
    for (int i = 0; i < kRegisters; ++i) sum.registers_[i] = x.registers_[i] + y.registers_[i];
    return sum;
  }
  __device__ __forceinline__ friend Floats operator-(const Floats& x, const Floats& y) {
    Floats difference;
    for (int i = 0; i < kRegisters; ++i)
      difference.registers_[i] = x.registers_[i] - y.registers_[i];
    return difference;
  }
  __device__ __forceinline__ friend Floats operator*(const Floats& x, const Floats& y) {
    Floats product;
    for (int i = 0; i < kRegisters; ++i) product.registers_[i] = x.registers_[i] * y.registers_[i];
    return product;
  }
  __device__ __forceinline__ friend Floats operator/(const Floats& x, const Floats& y) {
    Floats quotient;
    for (int i = 0; i < kRegisters; ++i) quotient.registers_[i] = x.registers_[i] / y.registers_[i];
    return quotient;
  }

 private:
  Register registers_[kRegisters];
};

// The N numbers at p, which is aligned as for load_vec.
template <int N, class T>
__device__ __forceinline__ Floats<N> load_floats(const T* p) {
  Floats<N> x;
#ifdef __CUDACC__
  const Vec<T, N> v = load_vec<N>(p);
  for (int k = 0; k < N; ++k) x.in_register(k) = to_float(v[k]);
#else
  constexpr int W = Floats<N>::kWidth;
  detail::check_vector<T, N>(p);
  for (int i = 0; i < Floats<N>::kRegisters; ++i)
    x.in_register(i) = host::load_register<W>(p + i * W);
#endif
  return x;
}

// Rounds N numbers to T and writes them to p, which is aligned as for store_vec.
template <class T, int N>
__device__ __forceinline__ void store_floats(T* p, const Floats<N>& x) {
#ifdef __CUDACC__
  Vec<T, N> v;
  for (int k = 0; k < N; ++k) v[k] = from_float<T>(x.in_register(k));
  store_vec(p, v);
#else
  constexpr int W = Floats<N>::kWidth;
  detail::check_vector<T, N>(p);
  for (int i = 0; i < Floats<N>::kRegisters; ++i)
    host::store_register<W>(p + i * W, x.in_register(i));
#endif
}

// The same for vectors in registers.
template <class T, int N>
__device__ __forceinline__ Floats<N> to_floats(const Vec<T, N>& v) {
#ifdef __CUDACC__
  Floats<N> x;
  for (int k = 0; k < N; ++k) x.in_register(k) = to_float(v[k]);
  return x;
#else
  return load_floats<N>(v.values);
#endif
}
template <class T, int N>
__device__ __forceinline__ Vec<T, N> from_floats(const Floats<N>& x) {
  Vec<T, N> v;
#ifdef __CUDACC__
  for (int k = 0; k < N; ++k) v[k] = from_float<T>(x.in_register(k));
#else
  store_floats(v.values, x);
#endif
  return v;
}

// x * factor + addend, rounded once if the processor has fused multiply-add.
template <int N>
__device__ __forceinline__ Floats<N> fma(const Floats<N>& x, float factor, float addend) {
#ifdef __CUDACC__
  Floats<N> y;
  for (int k = 0; k < N; ++k) y.in_register(k) = std::fma(x[k], factor, addend);
  return y;
#else
  return x * factor + addend;
#endif
}

// x * y + addend, element by element. Rounded once where the target has fused multiply-add, in
// every build and wherever it is inlined, so equal chains of it have equal bits.
template <int N>
__device__ __forceinline__ Floats<N> multiply_add(const Floats<N>& x, const Floats<N>& y,
                                                  const Floats<N>& addend) {
  Floats<N> result;
  for (int i = 0; i < Floats<N>::kRegisters; ++i) {
    const auto a = x.in_register(i), b = y.in_register(i), c = addend.in_register(i);
#ifdef __CUDACC__
    result.in_register(i) = std::fma(a, b, c);
#else
    result.in_register(i) = host::multiply_add<Floats<N>::kWidth>(a, b, c);
#endif
  }
  return result;
}

// x * y + addend, element by element, rounded once on every processor.
template <int N>
__device__ __forceinline__ Floats<N> fused_multiply_add(const Floats<N>& x, const Floats<N>& y,
                                                        const Floats<N>& addend) {
#ifdef __CUDACC__
  return multiply_add(x, y, addend);
#else
  Floats<N> result;
  for (int i = 0; i < Floats<N>::kRegisters; ++i)
    result.in_register(i) = host::fused_multiply_add<Floats<N>::kWidth>(
        x.in_register(i), y.in_register(i), addend.in_register(i));
  return result;
#endif
}

namespace detail {
// f(a, b) for each two registers.
template <int N, class F>
__device__ __forceinline__ Floats<N> in_each_register(const Floats<N>& x, const Floats<N>& y, F f) {
  Floats<N> z;
  for (int i = 0; i < Floats<N>::kRegisters; ++i)
    z.in_register(i) = f(x.in_register(i), y.in_register(i));
  return z;
}
}  // namespace detail

// The larger of each two elements. If only y has a NaN, the result is the element of x.
template <int N>
__device__ __forceinline__ Floats<N> max_elements(const Floats<N>& x, const Floats<N>& y) {
  return detail::in_each_register(x, y, [](auto a, auto b) {
#ifdef __CUDACC__
    return std::fmax(a, b);
#else
    return host::larger(b, a);
#endif
  });
}

// The smaller of each two elements. If only y has a NaN, the result is the element of x.
template <int N>
__device__ __forceinline__ Floats<N> min_elements(const Floats<N>& x, const Floats<N>& y) {
  return detail::in_each_register(x, y, [](auto a, auto b) {
#ifdef __CUDACC__
    return std::fmin(a, b);
#else
    return host::smaller(b, a);
#endif
  });
}

// The elements of `negative` where x is below 0, and those of `other` elsewhere, also for NaN.
template <int N>
__device__ __forceinline__ Floats<N> select_negative(const Floats<N>& x, const Floats<N>& negative,
                                                     const Floats<N>& other) {
  Floats<N> selected;
  for (int i = 0; i < Floats<N>::kRegisters; ++i) {
    selected.in_register(i) =
        x.in_register(i) < 0.0f ? negative.in_register(i) : other.in_register(i);
  }
  return selected;
}

// The lowest byte of the bits of each element.
template <int N>
__device__ __forceinline__ Vec<std::int8_t, N> low_bytes(const Floats<N>& x) {
  Vec<std::int8_t, N> bytes;
#ifdef __CUDACC__
  for (int k = 0; k < N; ++k) bytes[k] = static_cast<std::int8_t>(bits_of(x[k]) & 0xffu);
#else
  constexpr int W = Floats<N>::kWidth;
  for (int i = 0; i < Floats<N>::kRegisters; ++i)
    host::store_low_bytes<W>(bytes.values + i * W, x.in_register(i));
#endif
  return bytes;
}

// The functions of math.h for each element.
template <int N>
__device__ __forceinline__ Floats<N> accurate_exp(const Floats<N>& x) {
  Floats<N> y;
  for (int i = 0; i < Floats<N>::kRegisters; ++i) y.in_register(i) = accurate_exp(x.in_register(i));
  return y;
}
template <int N>
__device__ __forceinline__ Floats<N> accurate_exp2(const Floats<N>& x) {
  Floats<N> y;
  for (int i = 0; i < Floats<N>::kRegisters; ++i)
    y.in_register(i) = accurate_exp2(x.in_register(i));
  return y;
}
template <int N>
__device__ __forceinline__ Floats<N> fast_exp2(const Floats<N>& x) {
  Floats<N> y;
  for (int i = 0; i < Floats<N>::kRegisters; ++i) y.in_register(i) = fast_exp2(x.in_register(i));
  return y;
}

// Keeps the elements first .. last and replaces the others by `other`.
template <int N>
__device__ __forceinline__ Floats<N> keep_range(const Floats<N>& x, int first, int last,
                                                float other) {
  Floats<N> kept(other);
  for (int i = 0; i < Floats<N>::kRegisters; ++i) {
#ifdef __CUDACC__
    kept.in_register(i) = i < first || i > last ? other : x[i];
#else
    constexpr int W = Floats<N>::kWidth;
    const auto k = host::integers_from<W>(i * W);
    kept.in_register(i) = (k < first) | (k > last) ? kept.in_register(i) : x.in_register(i);
#endif
  }
  return kept;
}

// Elements first .. first + M - 1; M is a multiple of 4 that divides `first`.
template <int M, int N>
__device__ __forceinline__ Floats<M> elements(const Floats<N>& x, int first) {
  Floats<M> part;
#ifdef __CUDACC__
  for (int k = 0; k < M; ++k) part.in_register(k) = x[first + k];
#else
  std::memcpy(&part, reinterpret_cast<const char*>(&x) + sizeof(float) * first, sizeof part);
#endif
  return part;
}

namespace detail {
// Reduces all elements to one, by halves: element k is combined with element k + N/2.
template <int N, class Combine>
__device__ __forceinline__ float reduce_elements(const Floats<N>& x, Combine combine) {
  constexpr int kRegisters = Floats<N>::kRegisters;
  if constexpr (kRegisters > 1) {
    static_assert(kRegisters % 2 == 0);
    Floats<N / 2> half;
    for (int i = 0; i < kRegisters / 2; ++i)
      half.in_register(i) = combine(x.in_register(i), x.in_register(i + kRegisters / 2));
    return reduce_elements(half, combine);
#ifndef __CUDACC__
  } else if constexpr (N > 1) {
    return host::reduce_halves<N>(x.in_register(0), combine);
#endif
  } else {
    return x[0];
  }
}
}  // namespace detail

// Sum of all elements.
template <int N>
__device__ __forceinline__ float sum_of(const Floats<N>& x) {
  return detail::reduce_elements(x, [](auto a, auto b) { return a + b; });
}

// Greatest element. If one is NaN, the result may be NaN or the greatest of some others.
template <int N>
__device__ __forceinline__ float max_of(const Floats<N>& x) {
#ifdef __CUDACC__
  float result = x[0];
  for (int k = 1; k < N; ++k) result = std::fmax(result, x[k]);
  return result;
#else
  return detail::reduce_elements(x, [](auto a, auto b) { return a > b ? a : b; });
#endif
}

// Transposes a matrix of kRows rows in registers. 8 x 8 is fast on the host.
template <int kRows, int kColumns>
__device__ __forceinline__ void transpose(Floats<kRows> (&out)[kColumns],
                                          const Floats<kColumns> (&in)[kRows]) {
#ifndef __CUDACC__
  if constexpr (kRows == 8 && kColumns == 8 && Floats<8>::kRegisters == 1) {
    host::Simd<8>::Float rows[8], columns[8];
    for (int i = 0; i < 8; ++i) rows[i] = in[i].in_register(0);
    host::transpose_8x8(columns, rows);
    for (int i = 0; i < 8; ++i) out[i].in_register(0) = columns[i];
    return;
  }
#endif
  for (int column = 0; column < kColumns; ++column) {
    Vec<float, kRows> values;
    for (int row = 0; row < kRows; ++row) values[row] = in[row][column];
    out[column] = to_floats(values);
  }
}

}  // namespace llmc
