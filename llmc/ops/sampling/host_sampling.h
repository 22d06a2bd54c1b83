// Choice of the next token, on the host and in fp64: it processes one row of logits, and its steps
// are easy to follow.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
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

}  // namespace llmc
