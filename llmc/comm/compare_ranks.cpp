#include "llmc/comm/compare_ranks.h"

#include <cstddef>
#include <set>
#include <span>

#include "llmc/base/checksum.h"
#include "llmc/base/terminal.h"
#include "llmc/base/text_list.h"

namespace llmc {

std::string rank_list(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i == 2) end = i + 1;  // "2, 3" instead of "2 to 3"
    text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
    if (end - i > 1) text += " to " + std::to_string(ranks[end - 1]);
    i = end;
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

namespace {

constexpr std::size_t kMaxShown = 120;  // bytes of a value
constexpr std::size_t kMaxValues = 4;   // of one name
constexpr std::size_t kMaxNames = 4;

// Number of bytes at the begin of all values that are equal.
std::size_t common_prefix(const std::vector<std::string>& values) {
  std::size_t size = values.front().size();
  for (const std::string& value : values) {
    const auto end = std::ranges::mismatch(value, values.front()).in1;
    size = std::min(size, static_cast<std::size_t>(end - value.begin()));
  }
  return size;
}

// A value as an error shows it. Of a long one, it is the part from where the values differ.
std::string shown_value(const std::string& value, std::size_t prefix) {
  constexpr std::size_t kContext = 20;
  if (value.size() <= kMaxShown) return readable_text(value.empty() ? "''" : value);
  const std::size_t begin = prefix < kMaxShown - kContext ? 0 : prefix - kContext;
  const bool is_cut = value.size() - begin > kMaxShown;
  return readable_text((begin > 0 ? "..." : "") + value.substr(begin, kMaxShown) +
                       (is_cut ? "..." : ""));
}

const std::string* find_value(const NamedValues& values, const std::string& name) {
  const auto value = std::ranges::find(values, name, &NamedValue::name);
  return value == values.end() ? nullptr : &value->value;
}

// "0.01 on rank 1, the default on rank 0"; empty if all ranks have the same. The value of rank 0
// comes last.
std::string difference_in(const std::vector<NamedValues>& ranks, const std::string& name,
                          const std::string& missing) {
  struct Holders {
    const std::string* value;
    std::vector<int> ranks;
  };
  std::vector<Holders> all;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::string* value = find_value(ranks[rank], name);
    auto same = std::ranges::find_if(all, [&](const Holders& other) {
      return value == nullptr || other.value == nullptr ? value == other.value
                                                        : *value == *other.value;
    });
    if (same == all.end()) same = all.insert(same, {value, {}});
    same->ranks.push_back(static_cast<int>(rank));
  }
  if (all.size() == 1) return {};
  std::vector<std::string> values;
  for (const Holders& holders : all) {
    if (holders.value != nullptr) values.push_back(*holders.value);
  }
  const std::size_t prefix = common_prefix(values);
  std::rotate(all.begin(), all.begin() + 1, all.end());
  std::string text;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all.size() > kMaxValues && i == kMaxValues - 1 && i + 1 < all.size()) {
      text += ", other values on other ranks";
      i = all.size() - 1;
    }
    text += (i == 0 ? "" : ", ") +
            (all[i].value == nullptr ? missing : shown_value(*all[i].value, prefix)) + " on " +
            rank_list(all[i].ranks);
  }
  return text;
}

}  // namespace

std::string difference_text(const std::vector<NamedValues>& ranks, const std::string& missing) {
  std::vector<std::string> names, parts;
  std::set<std::string> known;
  for (const NamedValues& values : ranks) {
    for (const NamedValue& value : values) {
      if (known.insert(value.name).second) names.push_back(value.name);
    }
  }
  for (const std::string& name : names) {
    const std::string difference = difference_in(ranks, name, missing);
    if (!difference.empty()) parts.push_back(name + " is " + difference);
  }
  std::string text;
  for (std::size_t i = 0; i < std::min(parts.size(), kMaxNames); ++i) {
    text += (i == 0 ? "" : "; ") + parts[i];
  }
  if (parts.size() > kMaxNames) text += "; " + std::to_string(parts.size() - kMaxNames) + " more";
  return text;
}

std::string content_checksum_of(const std::string& text) {
  ContentChecksum sum;
  sum.add(std::as_bytes(std::span(text)));
  return sum.text();
}

std::string pack_values(const NamedValues& values) {
  std::vector<std::string> texts;
  for (const NamedValue& value : values) texts.insert(texts.end(), {value.name, value.value});
  return pack_texts(texts);
}

NamedValues unpack_values(const std::string& packed) {
  const std::vector<std::string> texts = unpack_texts(packed);
  require(texts.size() % 2 == 0, "a name without a value");
  NamedValues values;
  for (std::size_t i = 0; i < texts.size(); i += 2) values.push_back({texts[i], texts[i + 1]});
  return values;
}

}  // namespace llmc
