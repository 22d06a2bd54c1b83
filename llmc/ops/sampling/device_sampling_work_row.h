// A row during sampling: logits after bias, penalties and filters, weights proportional to
// probabilities, and a list of the vectors of columns that may hold a candidate.
//
// A work row has a multiple of kRowAlignment columns. Columns from V on hold logits of -infinity
// and weights of 0, so passes need no special case at the end. A dropped token is a column with
// these values.
//
// Filters leave few candidates in most rows, so passes visit only the vectors of the list. A vector
// outside it would add zeros to a sum. Sums keep the order of a pass over all vectors, so the list
// changes no bit of a result: a list that is too long only costs time.
#pragma once

#include <cstdint>

#include "llmc/ops/sampling/device_sampling_row.h"

namespace llmc::sampling {

class WorkRow {
 public:
  // Memory of a row, in floats.
  __host__ __device__ static constexpr std::int64_t size(std::int64_t V) {
    const std::int64_t columns = round_up(V, kRowAlignment);
    return 2 * columns + round_up(columns / kVector, cooperating_threads(kMaxThreads));
  }

  __device__ __forceinline__ WorkRow(float* memory, std::int64_t V)
      : columns(round_up(V, kRowAlignment)),
        logits(memory),
        weights(memory + columns),
        list_(memory + 2 * columns),
        threads_(cooperating_threads(block_size())),
        thread_(threads_ == 1 ? 0 : thread_index()),
        count_((static_cast<int>(columns / kVector) - thread_ + threads_ - 1) / threads_) {}

  const std::int64_t columns;
  float* const logits;
  float* const weights;

  // The calling thread's vectors that may hold a candidate, in ascending order: their count, the
  // number of vector j among all vectors of the thread, and the first column of vector number i.
  __device__ __forceinline__ int count() const { return count_; }
  __device__ __forceinline__ int vector(int j) const {
    return has_list_ ? static_cast<int>(list_[j * threads_ + thread_]) : j;
  }
  __device__ __forceinline__ std::int64_t column(int i) const {
    return (std::int64_t{i} * threads_ + thread_) * kVector;
  }

  // Makes vector number i the vector j. A thread that shortens its list visits all its vectors in
  // order, and keeps or drops each one.
  __device__ __forceinline__ void keep(int j, int i) {
    list_[j * threads_ + thread_] = static_cast<float>(i);  // exact
  }
  __device__ __forceinline__ void drop(int i) {
    store_floats(logits + column(i), Vector(-kInfinity));
    store_floats(weights + column(i), Vector());
  }
  __device__ __forceinline__ void end_list(int count) {
    count_ = count;
    has_list_ = true;
  }

  // Calls f(c) for the first column of each vector of the thread.
  template <class F>
  __device__ __forceinline__ void for_each(F&& f) const {
    for (int j = 0; j < count_; ++j) f(column(vector(j)));
  }

  // Drops the columns where keep(c), a Vector, is 0. Other elements of keep(c) are 1.
  template <class Keep>
  __device__ __forceinline__ void drop_others(bool has_weights, Keep&& keep_columns) {
    int kept_vectors = 0;
    for (int j = 0; j < count_; ++j) {
      const int i = vector(j);
      const std::int64_t c = column(i);
      const Vector kept = keep_columns(c);
      if (!(max_of(kept) > 0)) {
        drop(i);
        continue;
      }
      const Vector old = load_floats<kVector>(logits + c);
      store_floats(logits + c, equal(kept, 1.0f, old, Vector(-kInfinity)));
      if (has_weights) store_floats(weights + c, kept * load_floats<kVector>(weights + c));
      keep(kept_vectors++, i);
    }
    end_list(kept_vectors);
    block_barrier();
  }

  // Sum of f(c), a Vector, which is zero for vectors outside the list. Chains of additions are
  // short: each thread adds partial sums of kPart vectors.
  template <class F>
  __device__ __forceinline__ float sum(const BlockMemory& memory, F&& f) const {
    ThreadSum<kVector> total;
    Vector part;
    int part_index = 0;
    for (int j = 0; j < count_; ++j) {
      const int i = vector(j);
      if (i / kPart != part_index) {
        total.add(part);
        part = Vector();
        part_index = i / kPart;
      }
      part += f(column(i));
    }
    total.add(part);
    return block_sum(total.total(), memory.reduction);
  }

  // The greatest element of f(c), or -infinity if the list is empty.
  template <class F>
  __device__ __forceinline__ float max(const BlockMemory& memory, F&& f) const {
    ThreadMax<kVector> greatest;
    for_each([&](std::int64_t c) { greatest.add(f(c)); });
    return block_max(greatest.greatest(), memory.reduction);
  }

  static constexpr int kPart = 32;  // vectors in a partial sum

 private:
  float* const list_;  // entry j of thread t is at j * threads_ + t
  const int threads_, thread_;
  int count_;
  bool has_list_ = false;  // otherwise the list has all vectors of the thread
};

}  // namespace llmc::sampling
