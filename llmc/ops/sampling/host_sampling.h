// Choice of the next token, on the host and in fp64: it processes one row of logits, and its steps
// are easy to follow. Samples of training use sample_token, which knows temperature and top-k only.
// sample_token_reference defines all options.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/device/dtype.h"
#include "llmc/ops/sampling/options.h"

namespace llmc {

// Returns the id with the highest logit; the lowest id wins a tie.
template <class T>
std::int32_t likeliest_token(const std::vector<T>& logits) {
  std::size_t best = 0;
  for (std::size_t id = 1; id < logits.size(); ++id) {
    if (to_float(logits[id]) > to_float(logits[best])) best = id;
  }
  return static_cast<std::int32_t>(best);
}

// Returns the ids of the k highest logits, ascending; all ids if k is 0 or less.
template <class T>
std::vector<std::int32_t> top_k_tokens(const std::vector<T>& logits, std::int64_t k) {
  std::vector<std::int32_t> ids(logits.size());
  for (std::size_t id = 0; id < ids.size(); ++id) ids[id] = static_cast<std::int32_t>(id);
  if (k <= 0 || k >= static_cast<std::int64_t>(ids.size())) return ids;
  const auto is_likelier = [&](std::int32_t a, std::int32_t b) {
    const float x = to_float(logits[a]), y = to_float(logits[b]);
    return x != y ? x > y : a < b;
  };
  std::nth_element(ids.begin(), ids.begin() + k, ids.end(), is_likelier);
  ids.resize(static_cast<std::size_t>(k));
  std::sort(ids.begin(), ids.end());
  return ids;
}

// Draws one id from softmax(logits / temperature), restricted to the top k. `uniform` is in (0, 1);
// the result is the first id at which the cumulative probability reaches it. The same arguments
// always return the same id. `logits` are finite and not empty.
template <class T>
std::int32_t sample_token(const std::vector<T>& logits, const SamplingOptions& options,
                          double uniform) {
  if (options.temperature == 0) return likeliest_token(logits);
  const std::vector<std::int32_t> ids = top_k_tokens(logits, options.top_k);
  const auto logit = [&](std::int32_t id) { return static_cast<double>(to_float(logits[id])); };
  double max_logit = -INFINITY;
  for (const std::int32_t id : ids) max_logit = std::max(max_logit, logit(id));
  const auto weight = [&](std::int32_t id) {
    return std::exp((logit(id) - max_logit) / options.temperature);
  };
  double total = 0;
  for (const std::int32_t id : ids) total += weight(id);
  double remainder = uniform * total;
  for (const std::int32_t id : ids) {
    remainder -= weight(id);
    if (remainder <= 0) return id;
  }
  return ids.back();  // rounding left a small remainder
}

// Throws an Error if a logit is not finite, because no token can be drawn then.
template <class T>
void require_finite(const std::vector<T>& logits) {
  for (const T& x : logits) {
    if (std::isfinite(to_float(x))) continue;
    fail("the model's output is not finite",
         "check whether the weights are damaged or too large for this " + quantity("dtype"));
  }
}

// ---- definition of sampling on the device ---------------------------------------------------

// The tokens that may be drawn, by ascending id, with their probabilities; and the drawn one.
struct ReferenceSample {
  std::vector<std::int32_t> ids;
  std::vector<double> probabilities;
  std::int32_t token = -1;
};

namespace reference {

// Logits after bias and penalties. `seen` is the whole history of the sequence.
inline std::vector<double> modified_logits(const std::vector<float>& logits,
                                           const SamplingOptions& options,
                                           const std::vector<std::int32_t>& seen) {
  std::vector<double> out(logits.begin(), logits.end());
  for (const auto& [id, value] : options.logit_bias) out[id] += value;
  const std::int64_t n = std::ssize(seen);
  const std::int64_t window = options.repeat_last_n < 0 ? n : std::min(options.repeat_last_n, n);
  std::map<std::int32_t, std::int64_t> counts;
  for (std::int64_t i = n - window; i < n; ++i) ++counts[seen[i]];
  for (const auto& [id, count] : counts) {
    double& x = out[id];
    x = x > 0 ? x / options.repeat_penalty : x * options.repeat_penalty;
    x -= static_cast<double>(count) * options.frequency_penalty + options.presence_penalty;
  }
  return out;
}

// softmax(logits of ids / temperature).
inline std::vector<double> probabilities(const std::vector<double>& logits,
                                         const std::vector<std::int32_t>& ids, double temperature) {
  double max_logit = -INFINITY, total = 0;
  for (const std::int32_t id : ids) max_logit = std::max(max_logit, logits[id]);
  std::vector<double> p;
  for (const std::int32_t id : ids) p.push_back(std::exp((logits[id] - max_logit) / temperature));
  for (const double x : p) total += x;
  for (double& x : p) x /= total;
  return p;
}

// Sorts ids by value, the highest first and equal values by lower id, keeps the shortest prefix
// whose mass reaches `target` (at least one id), and sorts the rest by id again. values[i] and
// masses[i] belong to ids[i], which ascend.
inline std::vector<std::int32_t> shortest_prefix(const std::vector<std::int32_t>& ids,
                                                 const std::vector<double>& values,
                                                 const std::vector<double>& masses, double target) {
  std::vector<std::size_t> order(ids.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return values[a] > values[b]; });
  std::vector<std::int32_t> kept;
  double mass = 0;
  for (const std::size_t i : order) {
    kept.push_back(ids[i]);
    mass += masses[i];
    if (mass >= target) break;
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

inline std::vector<std::int32_t> keep_top_p(const std::vector<double>& logits,
                                            const std::vector<std::int32_t>& ids, double p) {
  const std::vector<double> masses = probabilities(logits, ids, 1);
  return p < 1 ? shortest_prefix(ids, masses, masses, p) : ids;
}

inline std::vector<std::int32_t> keep_typical(const std::vector<double>& logits,
                                              const std::vector<std::int32_t>& ids,
                                              double typical) {
  if (typical >= 1) return ids;
  const std::vector<double> masses = probabilities(logits, ids, 1);
  double entropy = 0;
  for (const double p : masses) entropy -= p > 0 ? p * std::log(p) : 0;
  std::vector<double> values;
  for (const double p : masses) values.push_back(-std::fabs(-std::log(p) - entropy));
  return shortest_prefix(ids, values, masses, typical);
}

inline std::vector<std::int32_t> keep_min_p(const std::vector<double>& logits,
                                            const std::vector<std::int32_t>& ids, double min_p) {
  const std::vector<double> p = probabilities(logits, ids, 1);
  const double least = min_p * *std::max_element(p.begin(), p.end());
  std::vector<std::int32_t> kept;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (p[i] >= least) kept.push_back(ids[i]);
  }
  return kept;
}

}  // namespace reference

// Defines what sample_next_tokens (device_sampling.h) draws: plain steps in fp64, with sorting.
// `seen` is the history of the sequence, and `uniform` is in (0, 1). At least one token is not
// banned; no logit is NaN or +infinity.
inline ReferenceSample sample_token_reference(const std::vector<float>& logits,
                                              const SamplingOptions& options,
                                              const std::vector<std::int32_t>& seen,
                                              double uniform) {
  const std::vector<double> x = reference::modified_logits(logits, options, seen);
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; id < std::ssize(x); ++id) {
    if (x[id] > -INFINITY) ids.push_back(id);
  }
  const auto values = [&] {
    std::vector<double> out;
    for (const std::int32_t id : ids) out.push_back(x[id]);
    return out;
  };
  const bool greedy = is_greedy(options);
  const std::int64_t top_k = greedy ? 1 : options.top_k;
  if (top_k > 0) {
    ids = reference::shortest_prefix(ids, values(), std::vector<double>(ids.size(), 1),
                                     static_cast<double>(top_k));
  }
  ids = reference::keep_typical(x, ids, options.typical);
  ids = reference::keep_top_p(x, ids, options.top_p);
  ids = reference::keep_min_p(x, ids, options.min_p);
  ReferenceSample result{ids, reference::probabilities(x, ids, greedy ? 1 : options.temperature)};
  result.token = ids.back();
  double cumulative = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    cumulative += result.probabilities[i];
    if (cumulative < uniform) continue;
    result.token = ids[i];
    break;
  }
  return result;
}

}  // namespace llmc
