#include "llmc/io/data/hashed_split.h"

#include <algorithm>
#include <charconv>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/hash.h"

namespace llmc {

SplitFractions parse_split_fractions(const std::string& text, const std::string& flag) {
  constexpr std::int64_t kMaxFraction = 1'000'000;
  std::vector<std::int64_t> values;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data();; ++at) {
    std::int64_t value = -1;
    const bool is_digit = at != end && *at >= '0' && *at <= '9';
    if (is_digit) at = std::from_chars(at, end, value).ptr;
    const bool is_valid = value >= 0 && value <= kMaxFraction && (at == end || *at == '/');
    if (!is_valid || values.size() == 3 || (values.empty() && value == 0) ||
        (at == end && values.empty())) {
      fail_usage(flag + " '" + text + "' is not a list of fractions",
                 "write TRAIN/VALIDATION or TRAIN/VALIDATION/TEST, such as 80/10/10: integers "
                 "from 0 to 1000000, the first of which is at least 1");
    }
    values.push_back(value);
    if (at == end) break;
  }
  return {values[0], values[1], values.size() > 2 ? values[2] : 0};
}

std::uint64_t split_hash(std::string_view text) {
  return mix64(checksum_of(text), 1);
}

SplitPart split_part(std::uint64_t hash, const SplitFractions& fractions) {
  const std::int64_t total = fractions.train + fractions.validation + fractions.test;
  const auto place = static_cast<std::int64_t>(
      static_cast<unsigned __int128>(hash) * static_cast<std::uint64_t>(total) >> 64);
  if (place < fractions.train) return SplitPart::train;
  return place < fractions.train + fractions.validation ? SplitPart::validation : SplitPart::test;
}

SplitIndices split_by_hash(std::span<const std::uint64_t> hashes, const SplitFractions& fractions,
                           const std::string& source) {
  SplitIndices split;
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    const SplitPart part = split_part(hashes[i], fractions);
    auto& indices = part == SplitPart::train        ? split.train
                    : part == SplitPart::validation ? split.validation
                                                    : split.test;
    indices.push_back(i);
  }
  const auto check = [&](const char* part, std::int64_t fraction,
                         const std::vector<std::size_t>& indices) {
    if (fraction == 0 || !indices.empty()) return;
    fail(source + " has " + std::to_string(hashes.size()) + " examples, none of which is in the " +
             part + " part",
         "give more examples or another fraction for this part");
  };
  check("training", fractions.train, split.train);
  check("validation", fractions.validation, split.validation);
  check("test", fractions.test, split.test);
  return split;
}

}  // namespace llmc
