// Causal self-attention in double precision, forward and backward, with optional documents. ops.h
// includes this file.
#pragma once

#include <optional>

#include "test/oracle/dropout.h"
#include "test/oracle/vec.h"

namespace llmc::oracle {

// Offsets of one head's parts in qkv (B, T, 3C). Row r = b * T + t holds q, k and v one after the
// other, each C wide; head h has columns h * HS .. (h + 1) * HS - 1 of each.
struct PackedQkv {
  Index T, NH, HS;
  Index C() const { return NH * HS; }
  Index q(Index b, Index t, Index h) const { return (b * T + t) * 3 * C() + h * HS; }
  Index k(Index b, Index t, Index h) const { return q(b, t, h) + C(); }
  Index v(Index b, Index t, Index h) const { return q(b, t, h) + 2 * C(); }
  Index out(Index b, Index t, Index h) const { return (b * T + t) * C() + h * HS; }
};

struct AttentionRow {
  Vec probability;  // (i + 1): softmax over keys 0 .. i, zero before the document's start
  double log_sum_exp = 0;
};

// Softmax of scale * q . k of one query over the keys that it sees, `first` .. i. The scale is
// 1 / sqrt(HS) if it is not given.
AttentionRow attention_row(const Vec& qkv, const PackedQkv& layout, Index b, Index h, Index i,
                           Index first, std::optional<double> scale = {});

struct Attention {
  Vec out;          // (B, T, C)
  Vec log_sum_exp;  // (B, NH, T), natural logarithm, of the scaled scores
};

// qkv (B, T, 3C). Query i sees key j of the same batch row if doc_start[b * T + i] <= j <= i; an
// empty doc_start means one document per row (all zeros). `factor` multiplies the probabilities
// after the softmax: dropout. Queries before `first_query` are skipped, and their results are zero.
// `scale` as in attention_row().
Attention attention_forward(const Vec& qkv, Index B, Index T, Index NH, Index HS,
                            const Ints& doc_start = {}, const AttentionFactor& factor = {},
                            Index first_query = 0, std::optional<double> scale = {});

// d_out (B, T, C); returns d_qkv (B, T, 3C), packed like qkv. Through the softmax:
// d_score[j] = p[j] * (dp[j] - sum_j' p[j'] dp[j']) with dp[j] = factor[j] d_out . v[j]. Queries
// before `first_query` are skipped. This does not change the rows from `first_query` on, because no
// query sees a later key.
Vec attention_backward(const Vec& d_out, const Vec& qkv, Index B, Index T, Index NH, Index HS,
                       const Ints& doc_start = {}, const AttentionFactor& factor = {},
                       Index first_query = 0, std::optional<double> scale = {});

}  // namespace llmc::oracle
