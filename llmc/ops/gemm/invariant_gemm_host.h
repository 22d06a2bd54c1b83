// The products of inference on the host: how one is cut into pieces, which the executor's threads
// compute one by one. The pieces depend only on M, N and K, and no sum depends on the pieces.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/device/host/executor.h"
#include "llmc/ops/gemm/gemm_host_scratch.h"
#include "llmc/ops/gemm/invariant_gemm_call.h"
#include "llmc/ops/gemm/invariant_gemm_heads.h"
#include "llmc/ops/gemm/invariant_gemm_host_codes.h"
#include "llmc/ops/gemm/invariant_gemm_host_tile.h"

namespace llmc::host_rows {

// Up to this many rows, the time is that of reading the weights once.
inline constexpr std::int64_t kMaxFewRows = 16;

// inp as words of E (M, K / P), in memory of the calling thread.
template <class E, class T, class TO, class KV>
const Word* read_rows(const InvariantGemmCall<T, TO, KV>& call) {
  constexpr std::int64_t kParallelRows = 16;
  const std::int64_t words = call.K / kWordNumbers<E>;
  Word* const rows = at_least(ProductScratch::of_this_thread().row_words, call.M * words);
  const auto read = [&](std::int64_t r) { read_row_words<E>(rows + r * words, call, r); };
  if (call.M >= kParallelRows) {
    run_pieces(call.M, read);
  } else {
    for (std::int64_t r = 0; r < call.M; ++r) read(r);
  }
  return rows;
}

// A piece is a slice of k times some columns, which reads whole rows of them. The thread that
// computes the last slice of some columns adds the slices' sums.
template <class E, class T, class TO, class KV>
void multiply_few_rows(const InvariantGemmCall<T, TO, KV>& call) {
  constexpr std::int64_t kColumns = 768, P = kWordNumbers<E>;
  const std::int64_t columns =
      round_up(ceil_div(call.N, ceil_div(call.N, kColumns)), kRegisterFloats);
  const std::int64_t slices = ceil_div(call.K, kSliceDepth), ranges = ceil_div(call.N, columns);
  const std::int64_t stride = round_up(call.N, 16);
  const Word* const rows = read_rows<E>(call);
  float* const partials =
      at_least(ProductScratch::of_this_thread().partials, slices * call.M * stride);
  std::vector<std::atomic<std::int64_t>> arrivals(static_cast<std::size_t>(ranges));
  run_pieces(slices * ranges, [&](std::int64_t i) {
    const std::int64_t slice = i % slices, range = i / slices;
    const std::int64_t k = slice * kSliceDepth, column = range * columns;
    const std::int64_t n = std::min(columns, call.N - column);
    multiply_few_rows_slice<E>(partials + slice * call.M * stride + column, stride, rows + k / P,
                               call.K / P, call.M, call.weight + k * call.N + column, call.N,
                               std::min(kSliceDepth, call.K - k), n);
    if (arrivals[static_cast<std::size_t>(range)].fetch_add(1) + 1 < slices) return;
    for (std::int64_t r = 0; r < call.M; ++r) {
      float* const sums = partials + r * stride + column;
      for (std::int64_t s = 1; s < slices; ++s) {
        const float* const partial = sums + s * call.M * stride;
        for (std::int64_t j = 0; j < n; ++j) sums[j] += partial[j];
      }
      finish_columns(call, sums, r, column, n);
    }
  });
}

// inp as panels of kTileRows rows each, of which missing ones are 0. A panel is (lanes, steps,
// kTileRows), where step i of lane l is word i * lanes + l; words beyond a row's are 0. `steps` is
// the number of words / lanes, rounded up.
template <class E, class T, class TO, class KV>
const Word* pack_rows(const InvariantGemmCall<T, TO, KV>& call, std::int64_t lanes = 1) {
  const std::int64_t words = call.K / kWordNumbers<E>, steps = ceil_div(words, lanes);
  const std::int64_t panels = ceil_div(call.M, kTileRows);
  const std::int64_t panel_words = lanes * steps * kTileRows;
  Word* const packed = at_least(ProductScratch::of_this_thread().row_words, panels * panel_words);
  run_pieces(panels, [&](std::int64_t i) {
    float* const memory = at_least(ProductScratch::of_this_thread().sums, kTileRows * words);
    Word* const rows = reinterpret_cast<Word*>(memory);
    const std::int64_t first = i * kTileRows;
    for (int r = 0; r < kTileRows; ++r) {
      if (first + r < call.M) {
        read_row_words<E>(rows + r * words, call, first + r);
      } else {
        std::fill_n(rows + r * words, words, Word{0});
      }
    }
    Word* out = packed + i * panel_words;
    for (std::int64_t step = 0; step < lanes * steps; ++step) {
      const std::int64_t k = step % steps * lanes + step / steps;
      for (int r = 0; r < kTileRows; ++r) *out++ = k < words ? rows[r * words + k] : Word{0};
    }
  });
  return packed;
}

// A piece covers some columns and up to kMaxPanels panels of rows, for all of K.
template <class E, class T, class TO, class KV>
void multiply_many_rows(const InvariantGemmCall<T, TO, KV>& call) {
  constexpr std::int64_t kMaxPanels = 48;  // of a piece, whose sums should stay in the L2 cache
  constexpr std::int64_t P = kWordNumbers<E>;
  const std::int64_t panels = ceil_div(call.M, kTileRows);
  const std::int64_t blocks = ceil_div(panels, kMaxPanels);
  const std::int64_t block_panels = ceil_div(panels, blocks);
  const std::int64_t columns = call.N <= 1024 ? 2 * kTileWidth : 4 * kTileWidth;
  const std::int64_t ranges = ceil_div(call.N, columns);
  const Word* const rows = pack_rows<E>(call);
  run_pieces(blocks * ranges, [&](std::int64_t i) {
    const std::int64_t first_panel = i / ranges * block_panels, column = i % ranges * columns;
    const std::int64_t end_panel = std::min(panels, first_panel + block_panels);
    const std::int64_t n = std::min(columns, call.N - column);
    ProductScratch& scratch = ProductScratch::of_this_thread();
    Word* const weights = at_least(scratch.weight_words, kSliceDepth * columns);
    float* const sums = at_least(scratch.sums, block_panels * kTileRows * columns);
    for (std::int64_t k = 0; k < call.K; k += kSliceDepth) {
      const std::int64_t depth = std::min(kSliceDepth, call.K - k), steps = depth / P;
      if (call.codes.codes != nullptr) {
        pack_weight_codes(weights, call.codes, k, column, depth, n);
      } else {
        pack_weights<E>(weights, call.weight + k * call.N + column, call.N, depth, n);
      }
      for (std::int64_t j = 0; j < n; j += kTileWidth) {
        const Word* const packed = weights + j * steps;
        for (std::int64_t p = first_panel; p < end_panel; ++p) {
          multiply_tile<E>(sums + (p - first_panel) * kTileRows * columns + j, columns,
                           rows + (p * call.K + k) / P * kTileRows, packed, steps, k > 0);
        }
      }
    }
    const std::int64_t first = first_panel * kTileRows;
    for (std::int64_t r = first; r < std::min(call.M, end_panel * kTileRows); ++r) {
      finish_float_sums(call, sums + (r - first) * columns, r, column, n);
    }
  });
}

// A piece is some rows of the weight.
template <class E, class T, class TO, class KV>
void multiply_few_logits(const InvariantGemmCall<T, TO, KV>& call) {
  constexpr std::int64_t kColumns = 64;
  const Word* const rows = read_rows<E>(call);
  run_pieces(ceil_div(call.N, kColumns), [&](std::int64_t i) {
    const std::int64_t end = std::min(call.N, (i + 1) * kColumns);
    std::int64_t r = 0;
    const auto multiply = [&]<int kRows>() {
      for (; r + kRows <= call.M; r += kRows) {
        for (std::int64_t j = i * kColumns; j < end; ++j) {
          dot_products<E, kRows>(call.out + r * call.out_stride + j, call.out_stride,
                                 rows + r * call.K / kWordNumbers<E>, call.weight + j * call.K,
                                 call.K);
        }
      }
    };
    multiply.template operator()<8>();
    multiply.template operator()<4>();
    multiply.template operator()<1>();
  });
}

// The same for many rows: the packed rows of the weight stay in the L2 cache.
template <class E, class T, class TO, class KV>
void multiply_many_logits(const InvariantGemmCall<T, TO, KV>& call) {
  constexpr std::int64_t kColumns = 2 * kTileWidth;
  const std::int64_t steps = lane_steps(call.K / kWordNumbers<E>), all_steps = kLanes * steps;
  const Word* const rows = pack_rows<E>(call, kLanes);
  run_pieces(ceil_div(call.N, kColumns), [&](std::int64_t i) {
    const std::int64_t column = i * kColumns, n = std::min(kColumns, call.N - column);
    ProductScratch& scratch = ProductScratch::of_this_thread();
    Word* const weights = at_least(scratch.weight_words, kColumns * all_steps);
    float* const sums = at_least(scratch.sums, kLanes / 2 * kTileRows * kTileWidth);
    for (std::int64_t j = 0; j < n; j += kTileWidth) {
      pack_lanes<E>(weights + j * all_steps, call.weight + (column + j) * call.K, call.K, n - j);
    }
    for (std::int64_t r = 0; r < call.M; r += kTileRows) {
      for (std::int64_t j = 0; j < n; j += kTileWidth) {
        multiply_lanes<E>(call.out + r * call.out_stride + column + j, call.out_stride,
                          std::min<std::int64_t>(kTileRows, call.M - r),
                          std::min<std::int64_t>(kTileWidth, n - j), rows + r * all_steps,
                          weights + j * all_steps, steps, sums);
      }
    }
  });
}

template <class T, class TO, class KV>
void multiply(const InvariantGemmCall<T, TO, KV>& call) {
  using E = WordElement<T>;
  if (call.codes.codes != nullptr) {
    if (call.quantizer.enabled) return multiply_quantized_rows(call);
    return call.M <= kMaxFewRows ? multiply_few_rows_by_codes(call)
                                 : multiply_many_rows<float>(call);
  }
  if constexpr (std::is_same_v<TO, float>) {
    if (call.epilogue == RowEpilogue::logits) {
      return call.M <= kMaxFewRows ? multiply_few_logits<E>(call) : multiply_many_logits<E>(call);
    }
  }
  call.M <= kMaxFewRows ? multiply_few_rows<E>(call) : multiply_many_rows<E>(call);
}

// Writes the codes and scales of all keys and values from their sums.
template <class T, class TO>
void quantize_heads(const InvariantGemmCall<T, TO, std::int8_t>& call) {
  const auto quantize_row = [&](std::int64_t r) {
    for (std::int64_t head = 0; head < 2 * call.NH; ++head)
      quantize_head(head_of_row(call, r, head));
  };
  if (call.M >= kMaxFewRows) {
    run_pieces(call.M, quantize_row);
  } else {
    for (std::int64_t r = 0; r < call.M; ++r) quantize_row(r);
  }
}

// ---- ThreadSanitizer -----------------------------------------------------------------------

// Reports the reads and writes of the pieces, which no context of the executor runs.
template <class T, class TO, class KV>
void report_to_tsan(const InvariantGemmCall<T, TO, KV>& call) {
  if (!host::kThreadSanitizer) return;
  const auto reads = [](const auto* p, std::int64_t n) {
    if (p != nullptr) host::tsan_reads(p, static_cast<std::size_t>(n) * sizeof(*p));
  };
  const auto writes = [](auto* p, std::int64_t n) {
    host::tsan_writes(p, static_cast<std::size_t>(n) * sizeof(*p));
  };
  const bool qkv = call.epilogue == RowEpilogue::qkv;
  const std::int64_t columns = qkv ? call.C() : call.N;
  reads(call.inp, call.M * call.K);
  reads(call.norm_weight, call.K);
  reads(call.norm_bias, call.K);
  reads(call.weight, call.K * call.N);
  if (call.codes.codes != nullptr) {
    reads(call.codes.codes, code_bytes(call.K, call.N));
    reads(call.codes.scales, call.N);
    reads(call.codes.sums, call.N);
  }
  reads(call.gelu_factors, call.N);
  reads(call.bias, call.N);
  reads(call.residual, call.M * call.N);
  reads(call.slot, call.M);
  reads(call.position, qkv ? call.M : 0);
  for (std::int64_t r = 0; r < call.M; ++r) {
    writes(call.out + r * call.out_stride, columns);
    if (!qkv) continue;
    writes(call.keys + call.cache_row(r), columns);
    writes(call.values + call.cache_row(r), columns);
    if (!kIsQuantized<KV>) continue;
    writes(call.head_sums + r * 2 * columns, 2 * columns);
    writes(call.key_scales + call.cache_token(r) * call.NH, call.NH);
    writes(call.value_scales + call.cache_token(r) * call.NH, call.NH);
  }
}

}  // namespace llmc::host_rows

namespace llmc {

template <class T, class TO, class KV>
void run_invariant_gemm(const InvariantGemmCall<T, TO, KV>& call, Stream& stream) {
  if (LaunchObserver* observer = stream.observer()) observer->on_library_call("invariant GEMM");
  stream.run([call] {
    host_rows::report_to_tsan(call);
    // Scratch memory belongs to the OS thread, which all streams share.
    const host::TsanIgnoreScope bookkeeping;
    host_rows::multiply(call);
    if constexpr (kIsQuantized<KV>) host_rows::quantize_heads(call);
  });
}

}  // namespace llmc
