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
      : memory_(memory), columns_(static_cast<int>(round_up(V, kRowAlignment))) {
    count_ = (columns_ / kVector - thread() + threads() - 1) / threads();
  }

  __device__ __forceinline__ int columns() const { return columns_; }
  __device__ __forceinline__ float* logits() const { return memory_; }
  __device__ __forceinline__ float* weights() const { return memory_ + columns_; }

  // The calling thread's vectors that may hold a candidate, in ascending order: their count, the
  // number of vector j among all vectors of the thread, and the first column of vector number i.
  __device__ __forceinline__ int count() const { return count_; }
  __device__ __forceinline__ int vector(int j) const {
    return has_list_ ? static_cast<int>(list()[j * threads() + thread()]) : j;
  }
  __device__ __forceinline__ int column(int i) const {
    return (i * threads() + thread()) * kVector;
  }

  // Makes vector number i the vector j. A thread that shortens its list visits all its vectors in
  // order, and keeps or drops each one.
  __device__ __forceinline__ void keep(int j, int i) {
    list()[j * threads() + thread()] = static_cast<float>(i);  // exact
  }
  __device__ __forceinline__ void drop(int i) {
    store_floats(logits() + column(i), Vector(-kInfinity));
    store_floats(weights() + column(i), Vector());
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
      const int c = column(i);
      const Vector kept = keep_columns(c);
      if (!(max_of(kept) > 0)) {
        drop(i);
        continue;
      }
      const Vector old = load_floats<kVector>(logits() + c);
      store_floats(logits() + c, equal(kept, 1.0f, old, Vector(-kInfinity)));
      if (has_weights) store_floats(weights() + c, kept * load_floats<kVector>(weights() + c));
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
    for_each([&](int c) { greatest.add(f(c)); });
    return block_max(greatest.greatest(), memory.reduction);
  }

  static constexpr int kPart = 32;  // vectors in a partial sum

 private:
  // Not members: a GPU has too few registers for values that it can read again.
  __device__ static __forceinline__ int threads() { return cooperating_threads(block_size()); }
  __device__ static __forceinline__ int thread() { return kOneThreadBlocks ? 0 : thread_index(); }
  // Entry j of a thread is at j * threads() + thread().
  __device__ __forceinline__ float* list() const { return memory_ + 2 * columns_; }

  float* memory_;  // logits, weights, the list
  int columns_, count_;
  bool has_list_ = false;  // otherwise the list has all vectors of the thread
};

}  // namespace llmc::sampling
