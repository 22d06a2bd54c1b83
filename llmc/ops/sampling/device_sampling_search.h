// Keeps the prefix of an order of a work row's tokens, by one block: by a value, the highest first;
// equal values by lower id first.
//
// No sort is needed. The last value of the prefix is the highest threshold whose mass, the sum of
// the masses of all columns from it on, reaches the target. The search brackets it with
// order-preserving integers of the values. Each pass computes the masses of a few thresholds, and
// removes the vectors below the bracket from the row's list. A second search, over ids, divides
// equal values.
//
// A sum in a fixed order of masses that are not negative does not grow if masses become 0. So the
// result depends on neither the thresholds nor the list.
#pragma once

#include <cstdint>

#include "llmc/ops/sampling/device_sampling_work_row.h"

namespace llmc::sampling {

// Maps floats to integers in the same order, and back. -0 is just below +0, but
// passes compare floats, for which both are equal.
__host__ __device__ __forceinline__ std::uint32_t order_key(float x) {
  const std::uint32_t bits = bits_of(x);
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
__host__ __device__ __forceinline__ float from_order_key(std::uint32_t key) {
  return float_from_bits(key >> 31 != 0 ? key & 0x7fffffffu : ~key);
}

// The mass from `low` on reaches the target, and the mass from `high` on does not.
struct Bracket {
  std::uint32_t low, high;
  float above;  // mass from `high` on
  __device__ __forceinline__ bool is_one_value() const { return high - low == 1; }
};

// Thresholds of a pass. On a GPU, the sums of more would not fit into the registers of a block of
// 1024 threads.
inline constexpr int kThresholds = kOneThreadBlocks ? 4 : 2;

// One pass over the row. lowest and highest are those of the values in the bracket.
struct SearchPass {
  float threshold[kThresholds], mass[kThresholds];
  float lowest, highest;
};

// Chooses the thresholds of a pass; those outside the bracket are ignored. Each pass after the
// first leaves about half of the bracket or less.
__device__ __forceinline__ void choose_thresholds(SearchPass& pass, const Bracket& bracket,
                                                  float max_value, int index) {
  const std::uint32_t width = bracket.high - bracket.low;
  const float middle = from_order_key(bracket.low + width / 2);
  const float low = from_order_key(bracket.low), high = from_order_key(bracket.high - 1);
  if (low == kLowest) {
    // Values are logits: the prefix rarely ends more than 12 below the highest one.
    float step = kThresholds == 4 ? 3 : 8;
    for (int i = 0; i < index; ++i) step *= 8;
    pass.threshold[0] = index == 0 ? kLowest : middle;
    for (int k = 1; k < kThresholds; ++k, step *= 2) pass.threshold[k] = max_value - step;
  } else if (width < 1u << 25) {  // a factor of at most 16
    for (int k = 0; k < kThresholds; ++k) {
      const std::uint64_t part = static_cast<std::uint64_t>(width) * (k + 1) / (kThresholds + 1);
      pass.threshold[k] = from_order_key(bracket.low + static_cast<std::uint32_t>(part));
    }
  } else {
    pass.threshold[0] = middle;
    for (int k = 1; k < kThresholds; ++k) {
      pass.threshold[k] = low + (high - low) * (static_cast<float>(k) / kThresholds);
    }
  }
}

// Computes a pass, whose thresholds are at least `low`. If `shortens`, vectors below `low` leave
// the row's list.
template <class Value, class Mass>
__device__ __forceinline__ void compute_pass(SearchPass& pass, WorkRow& row, float low, float high,
                                             bool shortens, const BlockMemory& memory,
                                             Value&& value, Mass&& mass) {
  ThreadSum<kVector> total[kThresholds];
  Vector part[kThresholds];
  ThreadMax<kVector> negative_lowest, highest;
  int part_index = 0, kept = 0;
  for (int j = 0; j < row.count(); ++j) {
    const int i = row.vector(j);
    const int c = row.column(i);
    const Vector v = value(c);
    if (shortens && max_of(v) < low) {
      row.drop(i);
      continue;
    }
    row.keep(kept++, i);
    if (i / WorkRow::kPart != part_index) {
      for (int k = 0; k < kThresholds; ++k) {
        total[k].add(part[k]);
        part[k] = Vector();
      }
      part_index = i / WorkRow::kPart;
    }
    const Vector m = mass(c), none(-kInfinity);
    for (int k = 0; k < kThresholds; ++k) part[k] += at_least(v, pass.threshold[k], m, Vector());
    negative_lowest.add(at_least(v, low, Vector() - v, none));
    highest.add(at_least(v, high, none, v));
  }
  row.end_list(kept);
  for (int k = 0; k < kThresholds; ++k) total[k].add(part[k]);
  for (int k = 0; k < kThresholds; ++k)
    pass.mass[k] = block_sum(total[k].total(), memory.reduction);
  pass.lowest = -block_max(negative_lowest.greatest(), memory.reduction);
  pass.highest = block_max(highest.greatest(), memory.reduction);
}

// Narrows the bracket by a pass.
__device__ __forceinline__ void narrow(Bracket& bracket, const SearchPass& pass, float target) {
  // The mass from the lowest value on is that from `low` on, and the mass above the highest one is
  // that from `high` on.
  const std::uint32_t lowest = order_key(pass.lowest), above = order_key(pass.highest + 0.0f) + 1;
  if (lowest > bracket.low && lowest < bracket.high) bracket.low = lowest;
  if (above < bracket.high && above > bracket.low) bracket.high = above;
  for (int k = 0; k < kThresholds; ++k) {
    const std::uint32_t key = order_key(pass.threshold[k]);
    if (key <= bracket.low || key >= bracket.high) continue;
    if (pass.mass[k] >= target) {
      bracket.low = key;
    } else {
      bracket.high = key;
      bracket.above = pass.mass[k];
    }
  }
}

// Keeps the shortest prefix whose mass reaches `target`. value(c) and mass(c) return Vectors;
// max_value is the highest value. `target` is above 0. If kCounts, all masses are 1, and all tokens
// are kept if their number is below the target; otherwise the mass of all reaches it.
template <bool kCounts, class Value, class Mass>
__device__ __forceinline__ void keep_prefix(WorkRow& row, bool has_weights, float max_value,
                                            float target, const BlockMemory& memory, Value&& value,
                                            Mass&& mass) {
  const Vector zero;
  // Adding 0 makes +0 of -0: the mass from +0 on includes that of -0.
  Bracket bracket{order_key(kLowest), order_key(max_value + 0.0f) + 1, 0};
  // Masses of 1 are exact. If the mass from `low` on is the target, all columns from there on are
  // the prefix, and none of them is a tie that must be divided.
  bool is_exact = false;
  int shortenings = 0;
  for (int i = 0; !bracket.is_one_value() && !is_exact; ++i) {
    SearchPass pass;
    choose_thresholds(pass, bracket, max_value, i);
    const float low = from_order_key(bracket.low);
    // Later passes raise `low` too little to shorten the list.
    const bool shortens = low > kLowest && shortenings < 3;
    shortenings += shortens ? 1 : 0;
    compute_pass(pass, row, low, from_order_key(bracket.high), shortens, memory, value, mass);
    if (kCounts && i == 0 && pass.mass[0] <= target) return;
    narrow(bracket, pass, target);
    for (int k = 0; kCounts && k < kThresholds; ++k) is_exact = is_exact || pass.mass[k] == target;
  }
  const float last = from_order_key(bracket.low);
  const auto equal_below = [&](int c, std::int64_t bound, const Vector& x) {
    const std::int64_t count = bound - c;
    const int end = count < kVector ? static_cast<int>(count) : kVector;
    return keep_range(equal(value(c), last, x, zero), 0, end - 1, 0.0f);
  };
  std::int64_t bound = row.columns();  // ids from here on are dropped if their value is `last`
  const float ties =
      is_exact ? 0.0f : row.sum(memory, [&](int c) { return equal_below(c, bound, Vector(1.0f)); });
  for (std::int64_t first = 0; ties > 1 && bound - first > 1;) {
    const std::int64_t middle = first + (bound - first) / 2;
    const float part = row.sum(memory, [&](int c) { return equal_below(c, middle, mass(c)); });
    (bracket.above + part >= target ? bound : first) = middle;
  }
  row.drop_others(has_weights, [&](int c) {
    const Vector v = value(c), one(1.0f);
    const Vector greater = at_least(v, last, one, zero) - equal(v, last, one, zero);
    return greater + equal_below(c, bound, one);
  });
}

}  // namespace llmc::sampling
