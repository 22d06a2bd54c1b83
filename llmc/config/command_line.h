// What the command lines of all programs have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

namespace llmc {

inline constexpr int kExitOk = 0, kExitFailed = 1, kExitUsage = 2;

namespace command_line_detail {

// All of `text` as a finite number.
template <class Number>
bool parse_number(const std::string& text, Number& value) {
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && at == end && std::isfinite(static_cast<double>(value));
}

// CLI11's own checks let NaN through, wrap negative seeds and spell out the largest double.
template <class Number>
CLI::Validator at_least(Number least) {
  const std::string kind = std::is_integral_v<Number> ? "a whole number" : "a finite number";
  const auto check = [=](const std::string& text) -> std::string {
    Number value{};
    if (parse_number(text, value) && value >= least) return {};
    const std::string bound = std::to_string(static_cast<std::int64_t>(least));
    return "'" + text + "' is not " + kind + " from " + bound + " up";
  };
  return CLI::Validator(check, "");
}

// A finite number in [least, most].
inline CLI::Validator between(double least, double most) {
  const auto check = [=](const std::string& text) -> std::string {
    double value = 0;
    if (parse_number(text, value) && value >= least && value <= most) return {};
    char bounds[64];
    std::snprintf(bounds, sizeof bounds, "from %g to %g", least, most);
    return "'" + text + "' is not a number " + bounds;
  };
  return CLI::Validator(check, "");
}

// `text` in lines of at most `width` characters, broken at blanks; a longer word has its own line.
inline std::string wrapped(const std::string& text, std::size_t width) {
  std::string lines, word;
  std::size_t used = 0;  // of the last line
  std::istringstream words(text);
  while (words >> word) {
    const bool fits = used == 0 || used + 1 + word.size() <= width;
    if (used > 0) lines += fits ? ' ' : '\n';
    used = (fits && used > 0 ? used + 1 : 0) + word.size();
    lines += word;
  }
  return lines;
}

// --help for a terminal of 80 columns.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_description(const CLI::App* app) const override {
    return wrapped(app->get_description(), kColumns) + "\n";
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(option->get_description(), kColumns - get_column_width());
  }

 private:
  static constexpr std::size_t kColumns = 80;
};

// Nothing where a name belongs is mostly a variable that a script never set.
inline void refuse_empty_values(const CLI::App& app, const std::vector<std::string>& may_be_empty) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string flag = option->get_name();
    if (std::ranges::find(may_be_empty, flag) != may_be_empty.end()) continue;
    const std::vector<std::string> values = option->results();
    if (option->get_type_size() == 0 || std::ranges::find(values, "") == values.end()) continue;
    throw CLI::ValidationError(flag, "is empty; leave it out, or say what it should be");
  }
}

// What CLI11 says of a --config file, with the file and in other words.
inline std::string config_error_text(const CLI::App& app, std::string text) {
  constexpr std::string_view kUnknown = "INI was not able to parse ";
  if (text.starts_with(kUnknown)) {
    text = "there is no flag --" + text.substr(kUnknown.size());
  }
  return "--config " + app.get_config_ptr()->as<std::string>() + ": " + text;
}

// --help and --config.
inline void add_common_flags(CLI::App& app) {
  app.formatter(std::make_shared<HelpFormatter>());
  app.option_defaults()->always_capture_default(false);
  app.set_help_flag("-h,--help", "print this and exit");
  app.set_config("--config", "", "read flags from this file: a line `name = value` for each")
      ->type_name("FILE.toml");
  app.allow_config_extras(CLI::config_extras_mode::error);
}

// A value: the program ends at once with that exit code (help was asked for, or the flags are
// wrong, which has been said on stderr). Texts may be empty for the flags in `may_be_empty` alone.
inline std::optional<int> parse_flags(CLI::App& app, int argc, char** argv,
                                      const std::vector<std::string>& may_be_empty = {}) {
  const auto wrong = [name = app.get_name()](const std::string& what) {
    std::cerr << name << ": " << what << "\n  hint: " << name << " --help lists all flags\n";
    return kExitUsage;
  };
  try {
    app.parse(argc, argv);
    refuse_empty_values(app, may_be_empty);
  } catch (const CLI::Success& help) {
    app.exit(help, std::cout, std::cerr);
    return std::cout.flush() ? kExitOk : kExitFailed;
  } catch (const CLI::ConfigError& error) {
    return wrong(config_error_text(app, error.what()));
  } catch (const CLI::ParseError& error) {
    return wrong(error.what());
  }
  return std::nullopt;
}

}  // namespace command_line_detail
}  // namespace llmc
