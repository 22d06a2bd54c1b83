// Vectors of columns, statistics of a row of raw logits, and the draw from a row of weights, for
// sampling on the device. Sums have a fixed order, which depends only on the number of columns and
// threads.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "llmc/ops/array_sum.h"

namespace llmc::sampling {

inline constexpr int kRowAlignment = 32;
inline constexpr int kMaxThreads = 1024;
// Columns that a thread processes at a time.
inline constexpr int kVector = kOneThreadBlocks ? 32 : 4;
inline constexpr float kInfinity = __builtin_inff();
inline constexpr float kLowest = -3.4028234663852886e38f;  // the lowest finite number

using Vector = Floats<kVector>;

// Shared memory of a block.
inline constexpr int kGroups = 32, kSegmentsPerGroup = 32, kSegments = kGroups * kSegmentsPerGroup;
struct BlockMemory {
  float* reduction;  // kBlockScratch, for collectives
  float* segments;   // kSegments: sums of weights
  float* groups;     // kGroups: sums of segments
  float* kept;       // kKept: numbers that are used at the end; a GPU has too few registers
};
enum KeptNumber { kKeptMax, kKeptSum, kKeptUniform, kKept };

inline std::size_t block_memory_bytes() {
  return SharedLayout()
      .add<float>(kBlockScratch)
      .add<float>(kSegments)
      .add<float>(kGroups)
      .add<float>(kKept)
      .bytes();
}

// x where condition(value) holds in the same element, else `other`. `condition` gets registers.
template <class Condition>
__device__ __forceinline__ Vector select(const Vector& value, Condition condition, const Vector& x,
                                         const Vector& other) {
  Vector y;
  for (int i = 0; i < Vector::kRegisters; ++i)
    y.in_register(i) = condition(value.in_register(i)) ? x.in_register(i) : other.in_register(i);
  return y;
}
__device__ __forceinline__ Vector at_least(const Vector& value, float threshold, const Vector& x,
                                           const Vector& other) {
  return select(
      value, [=](auto v) { return v >= threshold; }, x, other);
}
__device__ __forceinline__ Vector equal(const Vector& value, float to, const Vector& x,
                                        const Vector& other) {
  return select(
      value, [=](auto v) { return v == to; }, x, other);
}

// Calls f(c) for the first column of each vector of the calling thread, ascending.
template <class F>
__device__ __forceinline__ void for_each_vector(std::int64_t columns, F&& f) {
  const int stride = cooperating_threads(block_size()) * kVector;
  for (int c = thread_index() * kVector; c < columns; c += stride) f(c);
}

// The greatest of one thread's numbers, which come in vectors.
template <int N>
class ThreadMax {
 public:
  __device__ __forceinline__ void add(const Floats<N>& x) {
    if constexpr (kOneThreadBlocks) {
      greatest_ = max_elements(greatest_, x);
    } else {
      greatest_ = max_elements(greatest_, Floats<kElements>(max_of(x)));
    }
  }
  __device__ __forceinline__ float greatest() const { return max_of(greatest_); }

 private:
  static constexpr int kElements = kOneThreadBlocks ? N : 1;
  Floats<kElements> greatest_{-kInfinity};
};

// ---- raw logits ----------------------------------------------------------------------------

struct RowStatistics {
  float max;
  float sum;          // of exp(logit - max); NaN if a logit is NaN or +infinity, 0 if all are -inf
  std::int32_t best;  // the lowest id with the highest logit
};

// One thread's statistics. The sum is rescaled when the maximum grows (Milakov and Gimelshein,
// 2018).
class ThreadStatistics {
 public:
  __device__ __forceinline__ void add(const Vector& logits, std::int64_t column) {
    const float vector_max = max_of(logits);
    if (vector_max > max_) {
      const float factor = accurate_exp(max_ - vector_max);
      part_ = factor * part_;
      total_.scale(factor);
      max_ = vector_max;
      column_ = column;
    }
    part_ += accurate_exp(logits - max_);
    if (++count_ % 32 == 0) {
      total_.add(part_);
      part_ = Vector();
    }
  }
  // Statistics of all threads; `row` has V logits.
  __device__ __forceinline__ RowStatistics total(const float* row, std::int64_t V,
                                                 const BlockMemory& memory) {
    total_.add(part_);
    const float max = block_max(max_, memory.reduction);
    const float sum = block_sum(total_.total() * accurate_exp(max_ - max), memory.reduction);
    std::int64_t id = column_;
    while (id < V && row[id] != max && id < column_ + kVector) ++id;
    // Ids are below 2^24, so they are exact in fp32. The lowest id is the highest negative.
    const float best =
        block_max(max_ == max ? -static_cast<float>(id) : -kInfinity, memory.reduction);
    return {max, sum, static_cast<std::int32_t>(-best)};
  }

 private:
  float max_ = -1e30f;  // finite: a thread without columns must not compute inf - inf
  std::int64_t column_ = 0;
  int count_ = 0;
  Vector part_;
  ThreadSum<kVector> total_;
};

// Statistics of row[0 .. V), in one pass. The row is aligned to 16 bytes.
__device__ __forceinline__ RowStatistics row_statistics(const float* row, std::int64_t V,
                                                        const BlockMemory& memory) {
  ThreadStatistics statistics;
  const std::int64_t whole = V / kVector * kVector;
  for_each_vector(whole, [&](int c) { statistics.add(load_floats<kVector>(row + c), c); });
  if (thread_index() == 0 && whole < V) {
    const int count = static_cast<int>(V - whole);
    const Vector last = to_floats(load_up_to<kVector>(row + whole, count));
    statistics.add(keep_range(last, 0, count - 1, -kInfinity), whole);
  }
  return statistics.total(row, V, memory);
}

// ---- draw ----------------------------------------------------------------------------------

// Returns the first id at which the cumulative sum of weights reaches `uniform` times their total,
// to thread 0. The sum has three levels: columns of a segment, segments of a group, groups.
__device__ __forceinline__ std::int32_t draw(const float* weights, std::int64_t columns,
                                             float uniform, const BlockMemory& memory) {
  const std::int64_t length = round_up(ceil_div(columns, kSegments), kRowAlignment);
  const int threads = cooperating_threads(block_size());
  for (int s = thread_index(); s < kSegments; s += threads) {
    Floats<4> sum;
    const std::int64_t limit = (s + 1) * length, end = limit < columns ? limit : columns;
    for (std::int64_t c = s * length; c < end; c += 4) sum += load_floats<4>(weights + c);
    memory.segments[s] = sum_of(sum);
  }
  block_barrier();
  for (int g = thread_index(); g < kGroups; g += threads) {
    float sum = 0;
    for (int s = 0; s < kSegmentsPerGroup; ++s) sum += memory.segments[g * kSegmentsPerGroup + s];
    memory.groups[g] = sum;
  }
  block_barrier();
  if (thread_index() != 0) return 0;
  float total = 0;
  for (int g = 0; g < kGroups; ++g) total += memory.groups[g];
  const float target = uniform * total;
  float below = 0;
  // Index of the first of n parts at which the sum reaches the target, or of the last part above 0
  // if rounding left a remainder.
  const auto find = [&](const float* parts, std::int64_t n) {
    std::int64_t last = 0;
    float before_last = below;
    for (std::int64_t i = 0; i < n; ++i) {
      if (parts[i] <= 0) continue;
      last = i;
      before_last = below;
      if (below + parts[i] >= target) break;
      below += parts[i];
    }
    below = before_last;
    return last;
  };
  const std::int64_t group = find(memory.groups, kGroups);
  const std::int64_t segment = group * kSegmentsPerGroup +
                               find(memory.segments + group * kSegmentsPerGroup, kSegmentsPerGroup);
  const std::int64_t begin = segment * length, rest = columns - begin;
  return static_cast<std::int32_t>(begin + find(weights + begin, rest < length ? rest : length));
}

}  // namespace llmc::sampling
