// The text of --help for a terminal of 80 columns, written from the settings table of a program.
#pragma once

#include <cstddef>
#include <string>

#include "llmc/config/setting.h"
#include "llmc/config/setting_text.h"

namespace llmc {

// A flag that every program has and that is not in its settings table.
struct CommonFlag {
  const char* names;       // as --help lists them
  const char* value_name;  // empty for a switch
  const char* help;
};
inline constexpr CommonFlag kCommonFlags[] = {
    {"-h,--help", "[FLAG|GROUP]",
     "print this help and exit; with a flag or a word of a heading, only that part"},
    {"--help-json", "", "print this help as JSON and exit"},
    {"--version", "", "print the version, the commit, the target and the libraries, and exit"},
    {"--config", "FILE.toml",
     "read flags from this file, which has one line `name = value` per flag [default: none]"}};

namespace help_page_detail {

inline constexpr std::size_t kColumns = 80, kHelpColumn = 30;

// Wraps `text` at blanks into lines of at most `width` characters and begins each line but the
// first with `indent` blanks. A longer word has its own line.
std::string wrap(const std::string& text, std::size_t width, std::size_t indent = 0);

// One flag: names and name of the value, then the help text from kHelpColumn on.
std::string flag_lines(const std::string& names, const std::string& value_name,
                       const std::string& help);

inline bool is_positional(const std::string& flag) {
  return !flag.starts_with('-');
}

}  // namespace help_page_detail

// The description, all flags by group, and the examples of a program.
template <class P>
std::string help_page() {
  using namespace help_page_detail;
  std::string usage = std::string("Usage: ") + P::kName + " [OPTIONS]", flags, group;
  for (const CommonFlag& flag : kCommonFlags) {
    flags += flag_lines(flag.names, flag.value_name, flag.help);
  }
  for (const Setting<P>& row : P::settings()) {
    if (row.group != group) flags += "\n" + row.group + ":\n";
    group = row.group;
    flags += flag_lines(names_text(row), unit_text(row), help_text(row));
    if (!is_positional(row.flag)) continue;
    usage += row.special.required ? " " + row.flag + "..." : " [" + row.flag + "...]";
  }
  std::string page = wrap(P::kDescription, kColumns) + "\n" + usage + "\n\nOptions:\n" + flags;
  page += "\nExamples:\n";
  for (const char* example : P::kExamples) page += std::string("  ") + example + "\n";
  return page;
}

}  // namespace llmc
