// Causal self-attention in double precision, forward and backward, with optional documents. ops.h
// includes this file.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "test/oracle/dropout.h"

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

// First key that query (b, i) may see: 0, or the value in doc_start (B, T).
inline Index first_key(const Ints& doc_start, Index b, Index T, Index i) {
  return doc_start.empty() ? 0 : doc_start.at(b * T + i);
}

struct AttentionRow {
  Vec probability;  // (i + 1): softmax over keys 0 .. i, zero before the document's start
  double log_sum_exp = 0;
};

// Softmax of q . k / sqrt(HS) of one query over the keys that it sees, `first` .. i.
inline AttentionRow attention_row(const Vec& qkv, const PackedQkv& layout, Index b, Index h,
                                  Index i, Index first) {
  if (first < 0 || first > i) throw std::invalid_argument("oracle: doc_start beyond its query");
  const double scale = 1 / std::sqrt(static_cast<double>(layout.HS));
  AttentionRow row{Vec(i + 1), 0};
  double max_score = -std::numeric_limits<double>::infinity();
  for (Index j = first; j <= i; ++j) {
    double dot = 0;
    for (Index d = 0; d < layout.HS; ++d)
      dot += qkv[layout.q(b, i, h) + d] * qkv[layout.k(b, j, h) + d];
    row.probability[j] = dot * scale;
    max_score = std::max(max_score, row.probability[j]);
  }
  double sum = 0;
  for (Index j = first; j <= i; ++j) sum += std::exp(row.probability[j] - max_score);
  row.log_sum_exp = max_score + std::log(sum);
  for (Index j = first; j <= i; ++j) {
    row.probability[j] = std::exp(row.probability[j] - row.log_sum_exp);
  }
  return row;
}

struct Attention {
  Vec out;          // (B, T, C)
  Vec log_sum_exp;  // (B, NH, T), natural logarithm, of the scaled scores
};

// qkv (B, T, 3C). Query i sees key j of the same batch row if doc_start[b * T + i] <= j <= i; an
// empty doc_start means one document per row (all zeros). `factor` multiplies the probabilities
// after the softmax: dropout. Queries before `first_query` are skipped, and their results are zero.
inline Attention attention_forward(const Vec& qkv, Index B, Index T, Index NH, Index HS,
                                   const Ints& doc_start = {}, const AttentionFactor& factor = {},
                                   Index first_query = 0) {
  const PackedQkv layout{T, NH, HS};
  expect_size("qkv", qkv.size(), B * T * 3 * layout.C());
  Attention y{Vec(B * T * layout.C()), Vec(B * NH * T)};
  for (Index b = 0; b < B; ++b) {
    for (Index h = 0; h < NH; ++h) {
      for (Index i = first_query; i < T; ++i) {
        const Index first = first_key(doc_start, b, T, i);
        const AttentionRow row = attention_row(qkv, layout, b, h, i, first);
        y.log_sum_exp[(b * NH + h) * T + i] = row.log_sum_exp;
        for (Index j = first; j <= i; ++j) {
          const double dropout_factor = factor ? factor(b, h, i, j) : 1;
          for (Index d = 0; d < HS; ++d) {
            y.out[layout.out(b, i, h) + d] +=
                dropout_factor * row.probability[j] * qkv[layout.v(b, j, h) + d];
          }
        }
      }
    }
  }
  return y;
}

// d_out (B, T, C); returns d_qkv (B, T, 3C), packed like qkv. Through the softmax:
// d_score[j] = p[j] * (dp[j] - sum_j' p[j'] dp[j']) with dp[j] = factor[j] d_out . v[j]. Queries
// before `first_query` are skipped. This does not change the rows from `first_query` on, because no
// query sees a later key.
inline Vec attention_backward(const Vec& d_out, const Vec& qkv, Index B, Index T, Index NH,
                              Index HS, const Ints& doc_start = {},
                              const AttentionFactor& factor = {}, Index first_query = 0) {
  const PackedQkv layout{T, NH, HS};
  expect_size("qkv", qkv.size(), B * T * 3 * layout.C());
  expect_size("d_out", d_out.size(), B * T * layout.C());
  const double scale = 1 / std::sqrt(static_cast<double>(HS));
  Vec d_qkv(qkv.size());
  for (Index b = 0; b < B; ++b) {
    for (Index h = 0; h < NH; ++h) {
      for (Index i = first_query; i < T; ++i) {
        const Index first = first_key(doc_start, b, T, i);
        const Vec p = attention_row(qkv, layout, b, h, i, first).probability;
        const double* grad = &d_out[layout.out(b, i, h)];
        Vec d_p(i + 1);
        double mean = 0;
        for (Index j = first; j <= i; ++j) {
          const double dropout_factor = factor ? factor(b, h, i, j) : 1;
          for (Index d = 0; d < HS; ++d) {
            d_p[j] += dropout_factor * grad[d] * qkv[layout.v(b, j, h) + d];
            d_qkv[layout.v(b, j, h) + d] += dropout_factor * p[j] * grad[d];
          }
          mean += p[j] * d_p[j];
        }
        for (Index j = first; j <= i; ++j) {
          const double d_score = p[j] * (d_p[j] - mean) * scale;
          for (Index d = 0; d < HS; ++d) {
            d_qkv[layout.q(b, i, h) + d] += d_score * qkv[layout.k(b, j, h) + d];
            d_qkv[layout.k(b, j, h) + d] += d_score * qkv[layout.q(b, i, h) + d];
          }
        }
      }
    }
  }
  return d_qkv;
}

}  // namespace llmc::oracle
