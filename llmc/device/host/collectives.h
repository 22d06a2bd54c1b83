// Warp and block collectives of the host. Each thread leaves its value in the room where its warp
// or block meets; sums are added by the last to arrive, in the order of a GPU's butterfly, so that
// both targets add alike.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "llmc/device/host/block.h"

namespace llmc {

inline constexpr int kBlockScratch = 32;

namespace host {

inline constexpr auto kAdd = [](float a, float b) { return a + b; };
// A NaN gives way to a number, as in a GPU's fmaxf.
inline constexpr auto kMax = [](float a, float b) { return a > b || b != b ? a : b; };

// In a butterfly, step m adds to each lane the value of lane ^ m, and addition commutes: all lanes
// end with the bits that lane 0 gets, which is this tree. Destroys the values.
template <int Width, class Combine>
float butterfly(float* values, Combine combine) {
  for (int half = Width / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) values[i] = combine(values[i], values[i + half]);
  }
  return values[0];
}

struct WarpValues {
  float values[kWarpSize];
  float results[kWarpSize];
};

template <int Width, class Combine>
float reduce_lanes(float value, Combine combine, const Place& place) {
  Unobserved bookkeeping;
  Block& block = *Block::current();
  const int lane = Block::thread()->index % kWarpSize;
  auto& room = block.warp_room<WarpValues>();
  room.values[lane] = value;
  block.meet_warp(place, false, [&] {
    for (int first = 0; first < kWarpSize; first += Width) {
      room.results[first] = butterfly<Width>(room.values + first, combine);
    }
  });
  return room.results[lane / Width * Width];
}

struct BlockValues {
  float values[kMaxBlockThreads];
  float result;
};

// First the warps, then the warps' results: as on a GPU.
template <class Combine>
float reduce_block(float value, float neutral, Combine combine, const Place& place) {
  Unobserved bookkeeping;
  Block& block = *Block::current();
  auto& room = block.block_room<BlockValues>();
  room.values[Block::thread()->index] = value;
  block.meet_block(place, false, [&] {
    float warps[kWarpSize];
    std::fill(warps, warps + kWarpSize, neutral);
    for (int first = 0; first < block.threads(); first += kWarpSize) {
      warps[first / kWarpSize] = butterfly<kWarpSize>(room.values + first, combine);
    }
    room.result = butterfly<kWarpSize>(warps, combine);
  });
  return room.result;
}

// The value that the given lane brings.
template <class T>
T exchange(T value, int source_lane, const Place& place) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  struct Values {
    T values[kWarpSize];
  };
  Unobserved bookkeeping;
  auto& room = Block::current()->warp_room<Values>();
  room.values[Block::thread()->index % kWarpSize] = value;
  Block::current()->meet_warp(place, false, [] {});
  return room.values[source_lane % kWarpSize];
}

}  // namespace host

inline float warp_sum(float x, host::Where where = host::Where::current()) {
  return host::reduce_lanes<32>(x, host::kAdd, {"warp_sum", where});
}
inline float warp_max(float x, host::Where where = host::Where::current()) {
  return host::reduce_lanes<32>(x, host::kMax, {"warp_max", where});
}
inline float quad_sum(float x, host::Where where = host::Where::current()) {
  return host::reduce_lanes<4>(x, host::kAdd, {"quad_sum", where});
}
inline float quad_max(float x, host::Where where = host::Where::current()) {
  return host::reduce_lanes<4>(x, host::kMax, {"quad_max", where});
}

template <class T>
T shuffle(T value, int source_lane, host::Where where = host::Where::current()) {
  return host::exchange(value, source_lane & 31, {"shuffle", where});
}

template <class T>
T shuffle_xor(T value, int mask, host::Where where = host::Where::current()) {
  return host::exchange(value, (host::Block::thread()->index ^ mask) & 31, {"shuffle_xor", where});
}

inline bool warp_any(bool condition, host::Where where = host::Where::current()) {
  return host::reduce_lanes<32>(condition ? 1.0f : 0.0f, host::kMax, {"warp_any", where}) != 0.0f;
}

inline void warp_barrier(host::Where where = host::Where::current()) {
  host::Block::current()->meet_warp({"warp_barrier", where}, true, [] {});
}

inline void block_barrier(host::Where where = host::Where::current()) {
  host::Block::current()->meet_block({"block_barrier", where}, true, [] {});
}

inline bool block_any(bool condition, host::Where where = host::Where::current()) {
  return host::reduce_block(condition ? 1.0f : 0.0f, 0.0f, host::kMax, {"block_any", where}) !=
         0.0f;
}

// The scratch memory is for the GPU; here the threads' values meet in the executor.
inline float block_sum(float x, float*, host::Where where = host::Where::current()) {
  return host::reduce_block(x, 0.0f, host::kAdd, {"block_sum", where});
}
inline float block_max(float x, float*, host::Where where = host::Where::current()) {
  return host::reduce_block(x, -__builtin_inff(), host::kMax, {"block_max", where});
}

}  // namespace llmc
