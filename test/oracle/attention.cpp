#include "test/oracle/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace llmc::oracle {

namespace {

// First key that query (b, i) may see: 0, or the value in doc_start (B, T).
Index first_key(const Ints& doc_start, Index b, Index T, Index i) {
  return doc_start.empty() ? 0 : doc_start.at(b * T + i);
}

double scale_or_default(std::optional<double> scale, Index HS) {
  return scale.value_or(1 / std::sqrt(static_cast<double>(HS)));
}

}  // namespace

AttentionRow attention_row(const Vec& qkv, const PackedQkv& layout, Index b, Index h, Index i,
                           Index first, std::optional<double> scale) {
  if (first < 0 || first > i) throw std::invalid_argument("oracle: doc_start beyond its query");
  const double factor = scale_or_default(scale, layout.HS);
  AttentionRow row{Vec(i + 1), 0};
  double max_score = -std::numeric_limits<double>::infinity();
  for (Index j = first; j <= i; ++j) {
    double dot = 0;
    for (Index d = 0; d < layout.HS; ++d)
      dot += qkv[layout.q(b, i, h) + d] * qkv[layout.k(b, j, h) + d];
    row.probability[j] = dot * factor;
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

Attention attention_forward(const Vec& qkv, Index B, Index T, Index NH, Index HS,
                            const Ints& doc_start, const AttentionFactor& factor, Index first_query,
                            std::optional<double> scale) {
  const PackedQkv layout{T, NH, HS};
  expect_size("qkv", qkv.size(), B * T * 3 * layout.C());
  Attention y{Vec(B * T * layout.C()), Vec(B * NH * T)};
  for (Index b = 0; b < B; ++b) {
    for (Index h = 0; h < NH; ++h) {
      for (Index i = first_query; i < T; ++i) {
        const Index first = first_key(doc_start, b, T, i);
        const AttentionRow row = attention_row(qkv, layout, b, h, i, first, scale);
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

Vec attention_backward(const Vec& d_out, const Vec& qkv, Index B, Index T, Index NH, Index HS,
                       const Ints& doc_start, const AttentionFactor& factor, Index first_query,
                       std::optional<double> scale) {
  const PackedQkv layout{T, NH, HS};
  expect_size("qkv", qkv.size(), B * T * 3 * layout.C());
  expect_size("d_out", d_out.size(), B * T * layout.C());
  const double score_factor = scale_or_default(scale, HS);
  Vec d_qkv(qkv.size());
  for (Index b = 0; b < B; ++b) {
    for (Index h = 0; h < NH; ++h) {
      for (Index i = first_query; i < T; ++i) {
        const Index first = first_key(doc_start, b, T, i);
        const Vec p = attention_row(qkv, layout, b, h, i, first, scale).probability;
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
          const double d_score = p[j] * (d_p[j] - mean) * score_factor;
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
