// Arithmetic on short vectors of floats in registers. On a GPU a thread computes one number at a
// time. On the host a kernel's thread is a plain function and can use SIMD registers. Compilers do
// not vectorise arrays of small structs by themselves, so this code uses vector types explicitly.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "llmc/device/dtype.h"
#include "llmc/device/math.h"
#include "llmc/device/target.h"
#include "llmc/device/vec.h"

namespace llmc {

// Floats in a SIMD register of the host, and the number of these registers.
#if defined(__AVX512F__)
inline constexpr int kSimdWidth = 16;
inline constexpr int kSimdRegisters = 32;
#elif defined(__AVX__)
inline constexpr int kSimdWidth = 8;
inline constexpr int kSimdRegisters = 16;
#else
inline constexpr int kSimdWidth = 4;
inline constexpr int kSimdRegisters = 16;
#endif

#ifndef __CUDACC__
namespace host {

template <int N>
struct SimdRegister {
  typedef float type __attribute__((vector_size(sizeof(float) * N)));
  typedef std::int32_t integers __attribute__((vector_size(sizeof(float) * N)));
};

template <int N>
__forceinline__ typename SimdRegister<N>::type to_register(const Vec<float, N>& v) {
  typename SimdRegister<N>::type x;
  std::memcpy(&x, &v, sizeof x);
  return x;
}

template <int N>
__forceinline__ Vec<float, N> from_register(typename SimdRegister<N>::type x) {
  Vec<float, N> v;
  std::memcpy(&v, &x, sizeof v);
  return v;
}

// 0, 1, ..., N - 1.
template <int N>
__forceinline__ typename SimdRegister<N>::integers indices() {
  typename SimdRegister<N>::integers i;
  for (int j = 0; j < N; ++j) i[j] = j;
  return i;
}

}  // namespace host
#endif

template <int N>
__device__ __forceinline__ Vec<float, N> broadcast(float x) {
#ifdef __CUDACC__
  Vec<float, N> v;
  for (int i = 0; i < N; ++i) v[i] = x;
  return v;
#else
  return host::from_register<N>(x - typename host::SimdRegister<N>::type{});
#endif
}

template <int N>
__device__ __forceinline__ Vec<float, N> operator+(const Vec<float, N>& a, const Vec<float, N>& b) {
#ifdef __CUDACC__
  Vec<float, N> v;
  for (int i = 0; i < N; ++i) v[i] = a[i] + b[i];
  return v;
#else
  return host::from_register<N>(host::to_register(a) + host::to_register(b));
#endif
}

template <int N>
__device__ __forceinline__ Vec<float, N> operator-(const Vec<float, N>& a, float b) {
#ifdef __CUDACC__
  Vec<float, N> v;
  for (int i = 0; i < N; ++i) v[i] = a[i] - b;
  return v;
#else
  return host::from_register<N>(host::to_register(a) - b);
#endif
}

template <int N>
__device__ __forceinline__ Vec<float, N> operator*(const Vec<float, N>& a, const Vec<float, N>& b) {
#ifdef __CUDACC__
  Vec<float, N> v;
  for (int i = 0; i < N; ++i) v[i] = a[i] * b[i];
  return v;
#else
  return host::from_register<N>(host::to_register(a) * host::to_register(b));
#endif
}

template <int N>
__device__ __forceinline__ Vec<float, N> operator*(const Vec<float, N>& a, float b) {
#ifdef __CUDACC__
  Vec<float, N> v;
  for (int i = 0; i < N; ++i) v[i] = a[i] * b;
  return v;
#else
  return host::from_register<N>(host::to_register(a) * b);
#endif
}

// sum += factor * v element by element, rounded once if the machine has fused multiply-add.
template <int N>
__device__ __forceinline__ void add_product(Vec<float, N>& sum, float factor,
                                            const Vec<float, N>& v) {
#ifdef __CUDACC__
  for (int i = 0; i < N; ++i) sum[i] += factor * v[i];
#else
  sum = host::from_register<N>(host::to_register(sum) + factor * host::to_register(v));
#endif
}

// The larger elements of two vectors. If only b has a NaN, the result is that of a.
template <int N>
__device__ __forceinline__ Vec<float, N> max_elements(const Vec<float, N>& a,
                                                      const Vec<float, N>& b) {
#ifdef __CUDACC__
  Vec<float, N> v;
  for (int i = 0; i < N; ++i) v[i] = std::fmax(a[i], b[i]);
  return v;
#else
  const auto x = host::to_register(a), y = host::to_register(b);
  return host::from_register<N>(y > x ? y : x);
#endif
}

// 2^x for each element.
template <int N>
__device__ __forceinline__ Vec<float, N> accurate_exp2(const Vec<float, N>& x) {
#ifdef __CUDACC__
  Vec<float, N> v;
  for (int i = 0; i < N; ++i) v[i] = accurate_exp2(x[i]);
  return v;
#else
  return host::from_register<N>(host::exp2(host::to_register(x)));
#endif
}

// Keeps the elements first .. last and replaces the others by `other`.
template <int N>
__device__ __forceinline__ Vec<float, N> keep_range(const Vec<float, N>& v, int first, int last,
                                                    float other) {
#ifdef __CUDACC__
  Vec<float, N> kept;
  for (int i = 0; i < N; ++i) kept[i] = i < first || i > last ? other : v[i];
  return kept;
#else
  const auto i = host::indices<N>();
  const auto x = host::to_register(v), others = host::to_register(broadcast<N>(other));
  return host::from_register<N>((i < first) | (i > last) ? others : x);
#endif
}

// Elements first .. first + M - 1.
template <int M, int N>
__device__ __forceinline__ Vec<float, M> elements(const Vec<float, N>& v, int first) {
  Vec<float, M> part;
  for (int i = 0; i < M; ++i) part[i] = v[first + i];
  return part;
}

// The sum of all elements and the largest one, by halves.
template <int N>
__device__ __forceinline__ float sum_of(const Vec<float, N>& v) {
  if constexpr (N == 1) {
    return v[0];
  } else {
    return sum_of(elements<N / 2>(v, 0) + elements<N / 2>(v, N / 2));
  }
}
template <int N>
__device__ __forceinline__ float max_of(const Vec<float, N>& v) {
  if constexpr (N == 1) {
    return v[0];
  } else {
    return max_of(max_elements(elements<N / 2>(v, 0), elements<N / 2>(v, N / 2)));
  }
}

// Loads N stored numbers and widens them.
template <int N, class T>
__device__ __forceinline__ Vec<float, N> load_widened(const T* p) {
  const Vec<T, N> stored = load_vec<N>(p);
  Vec<float, N> v;
  for (int i = 0; i < N; ++i) v[i] = to_float(stored[i]);
  return v;
}

// Rounds N numbers to T and stores them.
template <int N, class T>
__device__ __forceinline__ void store_rounded(T* p, const Vec<float, N>& v) {
  Vec<T, N> stored;
  for (int i = 0; i < N; ++i) stored[i] = from_float<T>(v[i]);
  store_vec(p, stored);
}

// Transposes a matrix of kRows rows in registers. 8 x 8 is fast on the host.
template <int kRows, int kColumns>
__device__ __forceinline__ void transpose(Vec<float, kRows> (&out)[kColumns],
                                          const Vec<float, kColumns> (&in)[kRows]) {
#ifndef __CUDACC__
  if constexpr (kRows == 8 && kColumns == 8) {
    // Merges single elements of rows i and i + 1, then pairs of i and i + 2, then halves.
    host::SimdRegister<8>::type a[8], b[8];
    for (int i = 0; i < 8; ++i) a[i] = host::to_register(in[i]);
    for (int i = 0; i < 8; i += 2) {
      b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
      b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; i += 4) {
      for (int j = 0; j < 2; ++j) {
        const auto x = b[i + j], y = b[i + j + 2];
        a[i + 2 * j] = __builtin_shufflevector(x, y, 0, 1, 8, 9, 4, 5, 12, 13);
        a[i + 2 * j + 1] = __builtin_shufflevector(x, y, 2, 3, 10, 11, 6, 7, 14, 15);
      }
    }
    for (int i = 0; i < 4; ++i) {
      const auto x = a[i], y = a[i + 4];
      out[i] = host::from_register<8>(__builtin_shufflevector(x, y, 0, 1, 2, 3, 8, 9, 10, 11));
      out[i + 4] =
          host::from_register<8>(__builtin_shufflevector(x, y, 4, 5, 6, 7, 12, 13, 14, 15));
    }
    return;
  }
#endif
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) out[column][row] = in[row][column];
  }
}

}  // namespace llmc
