// Arithmetic on short vectors of floats in registers. On a GPU a thread multiplies one number at a
// time; on the host a thread of a kernel is a plain function, and a vector is one machine register.
// Compilers do not find that out by themselves for arrays of small structs, so it is said here.
#pragma once

#include <cstring>

#include "llmc/device/target.h"
#include "llmc/device/vec.h"

namespace llmc {

// sum += factor * v, element by element, in one rounding where the machine has fused multiply-add.
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
