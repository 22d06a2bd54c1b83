// Compares what ranks must have in common. Every rank describes it as names and values; hashes of
// the descriptions are exchanged, and only if they differ the descriptions themselves.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "llmc/base/error.h"

namespace llmc {

struct NamedValue {
  std::string name, value;

  bool operator==(const NamedValue&) const = default;
};
using NamedValues = std::vector<NamedValue>;

// "rank 1", "ranks 0, 2 to 7"; `ranks` are ascending.
std::string rank_list(const std::vector<int>& ranks);

// "--lr is 0.01 on rank 1, the default on rank 0; --steps is ...", for each name whose values
// differ; empty if there is none. `missing` stands for the value of a rank without that name.
std::string difference_text(const std::vector<NamedValues>& ranks,
                            const std::string& missing = "missing");

std::string content_checksum_of(const std::string& text);

// The texts of all ranks; a single one if all are equal. `gather` returns the texts of all ranks in
// their order; all ranks call this together.
template <class Gather>
std::vector<std::string> different_texts(const Gather& gather, const std::string& own) {
  const std::vector<std::string> sums = gather(content_checksum_of(own));
  const bool is_equal = std::ranges::all_of(sums, [&](const auto& sum) { return sum == sums[0]; });
  return is_equal ? std::vector<std::string>{own} : gather(own);
}

std::string pack_values(const NamedValues& values);

NamedValues unpack_values(const std::string& packed);

// Throws on all ranks, with equal texts, unless all have the same values. The error begins with
// `subject`, such as "the ranks have different settings". All ranks call this together.
template <class Gather>
void require_equal_values(const Gather& gather, const std::string& subject, const NamedValues& own,
                          const std::string& hint) {
  const std::vector<std::string> texts = different_texts(gather, pack_values(own));
  if (texts.size() == 1) return;
  std::vector<NamedValues> ranks;
  for (const std::string& text : texts) ranks.push_back(unpack_values(text));
  fail_usage_together(subject + ": " + difference_text(ranks), hint);
}

}  // namespace llmc
