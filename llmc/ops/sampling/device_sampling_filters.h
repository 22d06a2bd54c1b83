// Bias, penalties and filters of a work row, by one block. All threads of the block call each
// function. A function ends with a barrier if it writes.
//
// A filter keeps the prefix of an order: by a value, the highest first; equal values by lower id
// first. No sort is needed: a binary search over the order-preserving integers of the values finds
// the last value of the prefix. A second search, over ids, divides equal values.
#pragma once

#include <cstdint>

#include "llmc/ops/sampling/device_sampling_row.h"

namespace llmc::sampling {

// A row during sampling: logits after bias, penalties and filters, and weights proportional to
// probabilities.
struct WorkRow {
  float* logits;
  float* weights;
  std::int64_t columns;  // round_up(V, kRowAlignment)
};

// Copies V raw logits.
__device__ __forceinline__ void copy_logits(const WorkRow& row, const float* raw, std::int64_t V) {
  for_each_vector(row.columns, [&](std::int64_t c) {
    const std::int64_t count = V - c;
    const Vector x = load_floats_up_to<kVector>(raw + c, count);
    const int last = count < kVector ? static_cast<int>(count) - 1 : kVector - 1;
    store_floats(row.logits + c, keep_range(x, 0, last, -kInfinity));
  });
  block_barrier();
}

// Adds n numbers to the logits of distinct ids.
__device__ __forceinline__ void add_bias(const WorkRow& row, std::int64_t V,
                                         const std::int32_t* ids, const float* values,
                                         std::int64_t n) {
  const int threads = cooperating_threads(block_size());
  for (std::int64_t i = thread_index(); i < n; i += threads) {
    if (ids[i] >= 0 && ids[i] < V) row.logits[ids[i]] += values[i];
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
    float x = row.logits[id];
    x = x > 0 ? x / penalties.repeat : x * penalties.repeat;
    x -= static_cast<float>(count) * penalties.frequency + penalties.presence;
    row.logits[id] = x;
  }
  block_barrier();
}

__device__ __forceinline__ float max_logit(const WorkRow& row, const BlockMemory& memory) {
  return row_max(row.columns, memory,
                 [&](std::int64_t c) { return load_floats<kVector>(row.logits + c); });
}

// Writes weights exp((logit - max) / temperature). Returns their sum.
__device__ __forceinline__ float compute_weights(const WorkRow& row, float max, float temperature,
                                                 const BlockMemory& memory) {
  const float sum = row_sum(row.columns, memory, [&](std::int64_t c) {
    const Vector distance = load_floats<kVector>(row.logits + c) - max;
    const Vector weights = accurate_exp(distance / Vector(temperature));
    store_floats(row.weights + c, weights);
    return weights;
  });
  block_barrier();
  return sum;
}

// Drops the columns where keep(c), a Vector, is 0. Other elements of keep(c) are 1.
template <class Keep>
__device__ __forceinline__ void drop_others(const WorkRow& row, bool has_weights, Keep&& keep) {
  for_each_vector(row.columns, [&](std::int64_t c) {
    const Vector kept = keep(c);
    const Vector logits = load_floats<kVector>(row.logits + c);
    store_floats(row.logits + c, equal(kept, 1.0f, logits, Vector(-kInfinity)));
    if (has_weights) store_floats(row.weights + c, kept * load_floats<kVector>(row.weights + c));
  });
  block_barrier();
}

// Keeps the shortest prefix whose mass reaches `target`. value(c) and mass(c) return Vectors;
// max_value is the highest value. The mass of all columns is at least `target`, which is above 0.
// If kCounts, all masses are 1.
template <bool kCounts, class Value, class Mass>
__device__ __forceinline__ void keep_prefix(const WorkRow& row, bool has_weights, float max_value,
                                            float target, const BlockMemory& memory, Value&& value,
                                            Mass&& mass) {
  const Vector zero;
  const auto mass_from = [&](float threshold) {
    return row_sum(row.columns, memory,
                   [&](std::int64_t c) { return at_least(value(c), threshold, mass(c), zero); });
  };
  // The mass from `low` on reaches the target, and the mass from `high` on does not.
  std::uint32_t low = order_key(kLowest), high = order_key(max_value) + 1;
  float above = 0;  // mass from `high` on
  while (high - low > 1) {
    const std::uint32_t middle = low + (high - low) / 2;
    const float reached = mass_from(from_order_key(middle));
    if (reached >= target) {
      low = middle;
      // Masses of 1 are exact, so all columns from `low` on are the prefix. None of them is a tie
      // that must be divided.
      if (kCounts && reached == target) break;
    } else {
      high = middle;
      above = reached;
    }
  }
  const float last = from_order_key(low);
  const auto equal_below = [&](std::int64_t c, std::int64_t bound, const Vector& x) {
    const std::int64_t count = bound - c;
    const int end = count < kVector ? static_cast<int>(count) : kVector;
    return keep_range(equal(value(c), last, x, zero), 0, end - 1, 0.0f);
  };
  std::int64_t bound = row.columns;  // ids from here on are dropped if their value is `last`
  const float ties = row_sum(row.columns, memory,
                             [&](std::int64_t c) { return equal_below(c, bound, Vector(1.0f)); });
  const bool is_divided = ties > 1 && high - low == 1;
  for (std::int64_t first = 0; is_divided && bound - first > 1;) {
    const std::int64_t middle = first + (bound - first) / 2;
    const float part = row_sum(row.columns, memory,
                               [&](std::int64_t c) { return equal_below(c, middle, mass(c)); });
    (above + part >= target ? bound : first) = middle;
  }
  drop_others(row, has_weights, [&](std::int64_t c) {
    const Vector v = value(c), one(1.0f);
    const Vector greater = at_least(v, last, one, zero) - equal(v, last, one, zero);
    return greater + equal_below(c, bound, one);
  });
}

// Keeps the k highest logits.
__device__ __forceinline__ void keep_top_k(const WorkRow& row, std::int32_t k,
                                           const BlockMemory& memory) {
  const auto value = [&](std::int64_t c) { return load_floats<kVector>(row.logits + c); };
  const auto one = [](std::int64_t) { return Vector(1.0f); };
  const float count = row_sum(row.columns, memory, [&](std::int64_t c) {
    return at_least(value(c), kLowest, Vector(1.0f), Vector());
  });
  if (count <= static_cast<float>(k)) return;
  keep_prefix<true>(row, false, max_logit(row, memory), static_cast<float>(k), memory, value, one);
}

__device__ __forceinline__ float weight_sum(const WorkRow& row, const BlockMemory& memory) {
  return row_sum(row.columns, memory,
                 [&](std::int64_t c) { return load_floats<kVector>(row.weights + c); });
}

// Keeps the likeliest tokens until their probability reaches p.
__device__ __forceinline__ void keep_top_p(const WorkRow& row, float p, const BlockMemory& memory) {
  const float target = std::fmax(p * weight_sum(row, memory), 1e-30f);
  keep_prefix<false>(
      row, true, max_logit(row, memory), target, memory,
      [&](std::int64_t c) { return load_floats<kVector>(row.logits + c); },
      [&](std::int64_t c) { return load_floats<kVector>(row.weights + c); });
}

// Keeps the tokens whose -log(probability) is nearest to the entropy, until their probability
// reaches p (Meister, Pimentel, Wiher and Cotterell, "Locally typical sampling", 2023). `max` is
// the highest logit, to which the weights are relative.
__device__ __forceinline__ void keep_typical(const WorkRow& row, float p, float max,
                                             const BlockMemory& memory) {
  const float sum = weight_sum(row, memory);
  // Entropy = log(sum) + mean distance, where distance = max - logit. A surprise is log(sum) +
  // distance, so log(sum) cancels. The limit turns 0 * infinity of dropped tokens into 0.
  const float weighted = row_sum(row.columns, memory, [&](std::int64_t c) {
    const Vector below = load_floats<kVector>(row.logits + c) - max;
    return load_floats<kVector>(row.weights + c) * max_elements(below, Vector(-1e4f));
  });
  const float mean = weighted / sum;
  const auto value = [&](std::int64_t c) {
    const Vector excess = load_floats<kVector>(row.logits + c) - max - mean;
    return at_least(excess, 0.0f, Vector() - excess, excess);
  };
  const float target = std::fmax(p * sum, 1e-30f);
  keep_prefix<false>(row, true, row_max(row.columns, memory, value), target, memory, value,
                     [&](std::int64_t c) { return load_floats<kVector>(row.weights + c); });
}

// Keeps the tokens whose probability is at least p times the highest one.
__device__ __forceinline__ void keep_min_p(const WorkRow& row, float p, const BlockMemory& memory) {
  const auto weights = [&](std::int64_t c) { return load_floats<kVector>(row.weights + c); };
  const float least = p * row_max(row.columns, memory, weights);
  drop_others(row, true,
              [&](std::int64_t c) { return at_least(weights(c), least, Vector(1.0f), Vector()); });
}

}  // namespace llmc::sampling
