// Matrix products on the host: the only operation that has its own source for the host. The library
// (device/host/matrix_library.h) multiplies tiles; gemm_host_tile.h has what happens to one tile.
//
// A product is cut into tiles, which the executor's threads compute one by one. The tiles depend
// only on the sizes of the product, so results do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

#include "llmc/device/device.h"
#include "llmc/device/host/executor.h"
#include "llmc/device/host/library_access.h"
#include "llmc/device/workers.h"
#include "llmc/ops/gemm/gemm.h"
#include "llmc/ops/gemm/gemm_host_rows.h"
#include "llmc/ops/gemm/gemm_host_tile.h"

namespace llmc {

class Gemm {
 public:
  // The options apply only to cuBLASLt; the host has one way to multiply.
  explicit Gemm(const GemmOptions& /*options*/ = {}) {}

  template <class TO, class TI>
  void run(const GemmCall<TO, TI>& call, Stream& stream) {
    check_gemm(call);
    if (LaunchObserver* observer = stream.observer()) observer->on_library_call("matrix product");
    stream.run([call] { compute(call); });
  }

  // The library has one algorithm for a product and does not report its name.
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
  template <class TO, class TI>
  static void compute(const GemmCall<TO, TI>& call) {
    report_accesses(call);
    // Scratch memory and the library's objects belong to the OS thread, which all streams share.
    const host::TsanIgnoreScope bookkeeping;
    if (call.m <= kMaxFewRows) return multiply_few_rows(call);
    const Tiling tiling = choose_tiling(call);
    workers().run(tiling.count(), [&](std::int64_t i) {
      multiply_tile(call, part_range(call.m, tiling.rows, i / tiling.columns),
                    part_range(call.n, tiling.columns, i % tiling.columns));
    });
  }

  struct Tiling {
    std::int64_t rows = 1, columns = 1;  // numbers of tiles
    std::int64_t count() const { return rows * columns; }
  };

  // A tile packs its share of both operands, so the smaller k, the larger the tile must be for the
  // packing to be a small part of its work. Sums in scratch memory should stay in the L2 cache.
  // Small products are cut further, into at least four tiles if each still has enough work to be
  // worth waking a thread.
  template <class TO, class TI>
  static Tiling choose_tiling(const GemmCall<TO, TI>& call) {
    constexpr std::int64_t kTileWork = std::int64_t{1} << 27;  // multiply-adds
    constexpr std::int64_t kMinWork = std::int64_t{1} << 20;   // about 20 us
    constexpr std::int64_t kMinTiles = 4, kManyTiles = 16;
    // Products of gradients with few tokens, which read and write more of c than of a and b.
    constexpr std::int64_t kSmallDepth = 384;
    const bool large = std::is_same_v<TO, float> && call.k <= kSmallDepth;
    const std::int64_t max_area = large ? 1 << 20 : 1 << 17;
    const std::int64_t area = std::clamp<std::int64_t>(kTileWork / call.k, 96 << 10, max_area);
    std::int64_t rows = std::min<std::int64_t>(call.m, large ? 1024 : 256);
    if (packs_transposed(call)) rows = std::min(rows, max_transposed_rows(call.k));
    Tiling tiling{ceil_div(call.m, rows),
                  ceil_div(call.n, std::max<std::int64_t>(area / rows, 16))};
    // bf16 sums are only added directly to whole rows.
    const bool whole_rows = std::is_same_v<TO, float> && packs_transposed(call);
    if (whole_rows) tiling.columns = 1;
    const double work =
        static_cast<double>(call.m) * static_cast<double>(call.n) * static_cast<double>(call.k);
    while (tiling.count() < kMinTiles &&
           work >= static_cast<double>(2 * kMinWork * tiling.count())) {
      const bool cut_rows = whole_rows || call.m / tiling.rows > call.n / tiling.columns;
      (cut_rows ? tiling.rows : tiling.columns) *= 2;
    }
    // Few tiles are shared evenly by two or four threads if they are a multiple of four.
    while (tiling.count() > kMinTiles && tiling.count() < kManyTiles && tiling.count() % 4 != 0) {
      ++(whole_rows ? tiling.rows : tiling.columns);
    }
    return tiling;
  }

  // Range i of `size` elements cut into `parts` ranges, at multiples of the vector length.
  static IndexRange part_range(std::int64_t size, std::int64_t parts, std::int64_t i) {
    const std::int64_t length = round_up(ceil_div(size, parts), 16);
    const std::int64_t first = std::min(size, i * length);
    return {first, std::min(length, size - first)};
  }

  // The library is not instrumented, so this reports its reads and writes to ThreadSanitizer.
  template <class TO, class TI>
  static void report_accesses(const GemmCall<TO, TI>& call) {
    host::library_reads(call.a, static_cast<std::size_t>(call.m * call.k) * sizeof(TI));
    host::library_reads(call.b, static_cast<std::size_t>(call.k * call.n) * sizeof(TI));
    const std::size_t result_bytes = static_cast<std::size_t>(call.m * call.n) * sizeof(TO);
    if (call.beta != 0) host::library_reads(call.addend_or_c(), result_bytes);
    if (call.bias != nullptr) {
      host::library_reads(call.bias, static_cast<std::size_t>(call.n) * sizeof(TI));
    }
    if (call.epilogue == Epilogue::gelu) host::library_writes(call.aux, result_bytes);
    if (call.epilogue == Epilogue::gelu_backward) host::library_reads(call.aux, result_bytes);
    host::library_writes(call.c, result_bytes);
  }
};

inline GemmOptions training_gemm_options(bool allow_tf32 = false) {
  return {.allow_tf32 = allow_tf32};
}

}  // namespace llmc
