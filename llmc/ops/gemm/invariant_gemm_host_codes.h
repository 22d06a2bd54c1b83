// The products of inference on the host with INT8 weights.
//
// w8a8: rows become unsigned codes (code + 128), packed in panels of up to kCodePanelRows rows, and
// the sums over codes are integers, so their order is free. w8: rows stay floats, and the sums have
// the order of the products of float weights (invariant_gemm_host_tile.h). A piece of work is 64
// columns and all terms.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "llmc/device/device.h"
#include "llmc/device/host/simd_codes.h"
#include "llmc/ops/elementwise.h"
#include "llmc/ops/gemm/gemm_host_scratch.h"
#include "llmc/ops/gemm/invariant_gemm_call.h"
#include "llmc/ops/gemm/invariant_gemm_host_tile.h"
#include "llmc/ops/layernorm_row.h"

namespace llmc::host_rows {

inline constexpr int kPieceColumns = 4 * kCodeColumns;
inline constexpr int kCodePanelRows = kFloatRegisters >= 32 ? 12 : 4;
inline constexpr int kRunTerms = 16;  // neighbouring codes of a row in a panel
inline constexpr std::int32_t kUnsignedOffset = 128;

// ---- epilogue ------------------------------------------------------------------------------

// The scales and the bias of the columns of a piece.
struct PieceColumns {
  alignas(64) float scales[kPieceColumns];
  alignas(64) float bias[kPieceColumns];

  template <class Call>
  PieceColumns(const Call& call, std::int64_t column) {
    for (int j = 0; j < kPieceColumns; ++j) {
      scales[j] = column + j < call.N ? call.codes.scales[column + j] : 0;
      bias[j] = call.bias != nullptr && column + j < call.N ? to_float(call.bias[column + j]) : 0;
    }
  }
};

// ---- rows as codes -------------------------------------------------------------------------

// Calls f<N>() with the width of the vectors in which a row of K numbers is read.
template <class F>
void with_vector_width(std::int64_t K, const F& f) {
  K % 16 == 0 ? f.template operator()<16>() : f.template operator()<8>();
}

// out (K) = row r as training's LayerNorm computes it, or as it is, rounded to T.
template <class T, class TO, class KV>
const T* normalised_row(T* out, const InvariantGemmCall<T, TO, KV>& call, std::int64_t r) {
  const T* const x = call.inp + r * call.K;
  if (call.norm_weight == nullptr) return x;
  with_vector_width(call.K, [&]<int N>() {
    using Layout = RowLayout<RowTeamKind::thread, N>;
    const RowTeam<Layout> team;
    float mean, rstd;
    llmc::normalise_row(out, &mean, &rstd, TeamRow<T, Layout>(x, team, call.K), call.norm_weight,
                        call.norm_bias, call.norm_epsilon, team, call.K);
  });
  return out;
}

// Panels of unsigned codes: (terms / kRunTerms, rows, kRunTerms), with terms rounded up to
// kCodeDepth. All panels but the last have kCodePanelRows rows.
struct CodePanels {
  const std::uint8_t* codes = nullptr;
  const Quantization* quantization = nullptr;  // (M)
  std::int64_t M = 0, depth = 0;

  std::int64_t count() const { return ceil_div(M, kCodePanelRows); }
  int rows(std::int64_t panel) const {
    return static_cast<int>(std::min<std::int64_t>(kCodePanelRows, M - panel * kCodePanelRows));
  }
  const std::uint8_t* panel(std::int64_t i) const { return codes + i * kCodePanelRows * depth; }
};

template <int N, class T>
Quantization row_quantization(const T* x, std::int64_t K, const RowQuantizer& quantizer) {
  RangeOfVectors<N> range;
  for (std::int64_t k = 0; k < K; k += N) range.add(load_floats<N>(x + k));
  const ValueRange values = range.range();
  const Quantization q = activation_quantization(values, quantizer.zero_points);
  return quantizer.is_fixed && q.finite() ? quantizer.fixed : q;
}

// Writes a row's codes to its places in a panel of `rows` rows.
template <int N, class T>
void pack_row_codes(std::uint8_t* place, int rows, const T* x, std::int64_t K,
                    const Quantization& q) {
  static_assert(kRunTerms % N == 0 && kCodeDepth % kRunTerms == 0);
  const CodeRounding rounding(q);
  const auto run_of = [&](std::int64_t k) { return place + k / kRunTerms * kRunTerms * rows; };
  for (std::int64_t k = 0; k < K; k += N) {
    const Vec<std::int8_t, N> codes = rounding.codes(load_floats<N>(x + k));
    std::uint8_t shifted[N];
    for (int i = 0; i < N; ++i) shifted[i] = static_cast<std::uint8_t>(codes[i] + kUnsignedOffset);
    std::memcpy(run_of(k) + k % kRunTerms, shifted, N);
  }
  for (std::int64_t k = K; k < round_up(K, kCodeDepth); k += 8)
    std::memset(run_of(k) + k % kRunTerms, 0, 8);
}

template <class T, class TO, class KV>
CodePanels quantize_rows(const InvariantGemmCall<T, TO, KV>& call) {
  constexpr std::int64_t kSerialNumbers = 4096;  // fewer are not worth another thread
  constexpr std::int64_t kManyPanels = 8;
  CodePanels panels;
  panels.M = call.M;
  panels.depth = round_up(call.K, kCodeDepth);
  ProductScratch& scratch = ProductScratch::of_this_thread();
  std::uint8_t* const codes = at_least(scratch.codes, call.M * panels.depth);
  if (std::ssize(scratch.quantization) < call.M)
    scratch.quantization.resize(static_cast<std::size_t>(call.M));
  Quantization* const quantization = scratch.quantization.data();
  panels.codes = codes;
  panels.quantization = quantization;
  const auto quantize = [&](std::int64_t r) {
    T* const memory = reinterpret_cast<T*>(at_least(ProductScratch::of_this_thread().row, call.K));
    const T* const x = normalised_row(memory, call, r);
    const std::int64_t panel = r / kCodePanelRows;
    std::uint8_t* const place =
        codes + panel * kCodePanelRows * panels.depth + r % kCodePanelRows * kRunTerms;
    with_vector_width(call.K, [&]<int N>() {
      quantization[r] = row_quantization<N>(x, call.K, call.quantizer);
      pack_row_codes<N>(place, panels.rows(panel), x, call.K, quantization[r]);
    });
    if (!quantization[r].finite()) call.faults.report(r);
  };
  // Threads that share a panel write to the same cache lines, so a piece is a panel if there are
  // enough of them.
  const std::int64_t piece = panels.count() < kManyPanels ? 1 : kCodePanelRows;
  const auto quantize_piece = [&](std::int64_t i) {
    for (std::int64_t r = i * piece; r < std::min(call.M, (i + 1) * piece); ++r) quantize(r);
  };
  if (call.M * call.K > kSerialNumbers) {
    run_pieces(ceil_div(call.M, piece), quantize_piece);
  } else {
    for (std::int64_t r = 0; r < call.M; ++r) quantize(r);
  }
  return panels;
}

// ---- products of codes -----------------------------------------------------------------------

// sums (kRows, kPieceColumns) of a panel of kRows rows and the kChunks chunks of columns from
// `weights` on, which are `stride` bytes apart.
template <int kRows, int kChunks>
[[gnu::noinline]] void multiply_codes(std::int32_t* sums, const std::uint8_t* panel,
                                      const std::int8_t* weights, std::int64_t stride,
                                      std::int64_t depth) {
  host::CodeSums tile[kRows][kChunks] = {};
  for (std::int64_t run = 0; run < depth; run += kRunTerms) {
    for (int i = 0; i < kRunTerms; i += 4) {
      const std::int8_t* const w = weights + (run + i) * kCodeColumns;
#pragma GCC unroll 4
      for (int c = 0; c < kChunks; ++c) prefetch_line(w + c * stride + 1024);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const std::uint32_t u = host::four_codes(panel + (run * kRows + r * kRunTerms + i));
#pragma GCC unroll 4
        for (int c = 0; c < kChunks; ++c) host::add_code_products(tile[r][c], u, w + c * stride);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kChunks; ++c)
      std::memcpy(sums + r * kPieceColumns + c * kCodeColumns, &tile[r][c], sizeof tile[r][c]);
  }
}

// sums (kRows, kPieceColumns) of a panel and the columns of a piece.
template <int kRows>
void multiply_panel(std::int32_t* sums, const CodePanels& panels, std::int64_t panel,
                    const CodeMatrix& weight, std::int64_t column) {
  constexpr int kChunks = kFloatRegisters < 32 ? 1 : kRows <= 4 ? 4 : 2;
  for (int j = 0; j < kPieceColumns; j += kChunks * kCodeColumns) {
    multiply_codes<kRows, kChunks>(sums + j, panels.panel(panel),
                                   weight.columns((column + j) / kCodeColumns),
                                   panels.depth * kCodeColumns, panels.depth);
  }
}

// sums - offset * column_sums, as floats.
template <int N>
__forceinline__ Floats<N> corrected_sums(const std::int32_t* sums, const std::int32_t* column_sums,
                                         std::int32_t offset) {
  constexpr int W = Floats<N>::kWidth;
  Floats<N> floats;
  for (int i = 0; i < Floats<N>::kRegisters; ++i) {
    typename host::Simd<W>::Integer x, y;
    std::memcpy(&x, sums + i * W, sizeof x);
    std::memcpy(&y, column_sums + i * W, sizeof y);
    floats.in_register(i) = __builtin_convertvector(x - y * offset, typename host::Simd<W>::Float);
  }
  return floats;
}

// Writes the results of a panel's sums (rows, kPieceColumns), n columns from `column` on.
template <class T, class TO, class KV>
[[gnu::noinline]] void finish_panel(const InvariantGemmCall<T, TO, KV>& call,
                                    const std::int32_t* sums, const CodePanels& panels,
                                    std::int64_t panel, const PieceColumns& columns,
                                    std::int64_t column, std::int64_t n) {
  const std::int64_t first = panel * kCodePanelRows;
  const std::int32_t* const column_sums = call.codes.sums + column;
  const auto results = [&](std::int64_t r) {
    const std::int32_t* const row = sums + (r - first) * kPieceColumns;
    const Quantization q = panels.quantization[r];
    return [&columns, column_sums, row, q ]<int N>(std::int64_t j) __attribute__((always_inline)) {
      const Floats<N> exact = corrected_sums<N>(row + j, column_sums + j, q.zero + kUnsignedOffset);
      return dequantize_sums(exact, q.scale, load_floats<N>(columns.scales + j),
                             load_floats<N>(columns.bias + j));
    };
  };
  finish_rows(call, first, panels.rows(panel), column, n, results);
}

template <class F, int... kRows>
void with_rows(int rows, std::integer_sequence<int, kRows...>, const F& f) {
  ((rows == kRows + 1 ? f.template operator()<kRows + 1>() : void()), ...);
}

// Fetches the cache lines of the results of rows first .. first + rows - 1, n columns from `column`
// on, so that stores need not wait for them.
template <class T, class TO, class KV>
void prefetch_results(const InvariantGemmCall<T, TO, KV>& call, std::int64_t first,
                      std::int64_t rows, std::int64_t column, std::int64_t n) {
  for_each_output(call, column, n, [&](const auto& place, std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = first; r < first + rows; ++r) {
      auto* const out = place(r);
      constexpr std::int64_t kLine = 64 / sizeof(*out);
      for (std::int64_t j = begin; j < end; j += kLine) __builtin_prefetch(out + j, 1);
    }
  });
}

template <class T, class TO, class KV>
void multiply_quantized_rows(const InvariantGemmCall<T, TO, KV>& call) {
  const CodePanels panels = quantize_rows(call);
  run_pieces(ceil_div(call.N, kPieceColumns), [&](std::int64_t i) {
    const std::int64_t column = i * kPieceColumns;
    const std::int64_t n = std::min<std::int64_t>(kPieceColumns, call.N - column);
    const PieceColumns columns(call, column);
    alignas(64) std::int32_t sums[kCodePanelRows * kPieceColumns];
    for (std::int64_t panel = 0; panel < panels.count(); ++panel) {
      const int rows = panels.rows(panel);
      prefetch_results(call, panel * kCodePanelRows, rows, column, n);
      with_rows(rows, std::make_integer_sequence<int, kCodePanelRows>(), [&]<int kRows>() {
        multiply_panel<kRows>(sums, panels, panel, call.codes, column);
      });
      finish_panel(call, sums, panels, panel, columns, column, n);
    }
  });
}

// ---- products of floats and codes --------------------------------------------------------------

// Results of the float sums (n) of a row, in place, and their epilogue.
template <class T, class TO, class KV>
void finish_float_sums(const InvariantGemmCall<T, TO, KV>& call, float* sums, std::int64_t r,
                       std::int64_t column, std::int64_t n) {
  if (call.codes.codes == nullptr) return finish_columns(call, sums, r, column, n);
  for (std::int64_t first = 0; first < n; first += kPieceColumns) {
    const PieceColumns columns(call, column + first);
    const std::int64_t count = std::min<std::int64_t>(kPieceColumns, n - first);
    for (std::int64_t j = 0; j < count; j += 8) {
      float* const out = sums + first + j;
      store_floats(out, dequantize_sums(load_floats<8>(out), 1, load_floats<8>(columns.scales + j),
                                        load_floats<8>(columns.bias + j)));
    }
  }
  if constexpr (std::is_same_v<TO, float>) {
    if (call.epilogue == RowEpilogue::logits) {
      std::copy_n(sums, n, call.out + r * call.out_stride + column);
      return;
    }
  }
  finish_rows(call, r, 1, column, n, [&](std::int64_t) {
    return [&]<int N>(std::int64_t j) { return load_floats<N>(sums + j); };
  });
}

// sums (kRows, kPieceColumns) = or += rows times one slice of terms of kChunks chunks of columns.
template <int kRows, int kChunks>
[[gnu::noinline]] void multiply_float_slice(float* sums, const float* a, std::int64_t stride_a,
                                            const std::int8_t* weights, std::int64_t stride,
                                            std::int64_t depth, bool add) {
  constexpr int W = kRegisterFloats, kParts = kCodeColumns / W;
  using Register = typename host::Simd<W>::Float;
  Register tile[kRows][kChunks * kParts] = {};
  for (std::int64_t k = 0; k < depth; k += 4) {
    const std::int8_t* const w = weights + k * kCodeColumns;
#pragma GCC unroll 4
    for (int c = 0; c < kChunks; ++c) prefetch_line(w + c * stride + 1024);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 16
      for (int c = 0; c < kChunks * kParts; ++c) {
        const Register x =
            host::codes_as_floats<W>(w + c / kParts * stride + c % kParts * 4 * W, i);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r)
          tile[r][c] = host::multiply_add<W>(x, a[r * stride_a + k + i] - Register{}, tile[r][c]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kChunks * kParts; ++c) {
      float* const out = sums + r * kPieceColumns + c * W;
      if (add) tile[r][c] = host::load_register<W>(out) + tile[r][c];
      host::store_register<W>(out, tile[r][c]);
    }
  }
}

// sums (kRows, kPieceColumns) of kRows rows (stride K rounded up to kCodeDepth) and a piece.
template <int kRows>
void multiply_float_rows(float* sums, const float* a, const CodeMatrix& weight,
                         std::int64_t column) {
  constexpr int kChunks = kFloatRegisters < 32 ? 1 : 4;
  const std::int64_t depth = round_up(weight.K, kCodeDepth);
  for (int j = 0; j < kPieceColumns; j += kChunks * kCodeColumns) {
    const std::int8_t* const weights = weight.columns((column + j) / kCodeColumns);
    for (std::int64_t k = 0; k < depth; k += kSliceDepth) {
      multiply_float_slice<kRows, kChunks>(sums + j, a + k, depth, weights + k * kCodeColumns,
                                           depth * kCodeColumns, std::min(kSliceDepth, depth - k),
                                           k > 0);
    }
  }
}

// Few rows, in groups that share the conversion of the codes.
template <class T, class TO, class KV>
void multiply_few_rows_by_codes(const InvariantGemmCall<T, TO, KV>& call) {
  constexpr int kGroup = 4;
  const std::int64_t depth = round_up(call.K, kCodeDepth);
  float* const rows = at_least(ProductScratch::of_this_thread().a, call.M * depth);
  for (std::int64_t r = 0; r < call.M; ++r) {
    read_row(rows + r * depth, call, r);
    std::fill(rows + r * depth + call.K, rows + (r + 1) * depth, 0.0f);
  }
  run_pieces(ceil_div(call.N, kPieceColumns), [&](std::int64_t i) {
    const std::int64_t column = i * kPieceColumns;
    const std::int64_t n = std::min<std::int64_t>(kPieceColumns, call.N - column);
    alignas(64) float sums[kGroup * kPieceColumns];
    for (std::int64_t first = 0; first < call.M; first += kGroup) {
      const int count = static_cast<int>(std::min<std::int64_t>(kGroup, call.M - first));
      with_rows(count, std::make_integer_sequence<int, kGroup>(), [&]<int kRows>() {
        multiply_float_rows<kRows>(sums, rows + first * depth, call.codes, column);
      });
      for (int r = 0; r < count; ++r)
        finish_float_sums(call, sums + r * kPieceColumns, first + r, column, n);
    }
  });
}

// As pack_weights, from codes: columns `column` .. column + count - 1, terms k .. k + depth - 1.
// depth is a multiple of 4, or the last term is the last of the weight.
[[gnu::noinline]] inline void pack_weight_codes(Word* packed, const CodeMatrix& weight,
                                                std::int64_t k, std::int64_t column,
                                                std::int64_t depth, std::int64_t count) {
  constexpr int W = std::min(8, kRegisterFloats);
  for (std::int64_t j = 0; j < round_up(count, kTileWidth); j += W) {
    const std::int8_t* const codes = weight.columns((column + j) / kCodeColumns) +
                                     k * kCodeColumns + (column + j) % kCodeColumns * 4;
    Word* const panel = packed + j / kTileWidth * kTileWidth * depth + j % kTileWidth;
    for (std::int64_t d = 0; d < depth; d += 4) {
      for (int i = 0; i < std::min<std::int64_t>(4, depth - d); ++i) {
        const auto numbers = host::codes_as_floats<W>(codes + d * kCodeColumns, i);
        std::memcpy(panel + (d + i) * kTileWidth, &numbers, sizeof numbers);
      }
    }
  }
}

}  // namespace llmc::host_rows
