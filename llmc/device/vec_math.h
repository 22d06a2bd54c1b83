// Arithmetic on short vectors of floats in registers. On a GPU a thread multiplies one number at a
// time. On the host a kernel's thread is a plain function and can use SIMD registers. Compilers do
// not vectorise arrays of small structs by themselves, so this code uses vector types explicitly.
#pragma once

#include <cstring>

#include "llmc/device/target.h"
#include "llmc/device/vec.h"

namespace llmc {

// sum += factor * v element by element, rounded once if the machine has fused multiply-add.
template <int N>
__device__ __forceinline__ void add_product(Vec<float, N>& sum, float factor,
                                            const Vec<float, N>& v) {
#ifdef __CUDACC__
  for (int i = 0; i < N; ++i) sum[i] += factor * v[i];
#else
  typedef float Register __attribute__((vector_size(sizeof(float) * N)));
  Register s;
  Register x;
  std::memcpy(&s, &sum, sizeof s);
  std::memcpy(&x, &v, sizeof x);
  s += factor * x;
  std::memcpy(&sum, &s, sizeof s);
#endif
}

}  // namespace llmc
