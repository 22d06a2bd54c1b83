#include "llmc/config/help_part.h"

#include <cctype>
#include <cstddef>

namespace llmc {

std::optional<std::string> help_topic(const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    if (words[i].starts_with("--help=")) return words[i].substr(words[i].find('=') + 1);
    if (words[i] != "--help" && words[i] != "-h") continue;
    if (i + 1 < words.size()) return words[i + 1];
    return std::nullopt;
  }
  return std::nullopt;
}

namespace help_part_detail {

std::vector<std::string> heading_words(const std::string& heading) {
  std::vector<std::string> words(1);
  for (const char c : heading.substr(0, heading.find('('))) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isalpha(letter) != 0 || c == '-') {
      words.back() += static_cast<char>(std::tolower(letter));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  std::erase_if(words, [](const std::string& word) { return word.empty() || word == "and"; });
  return words;
}

std::string common_flag_lines(const std::string& name) {
  for (const CommonFlag& flag : kCommonFlags) {
    const std::string names = "," + std::string(flag.names) + ",";
    if (names.find("," + name + ",") == names.npos) continue;
    return help_page_detail::flag_lines(flag.names, flag.value_name, flag.help);
  }
  return {};
}

}  // namespace help_part_detail

}  // namespace llmc
