// Warp and block collectives of the host. Each thread stores its value in the buffer of its warp
// or block. The last thread to arrive reduces the values in the order of a GPU's butterfly, so that
// both targets round alike. A block of one thread (block_threads.h) has nothing to exchange.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "llmc/device/host/block.h"

namespace llmc {

inline constexpr int kBlockScratch = 32;

namespace host {

inline constexpr auto kAdd = [](float a, float b) { return a + b; };
// If one operand is NaN, the result is the other one, as in a GPU's fmaxf.
inline constexpr auto kMax = [](float a, float b) { return a > b || b != b ? a : b; };

// Step m of a butterfly adds the value of lane ^ m to each lane. Addition commutes, so all lanes
// end with the same bits as lane 0, whose sum is this tree. Overwrites `values`.
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
float reduce_lanes(float value, Combine combine, const CallSite& site) {
  TsanIgnoreScope bookkeeping;
  Block& block = *Block::current();
  if (block.threads() == 1) return value;
  const int lane = Block::thread()->index % kWarpSize;
  auto& buffer = block.warp_buffer<WarpValues>();
  buffer.values[lane] = value;
  block.meet_warp(site, false, [&] {
    for (int first = 0; first < kWarpSize; first += Width) {
      buffer.results[first] = butterfly<Width>(buffer.values + first, combine);
    }
  });
  return buffer.results[lane / Width * Width];
}

struct BlockValues {
  float values[kMaxBlockThreads];
  float result;
};

// Reduces each warp, then the warps' results, as on a GPU.
template <class Combine>
float reduce_block(float value, float neutral, Combine combine, const CallSite& site) {
  TsanIgnoreScope bookkeeping;
  Block& block = *Block::current();
  if (block.threads() == 1) return value;
  auto& buffer = block.block_buffer<BlockValues>();
  buffer.values[Block::thread()->index] = value;
  block.meet_block(site, false, [&] {
    float warps[kWarpSize];
    std::fill(warps, warps + kWarpSize, neutral);
    for (int first = 0; first < block.threads(); first += kWarpSize) {
      warps[first / kWarpSize] = butterfly<kWarpSize>(buffer.values + first, combine);
    }
    buffer.result = butterfly<kWarpSize>(warps, combine);
  });
  return buffer.result;
}

// Returns the value of lane `source_lane`.
template <class T>
T exchange(T value, int source_lane, const CallSite& site) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  struct Values {
    T values[kWarpSize];
  };
  TsanIgnoreScope bookkeeping;
  auto& buffer = Block::current()->warp_buffer<Values>();
  buffer.values[Block::thread()->index % kWarpSize] = value;
  Block::current()->meet_warp(site, false, [] {});
  return buffer.values[source_lane % kWarpSize];
}

}  // namespace host

inline float warp_sum(float x, host::SourceLocation location = host::SourceLocation::current()) {
  return host::reduce_lanes<32>(x, host::kAdd, {"warp_sum", location});
}
inline float warp_max(float x, host::SourceLocation location = host::SourceLocation::current()) {
  return host::reduce_lanes<32>(x, host::kMax, {"warp_max", location});
}
inline float quad_sum(float x, host::SourceLocation location = host::SourceLocation::current()) {
  return host::reduce_lanes<4>(x, host::kAdd, {"quad_sum", location});
}
inline float quad_max(float x, host::SourceLocation location = host::SourceLocation::current()) {
  return host::reduce_lanes<4>(x, host::kMax, {"quad_max", location});
}

template <class T>
T shuffle(T value, int source_lane,
          host::SourceLocation location = host::SourceLocation::current()) {
  return host::exchange(value, source_lane & 31, {"shuffle", location});
}

template <class T>
T shuffle_xor(T value, int mask, host::SourceLocation location = host::SourceLocation::current()) {
  return host::exchange(value, (host::Block::thread()->index ^ mask) & 31,
                        {"shuffle_xor", location});
}

inline bool warp_any(bool condition,
                     host::SourceLocation location = host::SourceLocation::current()) {
  return host::reduce_lanes<32>(condition ? 1.0f : 0.0f, host::kMax, {"warp_any", location}) !=
         0.0f;
}

inline void warp_barrier(host::SourceLocation location = host::SourceLocation::current()) {
  host::Block& block = *host::Block::current();
  if (block.threads() > 1) block.meet_warp({"warp_barrier", location}, true, [] {});
}

inline void block_barrier(host::SourceLocation location = host::SourceLocation::current()) {
  host::Block& block = *host::Block::current();
  if (block.threads() > 1) block.meet_block({"block_barrier", location}, true, [] {});
}

inline bool block_any(bool condition,
                      host::SourceLocation location = host::SourceLocation::current()) {
  return host::reduce_block(condition ? 1.0f : 0.0f, 0.0f, host::kMax, {"block_any", location}) !=
         0.0f;
}

// Only the GPU needs the scratch memory; here the values are exchanged in the block's buffer.
inline float block_sum(float x, float*,
                       host::SourceLocation location = host::SourceLocation::current()) {
  return host::reduce_block(x, 0.0f, host::kAdd, {"block_sum", location});
}
inline float block_max(float x, float*,
                       host::SourceLocation location = host::SourceLocation::current()) {
  return host::reduce_block(x, -__builtin_inff(), host::kMax, {"block_max", location});
}

}  // namespace llmc
