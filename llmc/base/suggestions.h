// Finds the known names nearest to a mistyped one, for "did you mean ...?". The names are only
// suggested: no program accepts a name that is not in its settings table.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace llmc {

// A name that users may type, and the answer to it: the flag or the value to use.
struct KnownName {
  std::string name;
  std::string answer;
};

namespace suggestions_detail {

// The form in which names are compared: lower case, '-' for '_', no leading dashes.
std::string comparable(std::string_view name);

}  // namespace suggestions_detail

// Number of insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`; no
// character is changed twice.
std::size_t edit_distance(std::string_view a, std::string_view b);

// Returns the answers of the names equal to `text`; else those that begin with it; else the answers
// of other names of which it is the first half; else those of the names at the smallest edit
// distance, which is at most a quarter of the length and 3, of other names a sixth and 2. Returns
// nothing if no name is near or if more than three answers are.
std::vector<std::string> nearest_answers(std::string_view text,
                                         const std::vector<KnownName>& known);

// "; did you mean A or B?", or an empty text without answers.
std::string did_you_mean(const std::vector<std::string>& answers);

}  // namespace llmc
