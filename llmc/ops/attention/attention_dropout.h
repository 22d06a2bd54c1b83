// Dropout of attention's probabilities, applied by its kernels to tiles in registers and in shared
// memory.
//
// With m_ij in {0, 1} the mask and s = 1 / (1 - p), the forward pass is
//     out_i = sum_j m_ij s P_ij v_j.
// P is the softmax without dropout: its row sums include all keys. The backward pass is
//     dV_j = sum_i m_ij s P_ij dO_i,   dP_ij = m_ij s dO_i . v_j,
// and through the softmax dS_ij = P_ij (dP_ij - D_i) with
//     D_i = sum_j P_ij dP_ij = dO_i . sum_j m_ij s P_ij v_j = dO_i . out_i.
// So the row terms (attention_row_terms.h) are the same function of the forward pass's outputs as
// without dropout.
//
// A draw yields the bits of four neighbouring keys of one query (dropout.h). In an mma tile no lane
// holds four of them, so lanes draw for each other and exchange words: one draw per four elements.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/attention/attention_tiles.h"
#include "llmc/ops/attention/attention_tiles_fma.h"
#include "llmc/ops/dropout.h"

namespace llmc {

// Returns the mask of a 16-row tile: bit 4n + i is 1 if element v[i] of accumulator n is kept. Rows
// are queries from first_query; columns are keys from first_key (a multiple of 8). Lanes 2u and
// 2u + 1 of a quad share the groups of four keys in rows g and g + 8: the even lane draws row g,
// the odd one row g + 8.
template <int N>
__device__ __forceinline__ std::uint32_t kept_elements(const DropoutMask& mask, int first_query,
                                                       int first_key, int head) {
  static_assert(N <= 8, "a bit for each element");
  const bool odd = lane_part(1, 2) != 0;
  const int row = first_query + tile_row() + (odd ? 8 : 0);
  std::uint32_t keep_bits = 0;
  for (int n = 0; n < N; ++n) {
    const PhiloxBits draw = mask.bits(row, (first_key + 8 * n + tile_column()) / 4, head);
    std::uint32_t own_words[2], partner_words[2];  // of this lane's row and the partner's row
    for (int i = 0; i < 2; ++i) {
      own_words[i] = odd ? draw.words[2 + i] : draw.words[i];
      partner_words[i] = shuffle_xor(odd ? draw.words[i] : draw.words[2 + i], 1);
    }
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t upper = odd ? partner_words[i] : own_words[i];
      const std::uint32_t lower = odd ? own_words[i] : partner_words[i];
      keep_bits |= (mask.keeps(upper) ? 1u : 0u) << (4 * n + i);
      keep_bits |= (mask.keeps(lower) ? 1u : 0u) << (4 * n + 2 + i);
    }
  }
  return keep_bits;
}

// The same for a tile whose rows are keys and whose columns are queries. The four lanes with
// g = 4q .. 4q + 3 and the same columns share the groups of four keys in each of an accumulator's
// elements. The lane with g % 4 = j draws element j and passes each other lane the word of its key.
template <int N>
__device__ __forceinline__ std::uint32_t kept_elements_transposed(const DropoutMask& mask,
                                                                  int first_query, int first_key,
                                                                  int head) {
  static_assert(N <= 8, "a bit for each element");
  const int j = lane_part(4, 4);
  const int group = (first_key + 8 * (j / 2) + tile_row()) / 4;
  std::uint32_t keep_bits = 0;
  for (int n = 0; n < N; ++n) {
    const PhiloxBits draw = mask.bits(first_query + 8 * n + tile_column() + j % 2, group, head);
    for (int d = 0; d < 4; ++d) {
      const int partner = j ^ d;
      const std::uint32_t low = (partner & 1) != 0 ? draw.words[1] : draw.words[0];
      const std::uint32_t high = (partner & 1) != 0 ? draw.words[3] : draw.words[2];
      std::uint32_t word = (partner & 2) != 0 ? high : low;
      if (d != 0) word = shuffle_xor(word, 4 * d);
      keep_bits |= (mask.keeps(word) ? 1u : 0u) << (4 * n + partner);
    }
  }
  return keep_bits;
}

// Multiplies kept elements by `factor` and sets the others to zero.
template <int N>
__device__ __forceinline__ void drop_elements(Accumulator (&c)[N], std::uint32_t keep_bits,
                                              float factor) {
  for (int n = 0; n < N; ++n) {
    for (int i = 0; i < 4; ++i) {
      c[n].v[i] = (keep_bits >> (4 * n + i) & 1u) != 0 ? c[n].v[i] * factor : 0.0f;
    }
  }
}

// Dropout of a warp's rows (queries from first_query) against keys from first_key, in the block's
// head. Multiplies kept elements by `factor` and sets the others to zero.
template <int M, int N>
__device__ __forceinline__ void drop_tiles(Accumulator (&c)[M][N], const DropoutMask& mask,
                                           int first_query, int first_key, float factor) {
  const int head = static_cast<int>(block_y());
  for (int m = 0; m < M; ++m) {
    drop_elements(c[m], kept_elements<N>(mask, first_query + 16 * m, first_key, head), factor);
  }
}

// The factors of kFmaWidth adjacent probabilities of a query, from first_key on.
__device__ __forceinline__ Floats<kFmaWidth> dropout_factors(const DropoutMask& mask, int query,
                                                             int first_key, int head) {
  Vec<float, kFmaWidth> factors;
  for (int j = 0; j < kFmaWidth; j += 4) {
    const PhiloxBits bits = mask.bits(query, (first_key + j) / 4, head);
    for (int i = 0; i < 4; ++i) factors[j + i] = mask.factor(bits.words[i]);
  }
  return to_floats(factors);
}

// Dropout of the probabilities in a shared tile of the FMA kernels, with queries from first_query
// and keys from first_key. Dropped ones become zero, the others do not change. All threads of the
// block call it; kRowLanes neighbouring lanes process a row, as in its softmax.
template <class Tile>
__device__ __forceinline__ void drop_probabilities(const Tile& scores, const DropoutMask& mask,
                                                   int first_query, int first_key, int head) {
  static_assert(Tile::kColumns % (4 * kRowLanes) == 0);
  warp_barrier();  // each lane of a row has written every fourth element of it
  for (int row = bounded_fma_thread() / kRowLanes; row < Tile::kRows;
       row += kFmaThreads / kRowLanes) {
    for (int c = bounded_fma_thread() % kRowLanes * 4; c < Tile::kColumns; c += 4 * kRowLanes) {
      const PhiloxBits bits = mask.bits(first_query + row, (first_key + c) / 4, head);
      Vec<float, 4> p = load_vec<4>(scores.row(row) + c);
      for (int i = 0; i < 4; ++i) p[i] = mask.keeps(bits.words[i]) ? p[i] : 0.0f;
      store_vec(scores.row(row) + c, p);
    }
  }
}

}  // namespace llmc
