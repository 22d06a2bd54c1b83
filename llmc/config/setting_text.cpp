#include "llmc/config/setting_text.h"

namespace llmc {

namespace setting_detail {

std::string whole_number_meant(std::string text) {
  std::erase_if(text, [](char c) { return c == '_' || c == ','; });
  double scale = 1;
  switch (text.empty() ? '\0' : text.back()) {
    case 'k':
    case 'K':
      scale = 1e3;
      break;
    case 'm':
    case 'M':
      scale = 1e6;
      break;
    case 'g':
    case 'G':
    case 'b':
    case 'B':
      scale = 1e9;
      break;
    default:
      break;
  }
  if (scale > 1) text.pop_back();
  double number = 0;
  if (!parse_number(text, number)) return {};
  number = std::round(number * scale * 1e6) / 1e6;  // 0.3k is 300, although 0.3 is not exact
  if (std::trunc(number) != number || std::abs(number) > 0x1p53) return {};
  return std::to_string(static_cast<std::int64_t>(number));
}

std::string choice_error(const std::string& text, const std::vector<std::string>& choices,
                         std::vector<KnownName> known) {
  std::string names;
  for (const std::string& name : choices) {
    if (name == text) return {};
    names += (names.empty() ? "" : ", ") + name;
    known.push_back({name, name});
  }
  return "'" + text + "' is not one of " + names + did_you_mean(nearest_answers(text, known));
}

}  // namespace setting_detail

}  // namespace llmc
