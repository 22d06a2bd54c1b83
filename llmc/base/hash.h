// A 64-bit hash of integers: the source of random values that are addressed by an index instead of
// drawn from a stream (the order of training windows, the sentences of the toy language).
#pragma once

#include <cstdint>

namespace llmc {

// A bijection of 64-bit integers in which every input bit reaches every output bit: two rounds of
// xor-shift and odd multiplication, with the constants David Stafford found by search ("Better Bit
// Mixing", 2011, variant 13).
constexpr std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The hash of a sequence of integers: mix64(a, b) and mix64(b, a) are unrelated.
template <class... Rest>
constexpr std::uint64_t mix64(std::uint64_t first, std::uint64_t second, Rest... rest) {
  return mix64(mix64(first + 0x9e3779b97f4a7c15u) ^ second, rest...);
}

// The hash's upper 53 bits as a number in [0, 1).
constexpr double unit_interval(std::uint64_t hash) {
  return static_cast<double>(hash >> 11) * 0x1p-53;
}

}  // namespace llmc
