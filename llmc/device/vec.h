// Short vectors of stored numbers: the unit of a memory access. 16 bytes is the widest access of a
// thread up to sm_90, and memory-bound kernels need it to reach the copy bandwidth.
#pragma once

#include <cstddef>
#include <cstdint>

#include "llmc/device/dtype.h"
#include "llmc/device/target.h"
#ifndef __CUDACC__
#include "llmc/device/host/alignment.h"
#endif

namespace llmc {

template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vec {
  static_assert((N & (N - 1)) == 0, "vector lengths are powers of two");
  T values[N];
  __host__ __device__ T& operator[](int i) { return values[i]; }
  __host__ __device__ const T& operator[](int i) const { return values[i]; }
};

template <class T>
inline constexpr int kVecSize = 16 / static_cast<int>(sizeof(T));

namespace detail {
// Machine type of one memory access of `Bytes` bytes.
template <int Bytes>
struct Word;
#ifdef __CUDACC__
template <>
struct Word<16> {
  using type = int4;
};
template <>
struct Word<8> {
  using type = int2;
};
#endif
template <>
struct Word<4> {
  using type = std::uint32_t;
};
template <>
struct Word<2> {
  using type = std::uint16_t;
};

// On the host, reports a vector of N elements at p that is not aligned as load_vec needs it.
template <class T, int N>
__host__ __device__ __forceinline__ void check_vector([[maybe_unused]] const T* p) {
#ifndef __CUDACC__
  // Other lengths exist only in code for CPUs.
  if constexpr ((N & (N - 1)) == 0) host::check_aligned(p, sizeof(T) * N, alignof(Vec<T, N>));
#endif
}
}  // namespace detail

// `p` must be aligned to the vector's size, or to 16 bytes for larger vectors.
template <int N, class T>
__host__ __device__ __forceinline__ Vec<T, N> load_vec(const T* p) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) * N <= 16) {
    using W = typename detail::Word<sizeof(T) * N>::type;
    Vec<T, N> v;
    *reinterpret_cast<W*>(&v) = *reinterpret_cast<const W*>(p);
    return v;
  }
#endif
  detail::check_vector<T, N>(p);
  return *reinterpret_cast<const Vec<T, N>*>(p);
}

template <class T, int N>
__host__ __device__ __forceinline__ void store_vec(T* p, const Vec<T, N>& v) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) * N <= 16) {
    using W = typename detail::Word<sizeof(T) * N>::type;
    *reinterpret_cast<W*>(p) = *reinterpret_cast<const W*>(&v);
    return;
  }
#endif
  detail::check_vector<T, N>(p);
  *reinterpret_cast<Vec<T, N>*>(p) = v;
}

// For data that is read or written only once and should not evict other data from the caches.
template <int N, class T>
__device__ __forceinline__ Vec<T, N> load_streaming(const T* p) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) * N == 16) {
    Vec<T, N> v;
    *reinterpret_cast<int4*>(&v) = __ldcs(reinterpret_cast<const int4*>(p));
    return v;
  }
#endif
  return load_vec<N>(p);
}

template <class T, int N>
__device__ __forceinline__ void store_streaming(T* p, const Vec<T, N>& v) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) * N == 16) {
    __stcs(reinterpret_cast<int4*>(p), *reinterpret_cast<const int4*>(&v));
    return;
  }
#endif
  store_vec(p, v);
}

// Starts to read the cache line at p, for a load that follows later. On a GPU, p must be allocated;
// on the host it may be any address.
__host__ __device__ __forceinline__ void prefetch_line(const void* p) {
#ifdef __CUDA_ARCH__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#else
  __builtin_prefetch(p);
#endif
}

}  // namespace llmc
