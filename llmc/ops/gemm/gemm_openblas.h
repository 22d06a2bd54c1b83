// Matrix products on the host with OpenBLAS: the only operation that has its own source for the
// host. Half precision is widened to fp32, multiplied in fp32 and rounded once, as tensor cores do.
//
// The result is cut into tiles for the executor's own threads, each of which calls the library with
// one thread. The library's own threads spin for a while after every product and would compete with
// the executor's threads for the same cores.
#pragma once

#include <cblas.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/device/host/executor.h"
#include "llmc/ops/gelu.h"
#include "llmc/ops/gemm/gemm.h"

namespace llmc {

class Gemm {
 public:
  // The options apply only to cuBLASLt; the host has one way to multiply, in fp32.
  explicit Gemm(const GemmOptions& /*options*/ = {}) : scratch_(std::make_shared<Scratch>()) {
    openblas_set_num_threads(1);
  }

  template <class TO, class TI>
  void run(const GemmCall<TO, TI>& call, Stream& stream) {
    check_gemm(call);
    // Work in the stream shares the scratch and may outlive this object.
    stream.run([call, scratch = scratch_] { compute(call, *scratch); });
  }

  // OpenBLAS has one algorithm for a product and does not report its name.
  template <class TO, class TI>
  int num_proposals(const GemmCall<TO, TI>& call) const {
    check_gemm(call);
    return 1;
  }
  template <class TO, class TI>
  std::string algorithm_text(const GemmCall<TO, TI>& call) const {
    check_gemm(call);
    return {};
  }

 private:
  static constexpr std::int64_t kChunk = 1 << 16;  // elements that a thread processes at once

  struct Scratch {
    std::vector<float> a, b, c, bias;
  };

  template <class TO, class TI>
  static void compute(const GemmCall<TO, TI>& call, Scratch& scratch) {
    report_to_tsan(call);
    const float* a = widen_to_fp32(call.a, call.m * call.k, scratch.a);
    const float* b = widen_to_fp32(call.b, call.k * call.n, scratch.b);
    float beta = call.beta;
    float* c = prepare_sums(call, scratch, beta);
    const Tiling tiling = choose_tiling(call.m, call.n, call.k);
    host::WorkerPool::instance().run(tiling.rows * tiling.columns, [&](std::int64_t i) {
      multiply_tile(call, a, b, beta, c, part_range(call.m, tiling.rows, i / tiling.columns),
                    part_range(call.n, tiling.columns, i % tiling.columns));
    });
    apply_epilogue(call, c);
  }

  struct Tiling {
    std::int64_t rows = 1, columns = 1;  // numbers of tiles
  };
  struct IndexRange {
    std::int64_t first, count;
  };

  // One tile per thread, as square as possible, because a tile packs its share of both operands.
  // Small products have fewer tiles, because waking a thread costs time.
  static Tiling choose_tiling(std::int64_t m, std::int64_t n, std::int64_t k) {
    constexpr double kMinWorkPerThread = 1 << 20;  // multiply-adds: about 20 us
    const double work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    const std::int64_t threads = std::min<std::int64_t>(
        host::WorkerPool::instance().threads(),
        std::max<std::int64_t>(1, static_cast<std::int64_t>(work / kMinWorkPerThread)));
    Tiling best{threads, 1};
    for (std::int64_t rows = 1; rows <= threads; ++rows) {
      if (threads % rows != 0) continue;
      const Tiling next{rows, threads / rows};
      if (m / next.rows + n / next.columns < m / best.rows + n / best.columns) best = next;
    }
    return best;
  }

  // Range i of `size` elements cut into `parts` ranges, at multiples of the vector length.
  static IndexRange part_range(std::int64_t size, std::int64_t parts, std::int64_t i) {
    const std::int64_t length = round_up(ceil_div(size, parts), 16);
    const std::int64_t first = std::min(size, i * length);
    return {first, std::min(length, size - first)};
  }

  template <class Call>
  static void multiply_tile(const Call& call, const float* a, const float* b, float beta, float* c,
                            IndexRange rows, IndexRange columns) {
    if (rows.count == 0 || columns.count == 0) return;
    const auto size = [](std::int64_t n) { return static_cast<int>(n); };
    const std::int64_t lda = call.transpose_a ? call.m : call.k;
    const std::int64_t ldb = call.transpose_b ? call.k : call.n;
    b += columns.first * (call.transpose_b ? ldb : 1);
    c += rows.first * call.n + columns.first;
    if (call.m == 1) {  // for a vector, sgemm would first copy all of b
      cblas_sgemv(CblasRowMajor, call.transpose_b ? CblasNoTrans : CblasTrans,
                  size(call.transpose_b ? columns.count : call.k),
                  size(call.transpose_b ? call.k : columns.count), call.alpha, b, size(ldb), a, 1,
                  beta, c, 1);
      return;
    }
    cblas_sgemm(CblasRowMajor, call.transpose_a ? CblasTrans : CblasNoTrans,
                call.transpose_b ? CblasTrans : CblasNoTrans, size(rows.count), size(columns.count),
                size(call.k), call.alpha, a + rows.first * (call.transpose_a ? 1 : lda), size(lda),
                b, size(ldb), beta, c, size(call.n));
  }

  // Returns the fp32 buffer of the results. Stores the bias and beta · addend in it first and sets
  // beta to 1, unless there are none or the library can add beta · c itself.
  template <class TO, class TI>
  static float* prepare_sums(const GemmCall<TO, TI>& call, Scratch& scratch, float& beta) {
    float* c = nullptr;
    if constexpr (std::is_same_v<TO, float>) {
      c = call.c;
      if (call.bias == nullptr && (beta == 0 || call.addend_or_c() == c)) return c;
    } else {
      scratch.c.resize(static_cast<std::size_t>(call.m * call.n));
      c = scratch.c.data();
      if (call.bias == nullptr && beta == 0) return c;
    }
    scratch.bias.assign(static_cast<std::size_t>(call.n), 0.0f);
    if (call.bias != nullptr) {
      for (std::int64_t j = 0; j < call.n; ++j) scratch.bias[j] = to_float(call.bias[j]);
    }
    const float* bias = scratch.bias.data();
    const std::int64_t rows = ceil_div(kChunk, call.n);  // rows per chunk
    host::WorkerPool::instance().run(ceil_div(call.m, rows), [&](std::int64_t chunk) {
      for (std::int64_t r = chunk * rows; r < std::min(call.m, (chunk + 1) * rows); ++r) {
        float* row = c + r * call.n;
        if (call.beta == 0) {
          std::copy(bias, bias + call.n, row);
          continue;
        }
        const TO* addend = call.addend_or_c() + r * call.n;  // may be the same memory as `row`
        for (std::int64_t j = 0; j < call.n; ++j)
          row[j] = call.beta * to_float(addend[j]) + bias[j];
      }
    });
    beta = 1;
    return c;
  }

  // Applies the epilogue to the fp32 sums and rounds the result to TO.
  template <class TO, class TI>
  static void apply_epilogue(const GemmCall<TO, TI>& call, float* c) {
    if (std::is_same_v<TO, float> && call.epilogue == Epilogue::none) return;
    parallel_for(call.m * call.n, [&](std::int64_t i) {
      float value = c[i];
      if (call.epilogue == Epilogue::gelu) {
        call.aux[i] = from_float<TO>(value);
        value *= gelu_gate<TO>(value);
      } else if (call.epilogue == Epilogue::gelu_backward) {
        value *= gelu_derivative<TO>(to_float(call.aux[i]));
      }
      call.c[i] = from_float<TO>(value);
    });
  }

  template <class T>
  static const float* widen_to_fp32(const T* values, std::int64_t count,
                                    std::vector<float>& scratch) {
    if constexpr (std::is_same_v<T, float>) {
      return values;
    } else {
      scratch.resize(static_cast<std::size_t>(
          std::max<std::int64_t>(count, static_cast<std::int64_t>(scratch.size()))));
      parallel_for(count, [&](std::int64_t i) { scratch[i] = to_float(values[i]); });
      return scratch.data();
    }
  }

  template <class Element>
  static void parallel_for(std::int64_t count, Element&& element) {
    host::WorkerPool::instance().run(ceil_div(count, kChunk), [&](std::int64_t chunk) {
      const std::int64_t end = std::min(count, (chunk + 1) * kChunk);
      for (std::int64_t i = chunk * kChunk; i < end; ++i) element(i);
    });
  }

  // The library is not instrumented, so this reports its reads and writes to ThreadSanitizer.
  template <class TO, class TI>
  static void report_to_tsan(const GemmCall<TO, TI>& call) {
    host::tsan_reads(call.a, static_cast<std::size_t>(call.m * call.k) * sizeof(TI));
    host::tsan_reads(call.b, static_cast<std::size_t>(call.k * call.n) * sizeof(TI));
    const std::size_t result_bytes = static_cast<std::size_t>(call.m * call.n) * sizeof(TO);
    if (call.beta != 0) host::tsan_reads(call.addend_or_c(), result_bytes);
    if (call.bias != nullptr) {
      host::tsan_reads(call.bias, static_cast<std::size_t>(call.n) * sizeof(TI));
    }
    if (call.epilogue == Epilogue::gelu) host::tsan_writes(call.aux, result_bytes);
    if (call.epilogue == Epilogue::gelu_backward) host::tsan_reads(call.aux, result_bytes);
    host::tsan_writes(call.c, result_bytes);
  }

  std::shared_ptr<Scratch> scratch_;
};

}  // namespace llmc
