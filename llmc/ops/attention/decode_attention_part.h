// How the threads of a block of decode attention share its keys, and what each one loads of them.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "llmc/ops/cache_rows.h"

namespace llmc {

inline constexpr int kDecodeBlockKeys = 256;
inline constexpr int kDecodeThreads = cooperating_threads(256);
inline constexpr int kDecodeWarps = kOneThreadBlocks ? 1 : kDecodeThreads / 32;
// Adjacent keys in one step of a thread in the softmax, and columns of one access of the result.
inline constexpr int kDecodeSoftmaxWidth = kOneThreadBlocks ? kRegisterFloats : 1;
inline constexpr int kDecodeOutWidth = kOneThreadBlocks ? 8 : 4;

// Columns of a key or value in one access. A row of codes starts at a multiple of 8 bytes.
template <class KV>
inline constexpr int kDecodeVector = kIsQuantized<KV> ? 8 : kVecSize<KV>;

// How the threads of a block share its keys and the columns of a head, and a thread's part of some
// rows of keys or values. Not for blocks of one thread.
template <class KV, int kHeadTile>
struct DecodePart {
  static constexpr int N = kDecodeVector<KV>;              // columns of a lane
  static constexpr int kLanes = kHeadTile / N;             // that share a key
  static constexpr int kGroups = kDecodeThreads / kLanes;  // keys of one step
  static constexpr int kSteps = kDecodeBlockKeys / kGroups;
  // Steps whose loads are in flight.
  static constexpr int kBatch = !kIsQuantized<KV> ? 4 : kSteps < 8 ? kSteps : 8;
  static_assert(kSteps % kBatch == 0 && kLanes <= 32);

  Vec<KV, N> v[kBatch];

  __device__ static int group() { return thread_index() / kLanes; }
  __device__ static int column() { return thread_index() % kLanes * N; }
  __device__ static int key(int step) { return step * kGroups + group(); }
  // Loads this lane's columns of the rows of kBatch steps; rows from `count` on are zero.
  __device__ __forceinline__ void load(const KV* rows, std::int64_t stride, int first_step,
                                       int count, int HS) {
    for (int j = 0; j < kBatch; ++j) {
      v[j] = Vec<KV, N>{};
      const int row = key(first_step + j);
      if (row < count && column() < HS) v[j] = load_vec<N>(rows + row * stride + column());
    }
  }
};

// The scales of a block's keys and values: those of the keys that the calling thread processes in
// decode_softmax. Loaded early, they cost no latency. `first` is the place of the first key's
// scale, and scales of neighbouring keys are `stride` apart.
template <class KV>
struct DecodeScales {
  __device__ DecodeScales(const float*, const float*, std::int64_t, std::int64_t, int) {}
  __device__ void multiply_by_keys(float*) const {}
  __device__ void multiply_by_values(float*) const {}
};
template <>
class DecodeScales<std::int8_t> {
 public:
  __device__ __forceinline__ DecodeScales(const float* keys, const float* values,
                                          std::int64_t first, std::int64_t stride, int count)
      : count_(count) {
    for_each_key([&](int i, int key) {
      key_[i] = keys[first + key * stride];
      value_[i] = values[first + key * stride];
    });
  }
  __device__ __forceinline__ void multiply_by_keys(float* scores) const {
    for_each_key([&](int i, int key) { scores[key] *= key_[i]; });
  }
  __device__ __forceinline__ void multiply_by_values(float* weights) const {
    for_each_key([&](int i, int key) { weights[key] *= value_[i]; });
  }

 private:
  static constexpr int kCount = kDecodeBlockKeys / kDecodeThreads;
  static_assert(kDecodeSoftmaxWidth == 1 || kDecodeThreads == 1);

  // Calls f(i, key) for the thread's keys below count.
  template <class F>
  __device__ __forceinline__ void for_each_key(const F& f) const {
    for (int i = 0; i < kCount; ++i) {
      const int key = thread_index() + i * kDecodeThreads;
      if (key >= count_) break;
      f(i, key);
    }
  }

  int count_;
  float key_[kCount], value_[kCount];
};

}  // namespace llmc
