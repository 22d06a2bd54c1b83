// One tile of a matrix product on the host.
//
// fp32, and bf16 on CPUs with instructions for it, are usually multiplied as stored. Other half
// precision is widened to fp32, one slice of k at a time, multiplied in fp32 and rounded once, as
// tensor cores do; only the slices of the tile exist in fp32, never a whole matrix.
//
// The fp32 sums of a tile go straight to the result if nothing else happens to them. Otherwise they
// are in scratch memory of the thread, and the epilogue reads them while they are in its cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/device/host/matrix_library.h"
#include "llmc/device/host/simd.h"
#include "llmc/ops/gelu_gate.h"
#include "llmc/ops/gemm/gemm.h"
#include "llmc/ops/gemm/gemm_host_scratch.h"

namespace llmc {

struct IndexRange {
  std::int64_t first, count;
};

// Slice of k that is copied at once.
inline constexpr std::int64_t kCopiedDepth = 512;

template <class TI>
bool is_widened() {
  if constexpr (std::is_same_v<TI, bf16>) return !host::multiplies_bf16();
  return std::is_same_v<TI, fp16>;
}

// Elements between the rows of op(a) and op(b) in memory.
template <class TO, class TI>
std::int64_t stride_of_a(const GemmCall<TO, TI>& call) {
  return call.transpose_a ? call.m : call.k;
}
template <class TO, class TI>
std::int64_t stride_of_b(const GemmCall<TO, TI>& call) {
  return call.transpose_b ? call.k : call.n;
}

// Whether tiles of an operand are copied before the product: to widen them, or to change a stride
// with which the library is slow.
template <class TO, class TI>
bool copies_operands(const GemmCall<TO, TI>& call) {
  return is_widened<TI>() ||
         (std::is_same_v<TI, float> &&
          (host::is_slow_stride(stride_of_a(call)) || host::is_slow_stride(stride_of_b(call))));
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

// Copies n numbers and converts them: to fp32, or rounded from it.
template <class To, class From>
void copy_converted(To* out, const From* in, std::int64_t n) {
  constexpr int N = kRegisterFloats;
  for (std::int64_t j = 0; j < n; j += N) {
    store_floats_up_to(out + j, load_floats_up_to<N>(in + j, n - j), n - j);
  }
}

// Rows of a dense copy are this many elements apart.
inline std::int64_t dense_stride(std::int64_t columns) {
  return host::is_slow_stride(columns) ? columns + 16 : columns;
}

// (rows, columns) of a matrix in fp32, for the library.
struct Fp32Block {
  const float* data;
  std::int64_t stride;
};

// Returns (rows, columns) of a matrix with `stride` elements per row, or its dense copy in fp32 in
// `memory` if the library needs one.
template <class T>
Fp32Block fp32_block(std::vector<float>& memory, const T* in, std::int64_t stride,
                     std::int64_t rows, std::int64_t columns) {
  if constexpr (std::is_same_v<T, float>) {
    if (!host::is_slow_stride(stride)) return {in, stride};
  }
  const std::int64_t dense = dense_stride(columns);
  float* const out = at_least(memory, rows * dense);
  for (std::int64_t r = 0; r < rows; ++r) copy_converted(out + r * dense, in + r * stride, columns);
  return {out, dense};
}

// Writes the transposed (rows, columns) matrix `in`, with `ld` elements per row, densely to `out`.
// Squares of 8 are transposed in registers, in order of larger squares, so that both sides use
// whole cache lines.
inline void transpose_block(bf16* out, const bf16* in, std::int64_t ld, std::int64_t rows,
                            std::int64_t columns) {
  constexpr std::int64_t kSquare = 32, N = 8;
  const auto transpose_square = [&](std::int64_t r, std::int64_t c) {
    host::Simd<N>::Half square[N], transposed[N];
    for (std::int64_t i = 0; i < N; ++i)
      std::memcpy(&square[i], in + (r + i) * ld + c, sizeof square[i]);
    host::transpose_8x8(transposed, square);
    for (std::int64_t i = 0; i < N; ++i)
      std::memcpy(out + (c + i) * rows + r, &transposed[i], sizeof square[i]);
  };
  for (std::int64_t r0 = 0; r0 < rows; r0 += kSquare) {
    const std::int64_t r_end = std::min(rows, r0 + kSquare), r_whole = r_end - r_end % N;
    for (std::int64_t c0 = 0; c0 < columns; c0 += kSquare) {
      const std::int64_t c_end = std::min(columns, c0 + kSquare), c_whole = c_end - c_end % N;
      for (std::int64_t c = c0; c < c_whole; c += N) {
        for (std::int64_t r = r0; r < r_whole; r += N) transpose_square(r, c);
      }
      for (std::int64_t c = c0; c < c_end; ++c) {
        for (std::int64_t r = c < c_whole ? r_whole : r0; r < r_end; ++r)
          out[c * rows + r] = in[r * ld + c];
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
          stride_of_b(call),
          ldc};
}

// Whether the library may write a tile of the result itself, rounded and with its bias.
template <class TO, class TI>
bool writes_rounded(const GemmCall<TO, TI>& call) {
  return std::is_same_v<TO, bf16> && std::is_same_v<TI, bf16> && !is_widened<TI>() &&
         call.epilogue == Epilogue::none && call.alpha == 1 && call.beta == 0;
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
         !copies_operands(call) &&
         host::adds_finished_sums<TI>(tile_sizes(call, rows, columns, call.n));
}

// ---- products of a tile --------------------------------------------------------------------

// sums (m, n) = op(a) op(b), slice by slice of k.
template <class TI>
void multiply_slices(const host::ProductSizes& s, const TI* a, const TI* b, float* sums) {
  ProductScratch& scratch = ProductScratch::of_this_thread();
  for (std::int64_t k = 0; k < s.k; k += kCopiedDepth) {
    host::ProductSizes slice = s;
    slice.k = std::min(kCopiedDepth, s.k - k);
    const Fp32Block block_a = s.transpose_a
                                  ? fp32_block(scratch.a, a + k * s.lda, s.lda, slice.k, s.m)
                                  : fp32_block(scratch.a, a + k, s.lda, s.m, slice.k);
    const Fp32Block block_b = s.transpose_b
                                  ? fp32_block(scratch.b, b + k, s.ldb, s.n, slice.k)
                                  : fp32_block(scratch.b, b + k * s.ldb, s.ldb, slice.k, s.n);
    slice.lda = block_a.stride;
    slice.ldb = block_b.stride;
    host::multiply(slice, block_a.data, block_b.data, k > 0, sums);
  }
}

// The tile's rows of op(a), which begin at `a`, as the library reads them.
template <class TO, class TI>
const TI* packed_rows(const GemmCall<TO, TI>& call, const host::ProductSizes& s, const TI* a) {
  if constexpr (std::is_same_v<TI, bf16>) {
    if (packs_transposed(call)) {
      bf16* const packed = at_least(ProductScratch::of_this_thread().a_transposed, s.m * s.k);
      transpose_block(packed, a, call.m, s.k, s.m);
      return packed;
    }
  }
  return a;
}

// `a` and `b` start at the tile's first row and column.
template <class TO, class TI>
void multiply_operands(const GemmCall<TO, TI>& call, const host::ProductSizes& s, const TI* a,
                       const TI* b, bool accumulate, float* sums) {
  if (copies_operands(call)) return multiply_slices(s, a, b, sums);
  if constexpr (!std::is_same_v<TI, fp16>)
    host::multiply(s, packed_rows(call, s, a), b, accumulate, sums);
}

// ---- epilogue ------------------------------------------------------------------------------

// y[j] *= f(x[j]) for j = 0 .. n - 1, several at a time.
template <class T, class F>
void multiply_floats(float* y, const T* x, std::int64_t n, F f) {
  constexpr int N = kRegisterFloats;
  for (std::int64_t j = 0; j < n; j += N) {
    const Floats<N> factors = f(load_floats_up_to<N>(x + j, n - j));
    store_floats_up_to(y + j, load_floats_up_to<N>(y + j, n - j) * factors, n - j);
  }
}

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
    copy_converted(aux, sums, n);
    multiply_floats(sums, sums, n, [](const auto& x) { return gelu_gate<TO>(x); });
  } else if (call.epilogue == Epilogue::gelu_backward) {
    const TO* const aux = call.aux + first;
    multiply_floats(sums, aux, n, [](const auto& x) { return gelu_derivative<TO>(x); });
  }
  if (static_cast<const void*>(c) == sums) return;
  copy_converted(c, sums, n);
}

// Reads n numbers ahead of their use, from memory that no hardware prefetcher follows.
template <class T>
void prefetch_row(const T* row, std::int64_t n) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  for (std::int64_t j = 0; j < n; j += kLine) prefetch_line(row + j);
}

template <class TO, class TI>
void multiply_tile(const GemmCall<TO, TI>& call, IndexRange rows, IndexRange columns) {
  if (rows.count == 0 || columns.count == 0) return;
  const std::int64_t first = rows.first * call.n + columns.first;
  const bool direct = stores_sums_directly(call, rows, columns) || writes_rounded(call);
  const std::int64_t ld = direct ? call.n : columns.count;
  const host::ProductSizes s = tile_sizes(call, rows, columns, ld);
  const TI* const a = call.a + rows.first * (call.transpose_a ? 1 : s.lda);
  const TI* const b = call.b + columns.first * (s.transpose_b ? s.ldb : 1);
  if constexpr (std::is_same_v<TO, bf16> && std::is_same_v<TI, bf16>) {
    const bf16* const bias = call.bias == nullptr ? nullptr : call.bias + columns.first;
    if (direct) return host::multiply_rounded(s, packed_rows(call, s, a), b, bias, call.c + first);
  }
  float* sums = nullptr;
  if constexpr (std::is_same_v<TO, float>) sums = call.c + first;
  if (!direct) sums = at_least(ProductScratch::of_this_thread().sums, rows.count * ld);
  multiply_operands(call, s, a, b, direct && call.beta != 0, sums);
  if (direct && call.bias == nullptr) return;
  constexpr std::int64_t kAhead = 4;  // rows
  for (std::int64_t r = 0; r < rows.count; ++r) {
    if (call.beta != 0 && r + kAhead < rows.count)
      prefetch_row(call.addend_or_c() + first + (r + kAhead) * call.n, columns.count);
    finish_row(call, sums + r * ld, first + r * call.n, columns);
  }
}

}  // namespace llmc
