// Filters and draw of one row by plain passes over all of it: the sums of device_sampling.h in the
// same order, and a binary search over all floats for the last value that a filter keeps. The bits
// of its results are those of device_sampling.h, whose passes visit only possible candidates.
#pragma once

#include <cmath>
#include <cstdint>

#include "llmc/device/philox.h"
#include "llmc/ops/sampling/device_sampling.h"
#include "llmc/ops/sampling/device_sampling_search.h"

namespace llmc_test {

using namespace llmc;
using sampling::at_least;
using sampling::equal;
using sampling::for_each_vector;
using sampling::kInfinity;
using sampling::kVector;
using sampling::Vector;

// A row of logits and weights, and the shared memory of its block.
struct ScannedRow {
  float* logits;
  float* weights;
  std::int64_t columns;
  sampling::BlockMemory memory;
  bool has_weights = false;

  template <class F>
  __device__ float sum(F&& f) const {
    ThreadSum<kVector> total;
    Vector part;
    int count = 0;
    for_each_vector(columns, [&](std::int64_t c) {
      part += f(c);
      if (++count % 32 == 0) {
        total.add(part);
        part = Vector();
      }
    });
    total.add(part);
    return block_sum(total.total(), memory.reduction);
  }
  template <class F>
  __device__ float max(F&& f) const {
    Vector greatest(-kInfinity);
    for_each_vector(columns, [&](std::int64_t c) { greatest = max_elements(greatest, f(c)); });
    return block_max(max_of(greatest), memory.reduction);
  }
  __device__ Vector logit(std::int64_t c) const { return load_floats<kVector>(logits + c); }
  __device__ Vector weight(std::int64_t c) const { return load_floats<kVector>(weights + c); }

  __device__ void compute_weights(float max, float temperature) {
    for_each_vector(columns, [&](std::int64_t c) {
      store_floats(weights + c, accurate_exp((logit(c) - max) / Vector(temperature)));
    });
    has_weights = true;
    block_barrier();
  }
  // Drops the columns where keep(c) is 0.
  template <class Keep>
  __device__ void drop_others(Keep&& keep) {
    for_each_vector(columns, [&](std::int64_t c) {
      const Vector kept = keep(c);
      store_floats(logits + c, equal(kept, 1.0f, logit(c), Vector(-kInfinity)));
      if (has_weights) store_floats(weights + c, kept * weight(c));
    });
    block_barrier();
  }
  // Keeps the shortest prefix, by value(c), whose mass reaches the target.
  template <class Value, class Mass>
  __device__ void keep_prefix(float max_value, float target, Value&& value, Mass&& mass) {
    const Vector zero, one(1.0f);
    std::uint32_t low = sampling::order_key(sampling::kLowest);
    std::uint32_t high = sampling::order_key(max_value) + 1;
    float above = 0;
    while (high - low > 1) {
      const std::uint32_t middle = low + (high - low) / 2;
      const float threshold = sampling::from_order_key(middle);
      const float reached =
          sum([&](std::int64_t c) { return at_least(value(c), threshold, mass(c), zero); });
      if (reached < target) above = reached;
      (reached >= target ? low : high) = middle;
    }
    const float last = sampling::from_order_key(low);
    const auto equal_below = [&](std::int64_t c, std::int64_t bound, const Vector& x) {
      const std::int64_t end = bound - c < kVector ? bound - c : kVector;
      return keep_range(equal(value(c), last, x, zero), 0, static_cast<int>(end) - 1, 0.0f);
    };
    std::int64_t bound = columns;
    for (std::int64_t first = 0; bound - first > 1;) {
      const std::int64_t middle = first + (bound - first) / 2;
      const float part = sum([&](std::int64_t c) { return equal_below(c, middle, mass(c)); });
      (above + part >= target ? bound : first) = middle;
    }
    drop_others([&](std::int64_t c) {
      const Vector greater = at_least(value(c), last, one, zero) - equal(value(c), last, one, zero);
      return greater + equal_below(c, bound, one);
    });
  }
};

__device__ inline void scan_top_k(ScannedRow& row, std::int32_t k, float max) {
  const auto value = [&](std::int64_t c) { return row.logit(c); };
  const auto one = [](std::int64_t) { return Vector(1.0f); };
  const float count = row.sum([&](std::int64_t c) {
    return at_least(value(c), sampling::kLowest, Vector(1.0f), Vector());
  });
  if (count > static_cast<float>(k)) row.keep_prefix(max, static_cast<float>(k), value, one);
}

__device__ inline void scan_typical(ScannedRow& row, float p, float max) {
  const float sum = row.sum([&](std::int64_t c) { return row.weight(c); });
  const float weighted = row.sum([&](std::int64_t c) {
    return row.weight(c) * max_elements(row.logit(c) - max, Vector(-1e4f));
  });
  const float mean = weighted / sum;
  const auto value = [&](std::int64_t c) {
    const Vector excess = row.logit(c) - max - mean;
    return at_least(excess, 0.0f, Vector() - excess, excess);
  };
  row.keep_prefix(row.max(value), std::fmax(p * sum, 1e-30f), value,
                  [&](std::int64_t c) { return row.weight(c); });
}

// Draws the token at `position` from row[0 .. V), by one block. Writes it to drawn[0]. `work` holds
// two rows of round_up(V, 32) floats; its logits are those that the filters keep.
template <class = void>
__global__ __launch_bounds__(1024) void scan_and_draw_kernel(std::int32_t* drawn, float* work,
                                                             const float* row, std::int64_t V,
                                                             SlotSampling s,
                                                             std::int32_t position) {
  SharedMemory shared;
  const sampling::BlockMemory memory{shared.take<float>(kBlockScratch),
                                     shared.take<float>(sampling::kSegments),
                                     shared.take<float>(sampling::kGroups), nullptr};
  const std::int64_t columns = round_up(V, sampling::kRowAlignment);
  ScannedRow scan{work, work + columns, columns, memory};
  for_each_vector(columns, [&](std::int64_t c) {
    for (int k = 0; k < kVector; ++k) work[c + k] = c + k < V ? row[c + k] : -kInfinity;
  });
  block_barrier();
  const auto logit = [&](std::int64_t c) { return scan.logit(c); };
  const auto weight = [&](std::int64_t c) { return scan.weight(c); };
  float max = scan.max(logit);
  if (s.top_k > 0) scan_top_k(scan, s.top_k, max);
  scan.compute_weights(max, 1.0f);
  if (s.typical < 1) scan_typical(scan, s.typical, max);
  max = scan.max(logit);
  if (s.top_p < 1) {
    scan.keep_prefix(max, std::fmax(s.top_p * scan.sum(weight), 1e-30f), logit, weight);
  }
  if (s.min_p > 0) {
    const float least = s.min_p * scan.max(weight);
    scan.drop_others(
        [&](std::int64_t c) { return at_least(weight(c), least, Vector(1.0f), Vector()); });
  }
  scan.compute_weights(max, s.temperature);
  const PhiloxBits bits = random_bits(s.seed, RandomPurpose::sampling, 0, s.sample,
                                      static_cast<std::uint64_t>(position));
  const std::int32_t token =
      sampling::draw(scan.weights, columns, uniform_from_bits(bits.words[0]), memory);
  if (thread_index() == 0) drawn[0] = token;
}

}  // namespace llmc_test
