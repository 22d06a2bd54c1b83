// One tile of a matrix product on the host.
//
// fp32, and bf16 on CPUs with instructions for it, are multiplied as they are stored. Other half
// precision is widened to fp32, one slice of k at a time, multiplied in fp32 and rounded once, as
// tensor cores do; only the slices of the tile exist in fp32, never a whole matrix.
//
// The fp32 sums of a tile go straight to the result if nothing else happens to them. Otherwise they
// are in scratch memory of the thread, and the epilogue reads them while they are in its cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/device/host/matrix_library.h"
#include "llmc/ops/gelu.h"
#include "llmc/ops/gemm/gemm.h"

namespace llmc {

struct IndexRange {
  std::int64_t first, count;
};

// Slice of k that is widened at once.
inline constexpr std::int64_t kWidenedDepth = 512;

// Memory of a thread for one tile, kept between products.
struct TileScratch {
  std::vector<float> sums, a, b;
  std::vector<bf16> a_transposed;

  static TileScratch& of_this_thread() {
    static thread_local TileScratch scratch;
    return scratch;
  }
};

// Returns memory for `count` elements, in which earlier contents may remain.
template <class T>
T* at_least(std::vector<T>& memory, std::int64_t count) {
  if (static_cast<std::int64_t>(memory.size()) < count)
    memory.resize(static_cast<std::size_t>(count));
  return memory.data();
}

template <class TI>
bool is_widened() {
  if constexpr (std::is_same_v<TI, bf16>) return !host::multiplies_bf16();
  return std::is_same_v<TI, fp16>;
}

// A transposed bf16 operand `a` is transposed tile by tile before the product: oneDNN's products
// with a strided transposed operand reach half the speed.
template <class TO, class TI>
bool packs_transposed(const GemmCall<TO, TI>& call) {
  return std::is_same_v<TI, bf16> && !is_widened<TI>() && call.transpose_a;
}

// Rows of a tile whose transposed copy stays in the L2 cache.
inline std::int64_t max_transposed_rows(std::int64_t k) {
  return std::clamp<std::int64_t>((1 << 19) / k, 128, 1024);
}

// ---- operands ------------------------------------------------------------------------------

// Copies (rows, columns) of a matrix with `ld` elements per row to `out`, in fp32 and dense.
template <class T>
void widen_block(float* out, const T* in, std::int64_t ld, std::int64_t rows,
                 std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) out[r * columns + c] = to_float(in[r * ld + c]);
  }
}

// Writes the transposed (rows, columns) matrix `in`, with `ld` elements per row, densely to `out`.
// In squares, so that both sides use whole cache lines.
template <class T>
void transpose_block(T* out, const T* in, std::int64_t ld, std::int64_t rows,
                     std::int64_t columns) {
  constexpr std::int64_t kSquare = 32;
  for (std::int64_t r0 = 0; r0 < rows; r0 += kSquare) {
    const std::int64_t r_end = std::min(rows, r0 + kSquare);
    for (std::int64_t c0 = 0; c0 < columns; c0 += kSquare) {
      const std::int64_t c_end = std::min(columns, c0 + kSquare);
      for (std::int64_t c = c0; c < c_end; ++c) {
        for (std::int64_t r = r0; r < r_end; ++r) out[c * rows + r] = in[r * ld + c];
      }
    }
  }
}

// Sizes of the product of a tile, whose sums have `ldc` elements per row.
template <class TO, class TI>
host::ProductSizes tile_sizes(const GemmCall<TO, TI>& call, IndexRange rows, IndexRange columns,
                              std::int64_t ldc) {
  const bool transpose_a = call.transpose_a && !packs_transposed(call);
  return {rows.count,
          columns.count,
          call.k,
          transpose_a,
          call.transpose_b,
          transpose_a ? call.m : call.k,
          call.transpose_b ? call.k : call.n,
          ldc};
}

// Whether the library may write or add the sums of a tile to the result itself. Sums that are added
// must be finished first: c + product then has the same bits as a product that is stored and added,
// with every library and instruction set.
template <class TO, class TI>
bool stores_sums_directly(const GemmCall<TO, TI>& call, IndexRange rows, IndexRange columns) {
  if (!std::is_same_v<TO, float> || call.epilogue != Epilogue::none || call.alpha != 1)
    return false;
  if (call.beta == 0) return true;
  return call.beta == 1 && call.addend_or_c() == call.c && call.bias == nullptr &&
         !is_widened<TI>() && host::adds_finished_sums<TI>(tile_sizes(call, rows, columns, call.n));
}
// ---- products of a tile --------------------------------------------------------------------

// sums (rows, columns) = op(a) op(b), slice by slice of k.
template <class TI>
void multiply_widened(const host::ProductSizes& s, const TI* a, const TI* b, float* sums) {
  TileScratch& scratch = TileScratch::of_this_thread();
  float* const wide_a = at_least(scratch.a, s.m * std::min(s.k, kWidenedDepth));
  float* const wide_b = at_least(scratch.b, s.n * std::min(s.k, kWidenedDepth));
  for (std::int64_t k = 0; k < s.k; k += kWidenedDepth) {
    host::ProductSizes slice = s;
    slice.k = std::min(kWidenedDepth, s.k - k);
    slice.lda = s.transpose_a ? s.m : slice.k;
    slice.ldb = s.transpose_b ? slice.k : s.n;
    if (s.transpose_a) {
      widen_block(wide_a, a + k * s.lda, s.lda, slice.k, s.m);
    } else {
      widen_block(wide_a, a + k, s.lda, s.m, slice.k);
    }
    if (s.transpose_b) {
      widen_block(wide_b, b + k, s.ldb, s.n, slice.k);
    } else {
      widen_block(wide_b, b + k * s.ldb, s.ldb, slice.k, s.n);
    }
    host::multiply(slice, wide_a, wide_b, k > 0, sums);
  }
}

// `a` and `b` start at the tile's first row and column.
template <class TO, class TI>
void multiply_operands(const GemmCall<TO, TI>& call, const host::ProductSizes& s, const TI* a,
                       const TI* b, bool accumulate, float* sums) {
  if constexpr (std::is_same_v<TI, float>) {
    host::multiply(s, a, b, accumulate, sums);
  } else {
    if (is_widened<TI>()) return multiply_widened(s, a, b, sums);
    if constexpr (std::is_same_v<TI, bf16>) {
      if (packs_transposed(call)) {
        bf16* const packed = at_least(TileScratch::of_this_thread().a_transposed, s.m * s.k);
        transpose_block(packed, a, call.m, s.k, s.m);
        a = packed;
      }
      host::multiply(s, a, b, accumulate, sums);
    }
  }
}

// ---- epilogue ------------------------------------------------------------------------------

// Adds the bias and beta * addend to a row of sums, applies the epilogue and rounds the results to
// TO. `first` is the index of the row's first element in c. sums may be that part of c.
template <class TO, class TI>
void finish_row(const GemmCall<TO, TI>& call, float* sums, std::int64_t first, IndexRange columns) {
  const std::int64_t n = columns.count;
  TO* const c = call.c + first;
  if (call.alpha != 1) {
    for (std::int64_t j = 0; j < n; ++j) sums[j] *= call.alpha;
  }
  if (call.beta != 0) {
    const TO* const addend = call.addend_or_c() + first;
    for (std::int64_t j = 0; j < n; ++j) sums[j] += call.beta * to_float(addend[j]);
  }
  if (call.bias != nullptr) {
    const TI* const bias = call.bias + columns.first;
    for (std::int64_t j = 0; j < n; ++j) sums[j] += to_float(bias[j]);
  }
  if (call.epilogue == Epilogue::gelu) {
    TO* const aux = call.aux + first;
    for (std::int64_t j = 0; j < n; ++j) aux[j] = from_float<TO>(sums[j]);
    for (std::int64_t j = 0; j < n; ++j) sums[j] *= gelu_gate<TO>(sums[j]);
  } else if (call.epilogue == Epilogue::gelu_backward) {
    const TO* const aux = call.aux + first;
    for (std::int64_t j = 0; j < n; ++j) sums[j] *= gelu_derivative<TO>(to_float(aux[j]));
  }
  if (static_cast<const void*>(c) == sums) return;
  for (std::int64_t j = 0; j < n; ++j) c[j] = from_float<TO>(sums[j]);
}

template <class TO, class TI>
void multiply_tile(const GemmCall<TO, TI>& call, IndexRange rows, IndexRange columns) {
  if (rows.count == 0 || columns.count == 0) return;
  const std::int64_t first = rows.first * call.n + columns.first;
  const bool direct = stores_sums_directly(call, rows, columns);
  float* sums = nullptr;
  std::int64_t ld = direct ? call.n : columns.count;
  if constexpr (std::is_same_v<TO, float>) sums = call.c + first;
  if (!direct) sums = at_least(TileScratch::of_this_thread().sums, rows.count * ld);

  const host::ProductSizes s = tile_sizes(call, rows, columns, ld);
  const TI* const a = call.a + rows.first * (call.transpose_a ? 1 : s.lda);
  const TI* const b = call.b + columns.first * (s.transpose_b ? s.ldb : 1);
  multiply_operands(call, s, a, b, direct && call.beta != 0, sums);
  if (direct && call.bias == nullptr) return;
  for (std::int64_t r = 0; r < rows.count; ++r) {
    finish_row(call, sums + r * ld, first + r * call.n, columns);
  }
}

}  // namespace llmc
