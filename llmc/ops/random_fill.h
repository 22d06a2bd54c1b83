// Initial values of parameters.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/global_index.h"

namespace llmc {

// Sets p[i] to a normal number with this mean and standard deviation, for i < n. p[i] is element
// first + i of the rank's part of the tensor with the number `tensor` (below 2^24), and element
// index(first + i) of the whole tensor (below 2^42). Its value depends only on that index,
// `tensor`, seed, mean and stddev: a part has the same bits as in a fill of the whole tensor.
// Throws unless the part is contiguous in the whole tensor or consists of whole groups of four.
void normal_fill(float* p, std::int64_t n, std::int64_t first, const GlobalIndex& index,
                 std::uint64_t seed, std::uint32_t tensor, float mean, float stddev,
                 Stream& stream);

// The same for elements first_index to first_index + n - 1 of the whole tensor.
void normal_fill(float* p, std::int64_t n, std::int64_t first_index, std::uint64_t seed,
                 std::uint32_t tensor, float mean, float stddev, Stream& stream);

// Like the first normal_fill(), with uniform numbers between -bound and bound.
void uniform_fill(float* p, std::int64_t n, std::int64_t first, const GlobalIndex& index,
                  std::uint64_t seed, std::uint32_t tensor, float bound, Stream& stream);

// p[i] = value for i < n; p is aligned to 16 bytes.
template <class T>
void constant_fill(T* p, std::int64_t n, float value, Stream& stream);

}  // namespace llmc
