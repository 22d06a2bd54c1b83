#include "llmc/base/suggestions.h"

#include <algorithm>
#include <utility>

namespace llmc {

namespace suggestions_detail {

namespace {

constexpr std::size_t kMaxAnswers = 3;

// The edit distance of a mistyped name is at most this: "--activation" is not "--quantization". It
// is smaller for names that are only known: "--num-beams" is not "--num-heads".
std::size_t max_distance(std::size_t length, bool is_own) {
  return is_own ? std::min<std::size_t>(3, (length + 2) / 4) : std::min<std::size_t>(2, length / 6);
}

}  // namespace

std::string comparable(std::string_view name) {
  name.remove_prefix(std::min(name.find_first_not_of("-_"), name.size()));
  std::string result(name);
  for (char& c : result) {
    if (c == '_') c = '-';
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

namespace {

void add_once(std::vector<std::string>& answers, const std::string& answer) {
  if (std::ranges::find(answers, answer) == answers.end()) answers.push_back(answer);
}

}  // namespace

}  // namespace suggestions_detail

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::vector<std::string> nearest_answers(std::string_view text,
                                         const std::vector<KnownName>& known) {
  using namespace suggestions_detail;
  const std::string typed = comparable(text);
  std::vector<std::string> equal, longer, longer_names, near;
  std::size_t best = typed.size();
  for (const KnownName& candidate : known) {
    const std::string name = comparable(candidate.name);
    if (name == typed) add_once(equal, candidate.answer);
    const bool is_own = candidate.name == candidate.answer;
    const bool is_begin = typed.size() > 1 && name.starts_with(typed);
    // The first word of another name, such as "ddp" of "ddp-backend", has a meaning of its own.
    if (is_begin && (is_own || 2 * typed.size() >= name.size())) {
      add_once(is_own ? longer : longer_names, candidate.answer);
    }
    const std::size_t distance = edit_distance(typed, name);
    if (distance > max_distance(std::min(typed.size(), name.size()), is_own) || distance > best)
      continue;
    if (distance < best) near.clear();
    best = distance;
    add_once(near, candidate.answer);
  }
  for (const auto* answers : {&equal, &longer, &longer_names, &near}) {
    if (!answers->empty()) return answers->size() <= kMaxAnswers ? *answers : decltype(near){};
  }
  return {};
}

std::string did_you_mean(const std::vector<std::string>& answers) {
  if (answers.empty()) return {};
  std::string list;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const bool is_last = i + 1 == answers.size();
    list += (i == 0 ? "" : is_last ? " or " : ", ") + answers[i];
  }
  return "; did you mean " + list + "?";
}

}  // namespace llmc
