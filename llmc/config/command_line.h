// Parses the command line of a program according to its settings table. In addition to what
// setting.h requires, a program P has kName, kDescription, settings(), contradiction() and
// comes_later().
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llmc/base/json.h"
#include "llmc/base/notice.h"
#include "llmc/config/fill_settings.h"
#include "llmc/config/setting.h"
#include "llmc/config/setting_text.h"
#include "llmc/config/settings_json.h"

namespace llmc {

inline constexpr int kExitOk = 0, kExitFailed = 1, kExitUsage = 2;

namespace command_line_detail {

// Wraps `text` at blanks into lines of at most `width` characters. A longer word has its own line.
inline std::string wrap(const std::string& text, std::size_t width) {
  std::string lines, word;
  std::size_t used = 0;  // characters in the last line
  std::istringstream words(text);
  while (words >> word) {
    const bool fits = used == 0 || used + 1 + word.size() <= width;
    if (used > 0) lines += fits ? ' ' : '\n';
    used = (fits && used > 0 ? used + 1 : 0) + word.size();
    lines += word;
  }
  return lines;
}

inline constexpr const char* kOldNames = "Old names";  // a group that --help does not show

// --help for a terminal of 80 columns.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_description(const CLI::App* app) const override {
    return wrap(app->get_description(), kColumns) + "\n";
  }
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    if (group == kOldNames) return {};
    return CLI::Formatter::make_group(std::move(group), is_positional, std::move(options));
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrap(option->get_description(), kColumns - get_column_width());
  }

 private:
  static constexpr std::size_t kColumns = 80;
};

// Rewords CLI11's error about a --config file and adds the file's name.
inline std::string config_error_text(const CLI::App& app, std::string text) {
  constexpr std::string_view kUnknown = "INI was not able to parse ";
  if (text.starts_with(kUnknown)) {
    text = "there is no flag --" + text.substr(kUnknown.size());
  }
  return "--config " + app.get_config_ptr()->as<std::string>() + ": " + text;
}

// The options of a row: one with its name, then hidden ones with its old names.
using RowOptions = std::vector<CLI::Option*>;

template <class P>
CLI::Option* add_option(CLI::App& app, const Setting<P>& row, const std::string& names) {
  const std::string help = help_text(row);
  if (row.field.type == SettingType::boolean) return app.add_flag(names)->description(help);
  CLI::Option* option = app.add_option(names)->description(help);
  option->type_name(unit_text(row));
  option->check(CLI::Validator(
      [&row](const std::string& text) -> std::string {
        return text.empty() ? std::string() : text_error(row, text);
      },
      ""));
  if (row.field.type != SettingType::list) return option;
  option->expected(1, CLI::detail::expected_max_vector_size);
  const bool positional = !row.flag.starts_with('-');
  option->allow_extra_args(positional);
  if (!positional) option->delimiter(',');
  return option;
}

template <class P>
RowOptions add_options(CLI::App& app, const Setting<P>& row) {
  const std::string names = (row.synonym.empty() ? "" : row.synonym + ",") + row.flag;
  RowOptions options{add_option(app, row, names)};
  options.front()->group(row.group);
  for (const std::string& old : row.old_names) {
    options.push_back(add_option(app, row, old)->group(kOldNames));
  }
  return options;
}

// Stores the value given for one row. Rejects empty values unless the row accepts them: they
// usually come from an unset shell variable.
template <class P>
void store_value(const Setting<P>& row, const RowOptions& options, typename P::Request& request) {
  const CLI::Option* given_option = nullptr;
  for (const CLI::Option* option : options) {
    if (option->count() == 0) continue;
    if (given_option != nullptr) {
      throw CLI::ValidationError(row.flag + " and " + option->get_name() +
                                 ", its old name, are both given; leave one out");
    }
    given_option = option;
  }
  if (given_option == nullptr) {
    if (row.required) throw CLI::RequiredError(row.flag);
    return;
  }
  std::vector<std::string> texts = given_option->results();
  if (row.field.type == SettingType::boolean) texts = {given_option->as<bool>() ? "true" : "false"};
  if (std::ranges::find(texts, "") != texts.end() && !row.may_be_empty) {
    if (row.empty_is_default) return;
    throw CLI::ValidationError(given_option->get_name(),
                               "is empty; leave it out, or give it a value");
  }
  row.field.set_request(request, parse_value(row, texts));
}

template <class P>
void check_relations(const Settings<P>& table, const typename P::Request& request) {
  const auto has_flag = [&](const std::string& flag) {
    return is_given(*find_setting(table, flag), request);
  };
  for (const Setting<P>& row : table) {
    if (!is_given(row, request)) continue;
    for (const std::string& flag : row.excluded_flags) {
      if (has_flag(flag))
        throw CLI::ValidationError(row.flag + " and " + flag + " exclude each other");
    }
  }
  std::string error = P::contradiction(request);
  if (error.empty()) {
    error = requirement_error(table, request, [&](const Setting<P>& row) {
      return is_given(row, request) || P::comes_later(row, request);
    });
  }
  if (!error.empty()) throw CLI::ValidationError(error);
}

// Adds the flags that every program has.
inline void add_common_flags(CLI::App& app) {
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_help_flag("-h,--help", "print this help and exit");
  app.add_flag_callback(
      "--help-json", [] { throw CLI::CallForAllHelp(); }, "print this help as JSON and exit");
  app.set_config("--config", "",
                 "read flags from this file, which has one line `name = value` per flag")
      ->type_name("FILE.toml");
  app.allow_config_extras(CLI::config_extras_mode::error);
}

inline int exit_after_printing(const std::string& text) {
  std::cout << text << std::flush;
  return std::cout ? kExitOk : kExitFailed;
}

}  // namespace command_line_detail

// Fills `request` from flags and a --config file. Returns an exit code if the program must exit
// now: help was requested, or the flags are wrong, which is reported on stderr.
template <class P>
std::optional<int> parse_command_line(int argc, char** argv, typename P::Request& request) {
  using namespace command_line_detail;
  const Settings<P>& table = P::settings();
  CLI::App app{P::kDescription, P::kName};
  add_common_flags(app);
  std::vector<RowOptions> options;
  for (const Setting<P>& row : table) options.push_back(add_options(app, row));
  const auto usage_error = [](const std::string& message) {
    Notice::warn(std::string(P::kName) + ": " + message + "\n  hint: " + P::kName +
                 " --help lists all flags");
    return kExitUsage;
  };
  try {
    app.parse(argc, argv);
    for (std::size_t i = 0; i < table.size(); ++i) store_value(table[i], options[i], request);
    check_relations(table, request);
  } catch (const CLI::CallForAllHelp&) {
    return exit_after_printing(settings_json(table) + "\n");
  } catch (const CLI::Success&) {
    return exit_after_printing(app.help());
  } catch (const CLI::ConfigError& error) {
    return usage_error(config_error_text(app, error.what()));
  } catch (const CLI::ParseError& error) {
    return usage_error(error.what());
  }
  return std::nullopt;
}

}  // namespace llmc
