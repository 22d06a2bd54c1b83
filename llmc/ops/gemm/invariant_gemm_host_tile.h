// The arithmetic of the products of inference on the host.
//
// Operands are words (device/words.h): fp32 numbers, or pairs of bf16 if the call is in bf16 and
// the processor multiplies pairs. E is the type of their numbers, and P their number in a word.
//
// A sum is one chain: in slices of kSliceDepth, k ascends with a multiply-add of words per step,
// and the slices' sums are added in order. Sums of the logits have kLanes chains of words instead,
// whose results are added by halves. Every function here follows this order, whatever it computes
// at once.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "llmc/device/host/executor.h"
#include "llmc/device/words.h"
#include "llmc/device/workers.h"
#include "llmc/ops/activation_value.h"
#include "llmc/ops/gemm/gemm_host_scratch.h"
#include "llmc/ops/gemm/invariant_gemm_call.h"

namespace llmc::host_rows {

inline constexpr std::int64_t kSliceDepth = 256;
inline constexpr int kLanes = 16;

// Register tile: rows x columns of sums, and registers for a row of weights and one number of inp.
inline constexpr int kTileWidth = 2 * kRegisterFloats;
inline constexpr int kTileRows = (kFloatRegisters - 4) / 2;
inline constexpr int kFewRowsDepth = 8;

// Calls piece(i) for i = 0 .. count - 1 on the executor's threads.
template <class F>
void run_pieces(std::int64_t count, const F& piece) {
  workers().run(count, [&piece](std::int64_t i) { piece(i); });
}

// out = LayerNorm(x), rounded to T and widened again. C is a multiple of 8.
template <class T>
[[gnu::noinline]] void normalise_row(float* out, const T* x, const T* weight, const T* bias,
                                     float epsilon, std::int64_t C) {
  constexpr int N = 8;
  Floats<N> sum, squares;
  for (std::int64_t c = 0; c < C; c += N) sum += load_floats<N>(x + c);
  const float mean = sum_of(sum) / static_cast<float>(C);
  for (std::int64_t c = 0; c < C; c += N) {
    const Floats<N> difference = load_floats<N>(x + c) - mean;
    squares = multiply_add(difference, difference, squares);
  }
  const float rstd = 1.0f / std::sqrt(sum_of(squares) / static_cast<float>(C) + epsilon);
  for (std::int64_t c = 0; c < C; c += N) {
    const Floats<N> z = Floats<N>(rstd) * (load_floats<N>(x + c) - mean);
    const Vec<T, N> rounded =
        from_floats<T>(multiply_add(z, load_floats<N>(weight + c), load_floats<N>(bias + c)));
    store_floats(out + c, to_floats(rounded));
  }
}

// Row r of inp as the product reads it: normalised if the call has a norm, in fp32.
template <class T, class TO, class KV>
void read_row(float* out, const InvariantGemmCall<T, TO, KV>& call, std::int64_t r) {
  const T* const x = call.inp + r * call.K;
  if (call.norm_weight != nullptr) {
    return normalise_row(out, x, call.norm_weight, call.norm_bias, call.norm_epsilon, call.K);
  }
  for (std::int64_t k = 0; k < call.K; k += 8) store_floats(out + k, load_floats<8>(x + k));
}

// The same row in words of E. In bf16 it is exact.
template <class E, class T, class TO, class KV>
void read_row_words(Word* out, const InvariantGemmCall<T, TO, KV>& call, std::int64_t r) {
  float* const row = at_least(ProductScratch::of_this_thread().row, call.K);
  read_row(row, call, r);
  for (std::int64_t k = 0; k < call.K; k += 8)
    store_in_order<E>(out + k / kWordNumbers<E>, load_floats<8>(row + k));
}

// ---- epilogue ------------------------------------------------------------------------------

// Calls write(place, begin, end) for each tensor that has some of the n results of a row from
// `column` on: place(r)[j] is the place of result j of row r, for j = begin .. end - 1.
template <class T, class TO, class KV, class Write>
__forceinline__ void for_each_output(const InvariantGemmCall<T, TO, KV>& call, std::int64_t column,
                                     std::int64_t n, const Write& write) {
  if (call.epilogue != RowEpilogue::qkv) {
    return write([&](std::int64_t r) { return call.out + r * call.out_stride + column; },
                 std::int64_t{0}, n);
  }
  const std::int64_t C = call.C();
  for (std::int64_t begin = 0, end; begin < n; begin = end) {
    const std::int64_t part = (column + begin) / C;
    end = std::min(n, (part + 1) * C - column);
    if (part == 0) {
      write([&](std::int64_t r) { return call.out + r * C + column; }, begin, end);
    } else if constexpr (kIsQuantized<KV>) {
      write([&](std::int64_t r) { return call.head_sums + r * 2 * C + column - C; }, begin, end);
    } else {
      KV* const cache = (part == 1 ? call.keys - C : call.values - 2 * C) + column;
      write([&](std::int64_t r) { return cache + call.cache_row(r); }, begin, end);
    }
  }
}

// Epilogue and rounding of n results from `column` on of the rows first .. first + rows - 1, which
// include the bias: results(r)<N>(j) returns those of row r from column + j on. n and `column` are
// multiples of 8.
template <class T, class TO, class KV, class Results>
__forceinline__ void finish_rows(const InvariantGemmCall<T, TO, KV>& call, std::int64_t first,
                                 std::int64_t rows, std::int64_t column, std::int64_t n,
                                 const Results& results) {
  // place(r)[j] = finish<N>(result j of row r, r, j). Inlined by force: calls would take half of
  // the time.
  const auto write = [&](const auto& place, std::int64_t begin, std::int64_t end,
                         const auto& finish) __attribute__((always_inline)) {
    for (std::int64_t r = first; r < first + rows; ++r) {
      const auto row = results(r);
      auto* const out = place(r);
      const auto write_vector = [&]<int N>(std::int64_t j) __attribute__((always_inline)) {
        store_floats(out + j, finish.template operator()<N>(row.template operator()<N>(j), r, j));
      };
      std::int64_t j = begin;
      for (; j + 16 <= end; j += 16) write_vector.template operator()<16>(j);
      for (; j < end; j += 8) write_vector.template operator()<8>(j);
    }
  };
  const auto out_place = [&](std::int64_t r) { return call.out + r * call.out_stride + column; };
  if (call.epilogue == RowEpilogue::activation) {
    const float* const factors = call.gelu_factors;
    const auto value = [&]<int N>(const Floats<N>& s, std::int64_t, std::int64_t j)
        __attribute__((always_inline)) {
      Floats<N> y = activation_value<T>(call.activation, s);
      if (factors != nullptr) y *= load_floats<N>(factors + column + j);
      return y;
    };
    write(out_place, 0, n, value);
  } else if (call.residual != nullptr) {
    const T* const residual = call.residual + column;
    const std::int64_t stride = call.out_stride;
    const auto add = [&]<int N>(const Floats<N>& s, std::int64_t r, std::int64_t j)
        __attribute__((always_inline)) {
      return load_floats<N>(residual + r * stride + j) + s;
    };
    write(out_place, 0, n, add);
  } else {
    const auto unchanged = []<int N>(const Floats<N>& s, std::int64_t, std::int64_t) { return s; };
    for_each_output(
        call, column, n,
        [&](const auto& place, std::int64_t begin, std::int64_t end)
            __attribute__((always_inline)) { write(place, begin, end, unchanged); });
  }
}

// Adds the bias to the n sums of row r from `column` on, and writes them.
template <class T, class TO, class KV>
[[gnu::noinline]] void finish_columns(const InvariantGemmCall<T, TO, KV>& call, const float* sums,
                                      std::int64_t r, std::int64_t column, std::int64_t n) {
  finish_rows(call, r, 1, column, n, [&](std::int64_t) {
    return [&]<int N>(std::int64_t j) {
      const Floats<N> s = load_floats<N>(sums + j);
      return call.bias == nullptr ? s : s + load_floats<N>(call.bias + column + j);
    };
  });
}

// ---- few rows ------------------------------------------------------------------------------

// Words of one step of a sum: numbers of row `step` of w, or of the pair of rows `step`.
template <class E, int N, class T>
__forceinline__ Words<N> load_step(const T* w, std::int64_t stride, std::int64_t step) {
  if constexpr (kWordNumbers<E> == 2) {
    return load_paired<N>(w + 2 * step * stride, w + (2 * step + 1) * stride);
  } else {
    return words_of(load_floats<N>(w + step * stride));
  }
}

// sums (rows, stride) += a (rows, stride_a) times kSteps steps of w, for V columns.
template <class E, int V, int kSteps, class T>
__forceinline__ void add_few_rows(float* sums, std::int64_t stride, const Word* a,
                                  std::int64_t stride_a, std::int64_t rows, const T* w,
                                  std::int64_t stride_w) {
  Words<V> weights[kSteps];
  for (int k = 0; k < kSteps; ++k) weights[k] = load_step<E, V>(w, stride_w, k);
  for (std::int64_t r = 0; r < rows; ++r) {
    Floats<V> sum = load_floats<V>(sums + r * stride);
    for (int k = 0; k < kSteps; ++k)
      sum = add_products<E>(sum, weights[k], Words<V>(a[r * stride_a + k]));
    store_floats(sums + r * stride, sum);
  }
}

// sums (rows, stride) = a (rows, stride_a) times w (depth, columns), one slice of k.
template <class E, class T>
[[gnu::noinline]] void multiply_few_rows_slice(float* sums, std::int64_t stride, const Word* a,
                                               std::int64_t stride_a, std::int64_t rows, const T* w,
                                               std::int64_t stride_w, std::int64_t depth,
                                               std::int64_t columns) {
  constexpr int V = std::max(8, kRegisterFloats), P = kWordNumbers<E>;
  for (std::int64_t r = 0; r < rows; ++r) std::fill_n(sums + r * stride, columns, 0.0f);
  const auto add = [&]<int kSteps>(std::int64_t k) {
    const T* const row = w + k * P * stride_w;
    std::int64_t j = 0;
    for (; j + V <= columns; j += V) {
      for (int i = 0; i < kSteps * P; ++i) prefetch_line(row + (2 * kSteps * P + i) * stride_w + j);
      add_few_rows<E, V, kSteps>(sums + j, stride, a + k, stride_a, rows, row + j, stride_w);
    }
    if (j < columns)
      add_few_rows<E, 8, kSteps>(sums + j, stride, a + k, stride_a, rows, row + j, stride_w);
  };
  std::int64_t k = 0;
  for (; k + kFewRowsDepth <= depth / P; k += kFewRowsDepth) {
    add.template operator()<kFewRowsDepth>(k);
  }
  if (k < depth / P) add.template operator()<kFewRowsDepth / 2>(k);  // eight numbers are left
}

// ---- many rows -----------------------------------------------------------------------------

// packed (panels, depth / P, kTileWidth) = `count` columns of w (depth, stride). The last panel is
// filled with zeros.
template <class E, class T>
[[gnu::noinline]] void pack_weights(Word* packed, const T* w, std::int64_t stride,
                                    std::int64_t depth, std::int64_t count) {
  constexpr std::int64_t kPrefetchRows = 12, P = kWordNumbers<E>;
  const std::int64_t steps = depth / P;
  for (std::int64_t step = 0; step < steps; ++step) {
    for (std::int64_t j = 0; j < count; j += kTileWidth) {
      for (std::int64_t i = 0; i < P; ++i) {
        const T* const ahead = w + (step * P + i + kPrefetchRows) * stride + j;
        prefetch_line(ahead);
        prefetch_line(ahead + kTileWidth / 2);
      }
      Word* const out = packed + j * steps + step * kTileWidth;
      if (j + kTileWidth <= count) {
        store_words(out, load_step<E, kTileWidth>(w + j, stride, step));
        continue;
      }
      for (int i = 0; i < kTileWidth; i += 8) {
        store_words(out + i, j + i < count ? load_step<E, 8>(w + j + i, stride, step) : Words<8>());
      }
    }
  }
}

// sums (kTileRows, stride) = or += a (steps, kTileRows) times w (steps, kTileWidth), both packed.
// The tile consists of the compiler's vectors and every loop over it is unrolled, or it would be
// stored to memory in each step.
template <class E>
[[gnu::noinline]] void multiply_tile(float* sums, std::int64_t stride, const Word* a, const Word* w,
                                     std::int64_t steps, bool add) {
  constexpr int V = kRegisterFloats;
  using Register = typename host::Simd<V>::Float;
  using WordRegister = typename host::Simd<V>::Bits;
  Register tile[kTileRows][2];
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) tile[r][0] = tile[r][1] = Register{};
  for (std::int64_t k = 0; k < steps; ++k) {
    WordRegister w0, w1;
    std::memcpy(&w0, w, sizeof w0);
    std::memcpy(&w1, w + V, sizeof w1);
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
      const WordRegister x = a[r] - WordRegister{};
      tile[r][0] = host::add_words<E, V>(tile[r][0], x, w0);
      tile[r][1] = host::add_words<E, V>(tile[r][1], x, w1);
    }
    a += kTileRows;
    w += kTileWidth;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
    float* const row = sums + r * stride;
    if (add) tile[r][0] = host::load_register<V>(row) + tile[r][0];
    if (add) tile[r][1] = host::load_register<V>(row + V) + tile[r][1];
    host::store_register<V>(row, tile[r][0]);
    host::store_register<V>(row + V, tile[r][1]);
  }
}

// ---- logits --------------------------------------------------------------------------------

// Row j of w (N, K) in words of E from word k on, `count` of them and zeros.
template <class E, int N, class T>
__forceinline__ Words<N> load_row_words(const T* w, std::int64_t count = N) {
  constexpr int P = kWordNumbers<E>;
  if (count >= N) {
    if constexpr (P == 2) {
      return load_words<N>(reinterpret_cast<const Word*>(w));
    } else {
      return words_of(load_floats<N>(w));
    }
  }
  Word words[N] = {};
  for (std::int64_t i = 0; i < count; i += 4) {
    if constexpr (P == 2) {
      std::memcpy(words + i, w + i * P, 4 * sizeof(Word));
    } else {
      store_words(words + i, words_of(load_floats<4>(w + i)));
    }
  }
  return load_words<N>(words);
}

// out[r * stride] = dot product of row r of a (kRows, K) and w (K).
template <class E, int kRows, class T>
[[gnu::noinline]] void dot_products(float* out, std::int64_t stride, const Word* a, const T* w,
                                    std::int64_t K) {
  constexpr int P = kWordNumbers<E>;
  const std::int64_t words = K / P;
  Floats<kLanes> sums[kRows];
  std::int64_t k = 0;
  for (; k + kLanes <= words; k += kLanes) {
    const auto x = load_row_words<E, kLanes>(w + k * P);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
      sums[r] = add_products<E>(sums[r], load_words<kLanes>(a + r * words + k), x);
  }
  if (k < words) {
    // Products of zeros change no sum.
    const auto x = load_row_words<E, kLanes>(w + k * P, words - k);
    for (int r = 0; r < kRows; ++r) {
      Word y[kLanes] = {};
      std::copy_n(a + r * words + k, words - k, y);
      sums[r] = add_products<E>(sums[r], load_words<kLanes>(y), x);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) out[r * stride] = sum_of(sums[r]);
}

// Many rows have a register tile per lane instead, whose columns are columns of the result: sums of
// a lane, over words lane, lane + kLanes, ..., need no addition within a register.

// Steps of a lane; the last one may be beyond the row's words.
inline std::int64_t lane_steps(std::int64_t words) {
  return ceil_div(words, std::int64_t{kLanes});
}

// packed (kLanes, steps of a lane, kTileWidth) = the transposed w (count, K). Columns from `count`
// on and steps beyond K are 0.
template <class E, class T>
[[gnu::noinline]] void pack_lanes(Word* packed, const T* w, std::int64_t K, std::int64_t count) {
  constexpr int P = kWordNumbers<E>;
  const std::int64_t words = K / P, steps = lane_steps(words);
  for (int column = 0; column < kTileWidth; column += 8) {
    for (std::int64_t k = 0; k < steps * kLanes; k += 8) {
      Floats<8> rows[8], columns[8];
      for (int j = 0; j < 8; ++j) {
        if (k >= words || column + j >= count) continue;
        const T* const row = w + (column + j) * K + k * P;
        prefetch_line(row + 8 * K);
        rows[j] = floats_in(load_row_words<E, 8>(row, words - k));
      }
      transpose(columns, rows);
      for (int j = 0; j < 8; ++j) {
        const std::int64_t step = (k % kLanes + j) * steps + k / kLanes;
        store_words(packed + step * kTileWidth + column, words_of(columns[j]));
      }
    }
  }
}

// out (rows, stride) = a times w, `columns` columns of a tile, both packed by lanes. `sums` holds
// kLanes / 2 tiles. The lanes are added by halves, as sum_of does.
template <class E>
[[gnu::noinline]] void multiply_lanes(float* out, std::int64_t stride, std::int64_t rows,
                                      std::int64_t columns, const Word* a, const Word* w,
                                      std::int64_t steps, float* sums) {
  constexpr int kTile = kTileRows * kTileWidth, V = kRegisterFloats;
  for (int lane = 0; lane < kLanes; ++lane) {
    multiply_tile<E>(sums + lane % (kLanes / 2) * kTile, kTileWidth, a + lane * steps * kTileRows,
                     w + lane * steps * kTileWidth, steps, lane >= kLanes / 2);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t j = 0; j < columns; j += V) {
      Floats<V> x[kLanes / 2];
      for (int i = 0; i < kLanes / 2; ++i)
        x[i] = load_floats<V>(sums + i * kTile + r * kTileWidth + j);
      for (int half = kLanes / 4; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) x[i] += x[i + half];
      }
      store_floats_up_to(out + r * stride + j, x[0], columns - j);
    }
  }
}

}  // namespace llmc::host_rows
