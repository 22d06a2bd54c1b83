// Divides examples into parts for training, validation and test by a hash of their text.
//
// The hash of a text is mix64(XXH64(its bytes), 1), read as a fraction of 2^64. The interval from 0
// to 1 is divided in proportion to the fractions: first training, then validation, then test. So
// the part of a text depends only on its bytes and the fractions. Equal texts are in the same part,
// and a text keeps its part if its file is sorted or gets more texts. The sizes of the parts are
// random: of n texts, a part with the fraction p has p n texts with a standard deviation of
// sqrt(p (1 - p) n).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace llmc {

// Parts of their sum. A part with the fraction 0 is empty.
struct SplitFractions {
  std::int64_t train = 80, validation = 10, test = 10;
};

// Parses "TRAIN/VALIDATION" or "TRAIN/VALIDATION/TEST", such as 80/10/10: integers from 0 to
// 1000000, the first of which is at least 1. Throws an error that names `flag`.
SplitFractions parse_split_fractions(const std::string& text, const std::string& flag);

enum class SplitPart { train, validation, test };

std::uint64_t split_hash(std::string_view text);

SplitPart split_part(std::uint64_t hash, const SplitFractions& fractions);

// The indices of the examples of each part, in order.
struct SplitIndices {
  std::vector<std::size_t> train, validation, test;
};

// `hashes` has the split_hash of each example. Throws an error that names `source` if a part has no
// example but a fraction above 0.
SplitIndices split_by_hash(std::span<const std::uint64_t> hashes, const SplitFractions& fractions,
                           const std::string& source);

}  // namespace llmc
