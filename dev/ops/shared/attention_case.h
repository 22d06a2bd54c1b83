// Shapes, documents, dropout and tolerances of the cases of attention, and the parts of their
// arrays that are compared with the oracle.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "dev/harness/op_case.h"
#include "llmc/ops/dropout.h"
#include "test/oracle/dropout.h"
#include "test/oracle/ops.h"

namespace llmc_dev::attention {

namespace oracle = llmc::oracle;

constexpr double kGpt2Rate = 0.1;  // GPT-2's dropout rate

struct Shape {
  std::int64_t B, T, NH, HS;
  bool documents = false;
  double rate = 0;       // of the variants with dropout; 0: there are none
  double sharpness = 1;  // standard deviation of the scores
  bool fp16 = true;
  std::int64_t first_head = 0;  // head of the model that is head 0: it selects the dropout mask

  std::int64_t C() const { return NH * HS; }
  std::int64_t rows() const { return B * T; }
  std::int64_t squares() const { return B * NH * T * T; }
  // Heads and first position compared with the oracle, which would take minutes for all heads of a
  // large shape and for all positions of the longest T. Head h of batch row b is number b * NH + h.
  std::vector<std::int64_t> checked_heads() const {
    return sample(B * NH, squares() < (1 << 20) ? B * NH : 1);
  }
  std::int64_t checked_from() const { return T > 4096 ? T - 512 : 0; }
  std::string text() const {
    char other_rate[32] = "";
    if (rate > 0 && rate != kGpt2Rate) {
      std::snprintf(other_rate, sizeof other_rate, " rate %g", rate);
    }
    const std::string heads = first_head > 0 ? " heads from " + std::to_string(first_head) : "";
    return "B " + std::to_string(B) + " T " + std::to_string(T) + " " + by(NH, HS) +
           (documents ? " documents" : "") + (sharpness > 1 ? " sharp" : "") + other_rate + heads;
  }
  // FLOP of one product over the visible half of every head's (T, T) matrix: 2 * HS per element.
  double product_flops() const { return static_cast<double>(squares()) * static_cast<double>(HS); }
};

// The position at which each token's document starts, (B, T). Documents have 1 to about T / 3
// tokens: their edges lie inside tiles, on tile edges, and more than a tile from the diagonal.
inline std::vector<std::int32_t> document_starts(Shape s) {
  std::mt19937_64 bits(77);
  const auto longest = static_cast<std::uint64_t>(s.T / 3 + 1);
  std::vector<std::int32_t> starts;
  for (std::int64_t b = 0; b < s.B; ++b) {
    std::int64_t start = 0, next = 0;
    for (std::int64_t t = 0; t < s.T; ++t) {
      if (t == next) {
        start = t;
        next = t + 1 + static_cast<std::int64_t>(bits() % longest);
      }
      starts.push_back(static_cast<std::int32_t>(start));
    }
  }
  return starts;
}

// All values that a dropout mask depends on are far from zero, and sample numbers cross 2^32 within
// a batch of two.
constexpr std::uint64_t kSeed = 0xfedcba9876543210;
constexpr std::int64_t kStep = 77, kSite = 7, kFirstSample = (std::int64_t{1} << 32) - 1;

inline llmc::Dropout dropout(Shape s) {
  llmc::Dropout dropout = llmc::make_dropout(s.rate, kSeed, kStep, kSite, kFirstSample);
  dropout.first_plane = static_cast<std::uint32_t>(s.first_head);
  return dropout;
}

// For the oracle each checked head is a batch row with one head. These functions return the
// document starts of these rows, and the dropout factors of their probabilities.
inline oracle::Ints starts_of_heads(Shape s) {
  oracle::Ints starts;
  if (!s.documents) return starts;
  const auto all = document_starts(s);
  for (const std::int64_t head : s.checked_heads()) {
    const auto from = all.begin() + head / s.NH * s.T;
    starts.insert(starts.end(), from, from + s.T);
  }
  return starts;
}
inline oracle::AttentionFactor factor_of_heads(Shape s) {
  const oracle::Dropout definition{.seed = kSeed, .step = kStep, .first_sample = kFirstSample};
  return [=, heads = s.checked_heads()](std::int64_t row, std::int64_t, std::int64_t i,
                                        std::int64_t j) {
    const std::int64_t head = heads.at(static_cast<std::size_t>(row));
    return definition.factor(s.rate, kSite, head / s.NH, i, j, s.first_head + head % s.NH);
  };
}

// fp32: a score sums over HS columns, an output over up to T keys; twice what roundings of either
// sign add up to is allowed. The rounding error of a score grows with the score, and becomes a
// relative error of the probability.
//
// Half precision: one rounding costs 0.72 kRounding / sqrt(3) of a tensor's norm; 0.72 is the mean
// over mantissas. out and d_v see two roundings (the probabilities, the result), d_q and d_k three
// (out, the score gradients, the result); twice that is allowed. Dropout scales the expected values
// and the errors alike.
//
// Standard attention also stores its scores and probabilities: one more rounding for out and d_v,
// two for d_q and d_k, relative to the size of a score. In the few checked positions of a long
// sequence the largest scores, up to 4, weigh most.
//
// The tolerance of the log-sum-exp is the absolute error of the largest scores.
struct Tolerances {
  double out, lse, d_qk, d_v;
};
template <class T>
Tolerances tolerances(Shape s, bool standard) {
  const double fp32 =
      s.sharpness *
      (4 + std::sqrt(static_cast<double>(s.HS)) + std::sqrt(static_cast<double>(s.T))) * 0x1p-24;
  if (sizeof(T) == 4) return {fp32, 4 * fp32, fp32, fp32};
  const double rounding = 2 * 0.72 * kRounding<T> / std::sqrt(3.0) * (standard ? s.sharpness : 1.0);
  const double exponential = 4 * 0x1p-22;  // from the GPU's approximate exponential
  // Rounding of a stored score, which may be as large as 4 standard deviations.
  const double score = 4 * s.sharpness * kRounding<T>;
  const double more = !standard ? 0.0 : s.checked_from() == 0 ? 1.0 : 16.0;
  return {rounding * std::sqrt(2 + more), 4 * fp32 + (standard ? score : exponential),
          rounding * std::sqrt(3 + 2 * more), rounding * std::sqrt(2 + more)};
}

// The checked heads of x (B*T, parts * C), as (heads, T, parts * HS).
template <class T>
oracle::Vec heads_of(Shape s, const DeviceArray<T>& x, std::int64_t parts) {
  const std::int64_t width = parts * s.C();
  oracle::Vec heads;
  for (const std::int64_t head : s.checked_heads()) {
    const oracle::Vec row = x.values(head / s.NH * s.T * width, s.T * width);
    for (std::int64_t i = 0; i < s.T * parts; ++i) {  // part i % parts of position i / parts
      const auto from = row.begin() + i * s.C() + head % s.NH * s.HS;
      heads.insert(heads.end(), from, from + s.HS);
    }
  }
  return heads;
}

// The checked positions of one part of x (heads, T, parts * width).
inline oracle::Vec checked(Shape s, const oracle::Vec& x, std::int64_t width, std::int64_t part = 0,
                           std::int64_t parts = 1) {
  oracle::Vec out;
  for (std::int64_t row = 0; row < std::ssize(x) / (parts * width); ++row) {
    if (row % s.T < s.checked_from()) continue;
    const auto from = x.begin() + (row * parts + part) * width;
    out.insert(out.end(), from, from + width);
  }
  return out;
}

// Compares by the largest error: the log-sum-exp of one key may be near zero.
inline Comparison compare_lse(const oracle::Vec& actual, const oracle::Vec& expected,
                              double allowed) {
  Comparison comparison = compare("lse (largest error)", actual, expected, allowed);
  comparison.rel_l2 = comparison.max_abs;
  return comparison;
}

// Compares a gradient. If every query sees only itself, the terms of the gradients of q and k
// cancel to zero, and the error is relative to 1, the size of the terms.
inline Comparison compare_gradient(const char* name, oracle::Vec actual, oracle::Vec expected,
                                   double allowed) {
  if (oracle::sum_of_squares(expected) == 0) {
    for (double& x : actual) ++x;
    for (double& x : expected) ++x;
  }
  return compare(name, actual, expected, allowed);
}

}  // namespace llmc_dev::attention
