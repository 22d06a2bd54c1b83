// Library for LD_PRELOAD that makes oneDNN's fp32 matrix products slow or wrong, and prints their
// number at the end. Environment: GEMM_SLEEP_US: microseconds that each product takes longer;
// GEMM_NAN_AT: the number of the product, from 1 on, whose first element becomes NaN.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>

namespace {

long number_of(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? 0 : std::atol(text);
}

std::atomic<long> num_calls{0};

__attribute__((destructor)) void print_calls() {
  const long calls = num_calls;
  if (calls > 0) std::fprintf(stderr, "gemm_faults: %ld products\n", calls);
}

}  // namespace

extern "C" int dnnl_sgemm(char transpose_a, char transpose_b, std::int64_t m, std::int64_t n,
                          std::int64_t k, float alpha, const float* a, std::int64_t lda,
                          const float* b, std::int64_t ldb, float beta, float* c,
                          std::int64_t ldc) {
  static const auto product =
      reinterpret_cast<decltype(&dnnl_sgemm)>(dlsym(RTLD_NEXT, "dnnl_sgemm"));
  static const long sleep_us = number_of("GEMM_SLEEP_US"), nan_at = number_of("GEMM_NAN_AT");
  if (sleep_us > 0) usleep(static_cast<useconds_t>(sleep_us));
  const int status =
      product(transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  if (++num_calls == nan_at) c[0] = std::numeric_limits<float>::quiet_NaN();
  return status;
}
