// Bias, penalties and filters of a work row, by one block. All threads of the block call each
// function. A function ends with a barrier if it writes.
#pragma once

#include <cstdint>

#include "llmc/ops/sampling/device_sampling_search.h"

namespace llmc::sampling {

// Copies V raw logits.
__device__ __forceinline__ void copy_logits(const WorkRow& row, const float* raw, std::int64_t V) {
  for_each_vector(row.columns(), [&](int c) {
    const std::int64_t count = V - c;
    const Vector x = load_floats_up_to<kVector>(raw + c, count);
    const int last = count < kVector ? static_cast<int>(count) - 1 : kVector - 1;
    store_floats(row.logits() + c, keep_range(x, 0, last, -kInfinity));
  });
  block_barrier();
}

// Adds n numbers to the logits of distinct ids.
__device__ __forceinline__ void add_bias(const WorkRow& row, std::int64_t V,
                                         const std::int32_t* ids, const float* values,
                                         std::int64_t n) {
  const int threads = cooperating_threads(block_size());
  for (std::int64_t i = thread_index(); i < n; i += threads) {
    if (ids[i] >= 0 && ids[i] < V) row.logits()[ids[i]] += values[i];
  }
  block_barrier();
}

struct Penalties {
  float repeat, presence, frequency;
};

// Applies the penalties to each distinct token of seen[0 .. n).
__device__ __forceinline__ void add_penalties(const WorkRow& row, std::int64_t V,
                                              const std::int32_t* seen, std::int64_t n,
                                              const Penalties& penalties) {
  const int threads = cooperating_threads(block_size());
  for (std::int64_t i = thread_index(); i < n; i += threads) {
    const std::int32_t id = seen[i];
    std::int32_t before = 0, count = 0;
    for (std::int64_t j = 0; j < i; ++j) before += seen[j] == id ? 1 : 0;
    if (before > 0 || id < 0 || id >= V) continue;  // only the first occurrence is counted
    for (std::int64_t j = i; j < n; ++j) count += seen[j] == id ? 1 : 0;
    float x = row.logits()[id];
    x = x > 0 ? x / penalties.repeat : x * penalties.repeat;
    x -= static_cast<float>(count) * penalties.frequency + penalties.presence;
    row.logits()[id] = x;
  }
  block_barrier();
}

__device__ __forceinline__ float max_logit(const WorkRow& row, const BlockMemory& memory) {
  return row.max(memory, [&](int c) { return load_floats<kVector>(row.logits() + c); });
}

// The lowest id with the highest logit, before filters.
__device__ __forceinline__ std::int32_t best_token(const WorkRow& row, float max,
                                                   const BlockMemory& memory) {
  std::int64_t best = row.columns();
  for_each_vector(row.columns(), [&](int c) {
    if (best < row.columns() || max_of(load_floats<kVector>(row.logits() + c)) != max) return;
    for (best = c; row.logits()[best] != max;) ++best;
  });
  return static_cast<std::int32_t>(-block_max(-static_cast<float>(best), memory.reduction));
}

// Writes weights exp((logit - max) / temperature). Returns their sum.
__device__ __forceinline__ float compute_weights(const WorkRow& row, float max, float temperature,
                                                 const BlockMemory& memory) {
  const float sum = row.sum(memory, [&](int c) {
    const Vector distance = load_floats<kVector>(row.logits() + c) - max;
    const Vector weights = accurate_exp(distance / Vector(temperature));
    store_floats(row.weights() + c, weights);
    return weights;
  });
  block_barrier();
  return sum;
}

__device__ __forceinline__ float weight_sum(const WorkRow& row, const BlockMemory& memory) {
  return row.sum(memory, [&](int c) { return load_floats<kVector>(row.weights() + c); });
}

// ---- filters -------------------------------------------------------------------------------
// `max` is the highest logit, and `sum` the sum of all weights.

// Keeps the k highest logits.
__device__ __forceinline__ void keep_top_k(WorkRow& row, std::int32_t k, float max,
                                           const BlockMemory& memory) {
  keep_prefix<true>(
      row, false, max, static_cast<float>(k), memory,
      [&](int c) { return load_floats<kVector>(row.logits() + c); },
      [](std::int64_t) { return Vector(1.0f); });
}

// Keeps the likeliest tokens until their probability reaches p.
__device__ __forceinline__ void keep_top_p(WorkRow& row, float p, float max, float sum,
                                           const BlockMemory& memory) {
  keep_prefix<false>(
      row, true, max, std::fmax(p * sum, 1e-30f), memory,
      [&](int c) { return load_floats<kVector>(row.logits() + c); },
      [&](int c) { return load_floats<kVector>(row.weights() + c); });
}

// Keeps the tokens whose -log(probability) is nearest to the entropy, until their probability
// reaches p (Meister, Pimentel, Wiher and Cotterell, "Locally typical sampling", 2023). The weights
// are relative to `max`.
__device__ __forceinline__ void keep_typical(WorkRow& row, float p, float max, float sum,
                                             const BlockMemory& memory) {
  // Entropy = log(sum) + mean distance, where distance = max - logit. A surprise is log(sum) +
  // distance, so log(sum) cancels. The limit turns 0 * infinity of dropped tokens into 0.
  const float weighted = row.sum(memory, [&](int c) {
    const Vector below = load_floats<kVector>(row.logits() + c) - max;
    return load_floats<kVector>(row.weights() + c) * max_elements(below, Vector(-1e4f));
  });
  const float mean = weighted / sum;
  const auto value = [&](int c) {
    const Vector excess = load_floats<kVector>(row.logits() + c) - max - mean;
    return at_least(excess, 0.0f, Vector() - excess, excess);
  };
  keep_prefix<false>(row, true, row.max(memory, value), std::fmax(p * sum, 1e-30f), memory, value,
                     [&](int c) { return load_floats<kVector>(row.weights() + c); });
}

// Keeps the tokens whose probability is at least p times the highest one.
__device__ __forceinline__ void keep_min_p(WorkRow& row, float p, const BlockMemory& memory) {
  const auto weights = [&](int c) { return load_floats<kVector>(row.weights() + c); };
  const float least = p * row.max(memory, weights);
  row.drop_others(true, [&](int c) { return at_least(weights(c), least, Vector(1.0f), Vector()); });
}

}  // namespace llmc::sampling
