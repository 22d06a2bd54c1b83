// Warp and block collectives of the host: the last thread to arrive computes for all. Sums take
// the order a GPU's butterfly takes, so both targets add alike.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <source_location>

#include "llmc/device/host/block.h"

namespace llmc {

inline constexpr int kBlockScratch = 32;

namespace host {

using Where = std::source_location;

// What one thread brings to a collective and takes away.
template <class T>
struct Exchange {
  T value;
  int argument = 0;
  T result{};
};

template <class T>
Exchange<T>& exchange_of(ThreadSlot& slot) {
  return *static_cast<Exchange<T>*>(slot.operand);
}

// In a butterfly, step m adds to each lane the value of lane ^ m; all lanes end with the same bits.
template <int Width, class Combine>
void butterfly(float* values, Combine combine) {
  for (int mask = Width / 2; mask > 0; mask /= 2) {
    float next[Width];
    for (int i = 0; i < Width; ++i) next[i] = combine(values[i], values[i ^ mask]);
    std::copy(next, next + Width, values);
  }
}

template <int Width, class Combine>
float reduce_lanes(float value, Combine combine, Place place) {
  Exchange<float> mine{value};
  Block::current()->meet_warp(place, false, &mine, [&](ThreadSlot* lanes, int count) {
    for (int first = 0; first < count; first += Width) {
      float values[Width];
      for (int i = 0; i < Width; ++i) values[i] = exchange_of<float>(lanes[first + i]).value;
      butterfly<Width>(values, combine);
      for (int i = 0; i < Width; ++i) exchange_of<float>(lanes[first + i]).result = values[i];
    }
  });
  return mine.result;
}

// First the warps, then the warps' results: as on a GPU.
template <class Combine>
float reduce_block(float value, float neutral, Combine combine, Place place) {
  Exchange<float> mine{value};
  Block::current()->meet_block(place, false, &mine, [&](ThreadSlot* threads, int count) {
    float partials[kWarpSize];
    std::fill(partials, partials + kWarpSize, neutral);
    for (int warp = 0; warp < count / kWarpSize; ++warp) {
      float values[kWarpSize];
      for (int i = 0; i < kWarpSize; ++i) {
        values[i] = exchange_of<float>(threads[warp * kWarpSize + i]).value;
      }
      butterfly<kWarpSize>(values, combine);
      partials[warp] = values[0];
    }
    butterfly<kWarpSize>(partials, combine);
    for (int i = 0; i < count; ++i) exchange_of<float>(threads[i]).result = partials[0];
  });
  return mine.result;
}

inline constexpr auto kAdd = [](float a, float b) { return a + b; };
inline constexpr auto kMax = [](float a, float b) { return a > b ? a : b; };

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
  host::Exchange<T> mine{value, source_lane};
  host::Block::current()->meet_warp(
      {"shuffle", where}, false, &mine, [](host::ThreadSlot* lanes, int count) {
        for (int i = 0; i < count; ++i) {
          auto& lane = host::exchange_of<T>(lanes[i]);
          lane.result = host::exchange_of<T>(lanes[lane.argument & 31]).value;
        }
      });
  return mine.result;
}

template <class T>
T shuffle_xor(T value, int mask, host::Where where = host::Where::current()) {
  host::Exchange<T> mine{value, mask};
  host::Block::current()->meet_warp(
      {"shuffle_xor", where}, false, &mine, [](host::ThreadSlot* lanes, int count) {
        for (int i = 0; i < count; ++i) {
          auto& lane = host::exchange_of<T>(lanes[i]);
          lane.result = host::exchange_of<T>(lanes[i ^ (lane.argument & 31)]).value;
        }
      });
  return mine.result;
}

inline bool warp_any(bool condition, host::Where where = host::Where::current()) {
  host::Exchange<int> mine{condition};
  host::Block::current()->meet_warp(
      {"warp_any", where}, false, &mine, [](host::ThreadSlot* lanes, int count) {
        int any = 0;
        for (int i = 0; i < count; ++i) any |= host::exchange_of<int>(lanes[i]).value;
        for (int i = 0; i < count; ++i) host::exchange_of<int>(lanes[i]).result = any;
      });
  return mine.result != 0;
}

inline void warp_barrier(host::Where where = host::Where::current()) {
  host::Block::current()->meet_warp({"warp_barrier", where}, true, nullptr,
                                    [](host::ThreadSlot*, int) {});
}

inline void block_barrier(host::Where where = host::Where::current()) {
  host::Block::current()->meet_block({"block_barrier", where}, true, nullptr,
                                     [](host::ThreadSlot*, int) {});
}

inline bool block_any(bool condition, host::Where where = host::Where::current()) {
  host::Exchange<int> mine{condition};
  host::Block::current()->meet_block(
      {"block_any", where}, false, &mine, [](host::ThreadSlot* threads, int count) {
        int any = 0;
        for (int i = 0; i < count; ++i) any |= host::exchange_of<int>(threads[i]).value;
        for (int i = 0; i < count; ++i) host::exchange_of<int>(threads[i]).result = any;
      });
  return mine.result != 0;
}

// The scratch memory is for the GPU; here the threads' values meet in the executor.
inline float block_sum(float x, float*, host::Where where = host::Where::current()) {
  return host::reduce_block(x, 0.0f, host::kAdd, {"block_sum", where});
}
inline float block_max(float x, float*, host::Where where = host::Where::current()) {
  return host::reduce_block(x, -__builtin_inff(), host::kMax, {"block_max", where});
}

}  // namespace llmc
