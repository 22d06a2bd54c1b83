// Arithmetic on short vectors of floats, element by element. On a GPU it is a loop over the
// elements, which the compiler unrolls. On the host it uses SIMD registers explicitly: whether
// compilers vectorise such loops by themselves depends on details of the code around them.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "llmc/device/dtype.h"
#include "llmc/device/math.h"
#include "llmc/device/target.h"
#include "llmc/device/vec.h"

namespace llmc {

namespace detail {
#if defined(__CUDACC__)
inline constexpr int kFloatsPerRegister = 1;
#elif defined(__AVX__)
inline constexpr int kFloatsPerRegister = 8;
#else
inline constexpr int kFloatsPerRegister = 4;
#endif

// A register's type: Float<1> is float, Float<W> a vector of W floats. Bits and Half hold as many
// unsigned numbers of 32 and 16 bits.
template <int W>
struct Simd {
#ifndef __CUDACC__
  typedef float Float __attribute__((vector_size(4 * W)));
  typedef std::uint32_t Bits __attribute__((vector_size(4 * W)));
  typedef std::uint16_t Half __attribute__((vector_size(2 * W)));
#endif
};
template <>
struct Simd<1> {
  using Float = float;
  using Bits = std::uint32_t;
  using Half = std::uint16_t;
};
}  // namespace detail

// N floats in registers; N is 1, or a multiple of 4.
template <int N>
class Floats {
 public:
  static constexpr int kWidth =
      N % detail::kFloatsPerRegister == 0 ? detail::kFloatsPerRegister : (N % 4 == 0 ? 4 : 1);
  static constexpr int kRegisters = N / kWidth;
  using Register = typename detail::Simd<kWidth>::Float;

  // All elements are x.
  __device__ __forceinline__ explicit Floats(float x = 0.0f) {
    for (int i = 0; i < kRegisters; ++i) registers_[i] = Register{} + x;
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
  __device__ __forceinline__ friend Floats operator+(const Floats& x, float y) {
    return x + Floats(y);
  }
  __device__ __forceinline__ friend Floats operator-(const Floats& x, float y) {
    return x - Floats(y);
  }
  __device__ __forceinline__ friend Floats operator*(float x, const Floats& y) {
    return Floats(x) * y;
  }

 private:
  Register registers_[kRegisters];
};

namespace detail {
#ifndef __CUDACC__
template <class To, class From>
__forceinline__ To bit_cast_vector(const From& x) {
  static_assert(sizeof(To) == sizeof(From));
  To y;
  std::memcpy(&y, &x, sizeof y);
  return y;
}

// W stored numbers as floats; the same results as to_float (dtype.h).
template <int W>
__forceinline__ typename Simd<W>::Float load_register(const float* p) {
  typename Simd<W>::Float x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
template <int W>
__forceinline__ typename Simd<W>::Bits load_bits(const void* p) {
  typename Simd<W>::Half half;
  std::memcpy(&half, p, sizeof half);
  return __builtin_convertvector(half, typename Simd<W>::Bits);
}
template <int W>
__forceinline__ typename Simd<W>::Float load_register(const bf16* p) {
  return bit_cast_vector<typename Simd<W>::Float>(load_bits<W>(p) << 16);
}
template <int W>
__forceinline__ typename Simd<W>::Float load_register(const fp16* p) {
  using Float = typename Simd<W>::Float;
  using Bits = typename Simd<W>::Bits;
  const Bits bits = load_bits<W>(p);
  const Bits sign = (bits & 0x8000u) << 16;
  const Bits magnitude = (bits & 0x7fffu) << 13;
  const Bits normal =
      magnitude + (magnitude >= 0x0f800000u ? Bits{} + (224u << 23) : Bits{} + (112u << 23));
  const Bits subnormal =
      bit_cast_vector<Bits>(bit_cast_vector<Float>(magnitude + (113u << 23)) - 0x1p-14f);
  return bit_cast_vector<Float>(sign | (magnitude < 0x00800000u ? subnormal : normal));
}

// Rounds W floats as from_float<T> does.
template <int W>
__forceinline__ void store_register(float* p, const typename Simd<W>::Float& x) {
  std::memcpy(p, &x, sizeof x);
}
template <int W>
__forceinline__ void store_bits(void* p, const typename Simd<W>::Bits& bits) {
  const auto half = __builtin_convertvector(bits, typename Simd<W>::Half);
  std::memcpy(p, &half, sizeof half);
}
template <int W>
__forceinline__ void store_register(bf16* p, const typename Simd<W>::Float& x) {
  using Bits = typename Simd<W>::Bits;
  const Bits bits = bit_cast_vector<Bits>(x);
  const Bits rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  store_bits<W>(p, x == x ? rounded : (bits >> 16) | 0x40u);
}
template <int W>
__forceinline__ void store_register(fp16* p, const typename Simd<W>::Float& x) {
  using Bits = typename Simd<W>::Bits;
  const Bits bits = bit_cast_vector<Bits>(x);
  const Bits magnitude = bits & 0x7fffffffu;
  const Bits rebiased = magnitude - (112u << 23);
  const Bits normal = (rebiased + 0xfffu + (rebiased >> 13 & 1u)) >> 13;
  const Bits finite = normal < 0x7c00u ? normal : Bits{} + 0x7c00u;
  const Bits subnormal =
      bit_cast_vector<Bits>(bit_cast_vector<typename Simd<W>::Float>(magnitude) + 0.5f) -
      0x3f000000u;
  const Bits result = magnitude < 0x38800000u ? subnormal : finite;
  store_bits<W>(p, (bits >> 16 & 0x8000u) | (x == x ? result : Bits{} + 0x7e00u));
}
#endif
}  // namespace detail

// The N numbers at p, which is aligned as for load_vec.
template <int N, class T>
__device__ __forceinline__ Floats<N> load_floats(const T* p) {
  Floats<N> x;
#ifdef __CUDACC__
  const Vec<T, N> v = load_vec<N>(p);
  for (int k = 0; k < N; ++k) x.in_register(k) = to_float(v[k]);
#else
  constexpr int W = Floats<N>::kWidth;
  for (int i = 0; i < Floats<N>::kRegisters; ++i)
    x.in_register(i) = detail::load_register<W>(p + i * W);
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
  for (int i = 0; i < Floats<N>::kRegisters; ++i)
    detail::store_register<W>(p + i * W, x.in_register(i));
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

// f(element, its index) of each element. On the host, compilers vectorise the loop over one
// register if f has no branches and no calls.
template <int N, class F>
__device__ __forceinline__ Floats<N> transform(const Floats<N>& x, F f) {
  Floats<N> y;
#ifdef __CUDACC__
  for (int k = 0; k < N; ++k) y.in_register(k) = f(x[k], k);
#else
  constexpr int W = Floats<N>::kWidth;
  for (int i = 0; i < Floats<N>::kRegisters; ++i) {
    float values[W];
    std::memcpy(values, &x.in_register(i), sizeof values);
    for (int k = 0; k < W; ++k) values[k] = f(values[k], i * W + k);
    std::memcpy(&y.in_register(i), values, sizeof values);
  }
#endif
  return y;
}

// Reduces all elements to one: registers, then the elements of a register, both in pairs.
template <int N, class Combine>
__device__ __forceinline__ float reduce_elements(const Floats<N>& x, Combine combine) {
  constexpr int W = Floats<N>::kWidth, kRegisters = Floats<N>::kRegisters;
  if constexpr (kRegisters > 1) {
    static_assert(kRegisters % 2 == 0);
    Floats<N / 2> half;
    for (int i = 0; i < kRegisters / 2; ++i)
      half.in_register(i) = combine(x.in_register(i), x.in_register(i + kRegisters / 2));
    return reduce_elements(half, combine);
  } else if constexpr (W == 1) {
    return x[0];
  } else {
    const float a = combine(x[0], x[W / 2]), b = combine(x[1], x[W / 2 + 1]);
    if constexpr (W == 4) return combine(a, b);
    const float c = combine(x[2], x[W / 2 + 2]), d = combine(x[3], x[W / 2 + 3]);
    return combine(combine(a, c), combine(b, d));
  }
}

// Sum of all elements.
template <int N>
__device__ __forceinline__ float sum_of(const Floats<N>& x) {
  return reduce_elements(x, [](auto a, auto b) { return a + b; });
}

// Greatest element. If one is NaN, the result may be NaN or the greatest of some others.
template <int N>
__device__ __forceinline__ float max_of(const Floats<N>& x) {
#ifdef __CUDACC__
  float result = x[0];
  for (int k = 1; k < N; ++k) result = std::fmax(result, x[k]);
  return result;
#else
  return reduce_elements(x, [](auto a, auto b) { return a > b ? a : b; });
#endif
}

}  // namespace llmc
