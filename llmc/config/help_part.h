// A part of the text of --help: `--help zero`, `--help --lr`, `--help optimizer`.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "llmc/base/suggestions.h"
#include "llmc/config/help_page.h"
#include "llmc/config/names_elsewhere.h"
#include "llmc/config/setting.h"
#include "llmc/config/setting_text.h"
#include "llmc/config/unexpected_words.h"

namespace llmc {

// The word after --help or -h on a command line, which selects the part; empty if there is none.
std::optional<std::string> help_topic(const std::vector<std::string>& words);

namespace help_part_detail {

// "ranks", "parallelism" for "Ranks and parallelism (mpirun)": the words of a heading in lower
// case, without what is in parentheses and without "and".
std::vector<std::string> heading_words(const std::string& heading);

// The lines of a flag that every program has; empty if no such flag has this name.
std::string common_flag_lines(const std::string& name);

// The lines of the selected rows under their headings.
template <class P, class IsSelected>
std::string selected_flags(const IsSelected& is_selected) {
  std::string text, group;
  for (const Setting<P>& row : P::settings()) {
    if (!is_selected(row)) continue;
    if (row.group != group) text += (text.empty() ? "" : "\n") + row.group + ":\n";
    group = row.group;
    text += help_page_detail::flag_lines(names_text(row), unit_text(row), help_text(row));
  }
  return text;
}

// The names of flags and the words of headings, each with the topic to use.
template <class P>
std::vector<KnownName> known_topics() {
  std::vector<KnownName> known = known_flags(P::settings());
  for (const Setting<P>& row : P::settings()) {
    for (const std::string& word : heading_words(row.group)) known.push_back({word, word});
  }
  return known;
}

}  // namespace help_part_detail

// The part of --help for a topic: a flag, also by a name that it has in other programs; or without
// dashes a word of a heading, or the begin of flags, such as "pp" of --pp-chunks. Empty if there is
// none.
template <class P>
std::string help_part(const std::string& topic) {
  using namespace help_part_detail;
  const bool has_dashes = topic.starts_with('-');
  const std::string flag = has_dashes ? topic : "--" + topic;
  const std::string name = suggestions_detail::comparable(topic);
  std::string text;
  if (!has_dashes) {
    text = selected_flags<P>([&](const Setting<P>& row) {
      return std::ranges::count(heading_words(row.group), name) > 0;
    });
  }
  if (text.empty()) text = common_flag_lines(flag);
  if (!text.empty()) return text;
  const Setting<P>* exact = find_setting(P::settings(), flag);
  if (exact == nullptr) exact = find_setting(P::settings(), topic);  // the positional argument
  text = selected_flags<P>([&](const Setting<P>& row) {
    return &row == exact || (!has_dashes && row.flag.starts_with(flag + "-"));
  });
  if (!text.empty()) return text;
  return selected_flags<P>([&](const Setting<P>& row) {
    return std::ranges::any_of(names_elsewhere(P::kName, row.flag), [&](const std::string& other) {
      return suggestions_detail::comparable(other) == name;
    });
  });
}

// The error of a topic without a part.
template <class P>
std::string unknown_topic_error(const std::string& topic) {
  const std::string flag = topic.starts_with('-') ? topic : "--" + topic;
  if (!way_here(P::kName, flag).empty()) return unknown_flag_error(P::settings(), flag);
  return "--help: there is no flag and no group '" + topic + "'" +
         did_you_mean(nearest_answers(topic, help_part_detail::known_topics<P>()));
}

}  // namespace llmc
