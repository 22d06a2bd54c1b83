// What the command lines of all programs have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>

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

// --help and --config.
inline void add_common_flags(CLI::App& app) {
  app.option_defaults()->always_capture_default(false);
  app.set_help_flag("-h,--help", "print this and exit");
  app.set_config("--config", "", "read flags from this file: a line `name = value` for each")
      ->type_name("FILE.toml");
  app.allow_config_extras(CLI::config_extras_mode::error);
}

// A value: the program ends at once with that exit code (help was asked for, or the flags are
// wrong, which has been said on stderr).
inline std::optional<int> parse_flags(CLI::App& app, int argc, char** argv) {
  const std::string name = app.get_name();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help, std::cout, std::cerr);
  } catch (const CLI::ParseError& error) {
    std::cerr << name << ": " << error.what() << "\n  hint: " << name
              << " --help lists all flags\n";
    return kExitUsage;
  }
  return std::nullopt;
}

}  // namespace command_line_detail
}  // namespace llmc
