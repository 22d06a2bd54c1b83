// What the command lines of all programs have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <iostream>
#include <optional>
#include <string>

namespace llmc {

inline constexpr int kExitOk = 0, kExitFailed = 1, kExitUsage = 2;

namespace command_line_detail {

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
