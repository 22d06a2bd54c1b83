// Matrix products on the host: OpenBLAS, the one operation that exists for the host alone. Half
// precision is widened to fp32, multiplied in fp32 and rounded once, as tensor cores do.
#pragma once

#include <cblas.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/device/host/executor.h"
#include "llmc/ops/gemm.h"

namespace llmc {

class Gemm {
 public:
  // TF32 is a GPU's format; the host always multiplies in fp32.
  explicit Gemm(bool /*allow_tf32*/ = false) : scratch_(std::make_shared<Scratch>()) {}

  template <class TO, class TI>
  void run(const GemmCall<TO, TI>& call, Stream& stream) {
    check_gemm(call);
    // The scratch is shared with work still in the stream, which may outlive this object.
    stream.run([call, scratch = scratch_] { compute(call, *scratch); });
  }

 private:
  struct Scratch {
    std::vector<float> a, b, c;
  };

  template <class TO, class TI>
  static void compute(const GemmCall<TO, TI>& call, Scratch& scratch) {
    observe(call);
    const float* a = widened(call.a, call.m * call.k, scratch.a);
    const float* b = widened(call.b, call.k * call.n, scratch.b);
    float beta = call.beta;
    float* c = start_of_output(call, scratch, beta);
    const int m = static_cast<int>(call.m), n = static_cast<int>(call.n),
              k = static_cast<int>(call.k);
    cblas_sgemm(CblasRowMajor, call.transpose_a ? CblasTrans : CblasNoTrans,
                call.transpose_b ? CblasTrans : CblasNoTrans, m, n, k, call.alpha, a,
                call.transpose_a ? m : k, b, call.transpose_b ? k : n, beta, c, n);
    if constexpr (!std::is_same_v<TO, float>) {
      in_parallel(call.m * call.n, [&](std::int64_t i) { call.c[i] = from_float<TO>(c[i]); });
    }
  }

  // Where fp32 results go. A bias (which excludes beta) is put there first and added to.
  template <class TO, class TI>
  static float* start_of_output(const GemmCall<TO, TI>& call, Scratch& scratch, float& beta) {
    float* c = nullptr;
    if constexpr (std::is_same_v<TO, float>) {
      c = call.c;
    } else {
      scratch.c.resize(static_cast<std::size_t>(call.m * call.n));
      c = scratch.c.data();
      if (beta != 0)
        in_parallel(call.m * call.n, [&](std::int64_t i) { c[i] = to_float(call.c[i]); });
    }
    if (call.bias == nullptr) return c;
    for (std::int64_t j = 0; j < call.n; ++j) c[j] = to_float(call.bias[j]);
    for (std::int64_t i = 1; i < call.m; ++i) std::copy(c, c + call.n, c + i * call.n);
    beta = 1;
    return c;
  }

  template <class T>
  static const float* widened(const T* values, std::int64_t count, std::vector<float>& scratch) {
    if constexpr (std::is_same_v<T, float>) {
      return values;
    } else {
      scratch.resize(static_cast<std::size_t>(
          std::max<std::int64_t>(count, static_cast<std::int64_t>(scratch.size()))));
      in_parallel(count, [&](std::int64_t i) { scratch[i] = to_float(values[i]); });
      return scratch.data();
    }
  }

  template <class Element>
  static void in_parallel(std::int64_t count, Element&& element) {
    constexpr std::int64_t kPiece = 1 << 16;
    host::WorkerPool::instance().run(ceil_div(count, kPiece), [&](std::int64_t piece) {
      const std::int64_t end = std::min(count, (piece + 1) * kPiece);
      for (std::int64_t i = piece * kPiece; i < end; ++i) element(i);
    });
  }

  // The library is not instrumented: tell the race checker what it will touch.
  template <class TO, class TI>
  static void observe(const GemmCall<TO, TI>& call) {
    host::tsan_reads(call.a, static_cast<std::size_t>(call.m * call.k) * sizeof(TI));
    host::tsan_reads(call.b, static_cast<std::size_t>(call.k * call.n) * sizeof(TI));
    host::tsan_writes(call.c, static_cast<std::size_t>(call.m * call.n) * sizeof(TO));
  }

  std::shared_ptr<Scratch> scratch_;
};

}  // namespace llmc
