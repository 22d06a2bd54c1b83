#include "llmc/config/command_line.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <istream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/base/similar_path.h"
#include "llmc/base/standard_output.h"
#include "llmc/config/fill_settings.h"
#include "llmc/config/help_page.h"
#include "llmc/config/help_part.h"
#include "llmc/config/infer_table.h"
#include "llmc/config/setting.h"
#include "llmc/config/setting_text.h"
#include "llmc/config/settings_json.h"
#include "llmc/config/tokenize_table.h"
#include "llmc/config/train_table.h"
#include "llmc/config/trainer_config.h"
#include "llmc/config/unexpected_words.h"

namespace llmc {

namespace {

// Reads the lines of a --config file, which editors of Windows begin with a byte-order mark.
std::vector<CLI::ConfigItem> read_config(std::istream& input) {
  std::string text{std::istreambuf_iterator<char>(input), std::istreambuf_iterator<char>()};
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  std::istringstream stream(std::move(text));
  return CLI::ConfigTOML().from_config(stream);
}

// Rewords CLI11's error about a line of a --config file and adds the file's name.
template <class P>
std::string config_error_text(const CLI::App& app, std::string text) {
  constexpr std::string_view kUnknown = "INI was not able to parse ", kSection = ".++";
  if (text.starts_with(kUnknown)) {
    const std::string key = text.substr(kUnknown.size());
    if (key.ends_with(kSection)) {
      text = "the section [" + key.substr(0, key.size() - kSection.size()) +
             "] is not supported; write the flags without sections";
    } else if (key.find(' ') != key.npos) {
      text = "the line '" + key + "' has no '='; write name = value";
    } else {
      text = unknown_flag_error(P::settings(), "--" + key);
    }
  }
  return "--config " + app.get_config_ptr()->as<std::string>() + ": " + text;
}

// Throws if the value of --config is no file that can be read.
void check_config_file(const std::string& path) {
  const std::string name = "--config " + (path.empty() ? "''" : path);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw CLI::ValidationError(name + " does not exist" + did_you_mean_path(path));
  }
  if (std::filesystem::is_directory(path, ignored)) {
    throw CLI::ValidationError(name + " is a directory; give a file");
  }
  if (::access(path.c_str(), R_OK) != 0) {
    throw CLI::ValidationError(name + " cannot be read: " + std::strerror(errno));
  }
}

// The reader of --config files. infer_gpt2 also reads those of train_gpt2.
template <class P>
class ConfigReader : public CLI::ConfigTOML {
 public:
  explicit ConfigReader(const CLI::App& app) : app_(app) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> items = read_config(input);
    if constexpr (!std::is_same_v<P, InferProgram>) return items;
    std::vector<ConfigLine> lines;
    for (const CLI::ConfigItem& item : items) lines.push_back({item.fullname(), item.inputs});
    if (!is_trainer_config(lines)) return items;
    const TrainerConfig config =
        read_trainer_config(lines, app_.get_option("--model")->count() > 0);
    notice_ = trainer_config_notice(app_.get_config_ptr()->as<std::string>(), config);
    items.clear();
    for (const ConfigLine& line : config.lines) {
      CLI::ConfigItem& item = items.emplace_back();
      item.name = line.name;
      item.inputs = line.values;
    }
    return items;
  }

  // The settings that the reader has ignored, as a message; empty if there are none.
  const std::string& notice() const { return notice_; }

 private:
  const CLI::App& app_;
  mutable std::string notice_;  // from_config() is const in the library
};

// The options of a row: one with its name, then hidden ones with its old names.
using RowOptions = std::vector<CLI::Option*>;

template <class P>
CLI::Option* add_option(CLI::App& app, const Setting<P>& row, const std::string& names) {
  if (row.field.type == SettingType::boolean) {
    return app.add_flag(row.special.negated.empty() ? names : names + ",!" + row.special.negated);
  }
  CLI::Option* option = app.add_option(names);
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
  if (!positional && !row.special.keeps_commas) option->delimiter(',');
  return option;
}

template <class P>
RowOptions add_options(CLI::App& app, const Setting<P>& row) {
  const std::string names =
      (row.special.synonym.empty() ? "" : row.special.synonym + ",") + row.flag;
  RowOptions options{add_option(app, row, names)};
  for (const std::string& old : row.special.old_names) options.push_back(add_option(app, row, old));
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
  if (given_option == nullptr) return;
  std::vector<std::string> texts = given_option->results();
  if (row.field.type == SettingType::boolean) texts = {given_option->as<bool>() ? "true" : "false"};
  if (std::ranges::find(texts, "") != texts.end() && !row.special.may_be_empty) {
    if (row.special.empty_is_default) return;
    throw CLI::ValidationError(given_option->get_name(),
                               "is empty; leave it out, or give it a value");
  }
  row.field.set_request(request, parse_value(row, texts));
}

// The row of the program's commands; null if it has none.
template <class P>
const Setting<P>* find_command_row(const Settings<P>& table) {
  const auto row = std::ranges::find_if(
      table, [](const Setting<P>& candidate) { return !candidate.special.first_words.empty(); });
  return row == table.end() ? nullptr : &*row;
}

// The command that was given; empty if there is none.
template <class P>
std::string command_of(const Settings<P>& table, const typename P::Request& request) {
  const Setting<P>* row = find_command_row(table);
  const auto value = row == nullptr ? std::nullopt : row->field.get_request(request);
  if (!value) return {};
  const auto& words = std::get<std::vector<std::string>>(*value);
  return words.empty() ? "" : words.front();
}

template <class P>
bool has_command(const Setting<P>& row, const std::string& command) {
  return row.commands.empty() || std::ranges::find(row.commands, command) != row.commands.end();
}

// Throws if a required flag is missing. Flags that the command does not have are not required.
template <class P>
void check_required(const Settings<P>& table, const typename P::Request& request) {
  const std::string command = command_of(table, request);
  for (const Setting<P>& row : table) {
    if (!row.special.required || !has_command(row, command) || is_given(row, request)) continue;
    const std::string& other = row.special.required_unless;
    if (other.empty() || !is_given(*find_setting(table, other), request)) {
      throw CLI::RequiredError(row.flag);
    }
  }
}

// Throws if the command is unknown or if a flag has no effect with it.
template <class P>
void check_command(const Settings<P>& table, const typename P::Request& request) {
  const Setting<P>* row = find_command_row(table);
  if (row == nullptr) return;
  const std::string command = command_of(table, request);
  if (!command.empty() && !is_command(*row, command)) {
    throw CLI::ValidationError(unknown_command_error(*row, command));
  }
  for (const Setting<P>& other : table) {
    if (has_command(other, command) || !is_given(other, request)) continue;
    std::string names;  // the empty command needs no name
    for (const std::string& name : other.commands) {
      if (!name.empty()) names += (names.empty() ? "" : " or ") + name;
    }
    throw CLI::ValidationError(
        other.flag + " has no effect " +
        (command.empty() ? "without the command " + names : "with the command " + command));
  }
}

template <class P>
void check_relations(const Settings<P>& table, const typename P::Request& request) {
  const auto has_flag = [&](const std::string& flag) {
    return is_given(*find_setting(table, flag), request);
  };
  check_required(table, request);
  check_command(table, request);
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
void add_common_flags(CLI::App& app) {
  app.set_help_flag("-h,--help");
  app.add_flag_callback("--help-json", [] { throw CLI::CallForAllHelp(); });
  app.add_flag_callback("--version", [] { throw CLI::CallForVersion({}, 0); });
  app.set_config("--config");
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.allow_extras();  // reported by throw_if_unexpected
}

// Throws if the command line has unknown flags, or words that belong to no flag.
template <class P>
void throw_if_unexpected(const std::vector<std::string>& words) {
  const UnexpectedWords<P> unexpected(P::settings(), words);
  std::string message;
  for (const std::string& error : unexpected.errors()) {
    message += (message.empty() ? "" : "\n" + std::string(P::kName) + ": ") + error;
  }
  if (!message.empty()) throw CLI::ExtrasError(message, CLI::ExitCodes::ExtrasError);
}

// Parses the words after the program's name. Unknown flags are reported before wrong values.
template <class P>
void parse_words(CLI::App& app, std::vector<std::string> words) {
  const std::vector<std::string> typed = words;
  std::ranges::reverse(words);  // the order that CLI11 requires
  try {
    app.parse(std::move(words));
  } catch (const CLI::Success&) {
    throw;
  } catch (const CLI::ParseError& error) {
    throw_if_unexpected<P>(typed);
    const CLI::Option* config = app.get_config_ptr();
    if (config->count() > 0) check_config_file(config->as<std::string>());
    throw;
  }
  throw_if_unexpected<P>(typed);
  if (!app.remaining().empty()) {
    throw CLI::ValidationError("unexpected argument '" + app.remaining().front() + "'");
  }
}

// Prints a text that was requested instead of a run, and returns the exit code.
template <class P>
int exit_after_printing(const std::string& text) {
  try {
    print_text(text);
    return kExitOk;
  } catch (const Error& error) {
    return report_failure<P>(error);
  }
}

}  // namespace

template <class P>
std::optional<CommandLineAnswer> read_command_line(int argc, char** argv,
                                                   typename P::Request& request,
                                                   const BuildText& build) {
  const Settings<P>& table = P::settings();
  CLI::App app{P::kDescription, P::kName};
  add_common_flags(app);
  std::vector<RowOptions> options;
  for (const Setting<P>& row : table) options.push_back(add_options(app, row));
  const auto usage_error = [](const std::string& message) {
    return CommandLineAnswer{kExitUsage,
                             message + "\n  hint: " + P::kName + " --help lists all flags"};
  };
  const auto config_reader = std::make_shared<ConfigReader<P>>(app);
  app.config_formatter(config_reader);
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (const std::optional<std::string> topic = help_topic(words)) {
    const std::string part = help_part<P>(*topic);
    return part.empty() ? usage_error(unknown_topic_error<P>(*topic))
                        : CommandLineAnswer{.text = part};
  }
  try {
    parse_words<P>(app, words);
    for (std::size_t i = 0; i < table.size(); ++i) store_value(table[i], options[i], request);
    check_relations(table, request);
    if (!config_reader->notice().empty() && !is_given(*find_setting(table, "--quiet"), request)) {
      Notice::print(config_reader->notice());
    }
  } catch (const CLI::CallForAllHelp&) {
    return CommandLineAnswer{.text = settings_json(table) + "\n"};
  } catch (const CLI::CallForVersion&) {
    return CommandLineAnswer{.text = version_text(P::kName, build)};
  } catch (const CLI::Success&) {
    return CommandLineAnswer{.text = help_page<P>()};
  } catch (const CLI::ConfigError& error) {
    return usage_error(config_error_text<P>(app, error.what()));
  } catch (const CLI::ParseError& error) {
    return usage_error(error.what());
  }
  return std::nullopt;
}

template <class P>
int print_answer(const CommandLineAnswer& answer) {
  if (answer.exit_code == kExitOk) return exit_after_printing<P>(answer.text);
  Notice::warn(std::string(P::kName) + ": " + answer.text);
  return answer.exit_code;
}

template <class P>
std::optional<int> parse_command_line(int argc, char** argv, typename P::Request& request,
                                      const BuildText& build) {
  const std::optional<CommandLineAnswer> answer = read_command_line<P>(argc, argv, request, build);
  if (!answer) return std::nullopt;
  return print_answer<P>(*answer);
}

std::string options_library_version() {
  return CLI11_VERSION;
}

// The programs that have such a command line.
#define LLMC_INSTANTIATE(P)                                                                \
  template std::optional<CommandLineAnswer> read_command_line<P>(int, char**, P::Request&, \
                                                                 const BuildText&);        \
  template int print_answer<P>(const CommandLineAnswer&);                                  \
  template std::optional<int> parse_command_line<P>(int, char**, P::Request&, const BuildText&);
LLMC_INSTANTIATE(TrainProgram)
LLMC_INSTANTIATE(InferProgram)
LLMC_INSTANTIATE(TokenizeProgram)
#undef LLMC_INSTANTIATE

}  // namespace llmc
