// One row of a settings table. The rows of a program define its parser, --help, the defaults, the
// notes of a resumed run and the tables in the documentation.
//
// A program is described by a type P with P::Request (each setting a std::optional), P::Config
// (each setting a value) and P::Facts (what the rules for defaults may depend on).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/suggestions.h"
#include "llmc/config/choices.h"

namespace llmc {

// A setting's value without its C++ type; an enum is stored as its name.
using SettingValue =
    std::variant<bool, std::int64_t, std::uint64_t, double, std::string, std::vector<std::string>>;

enum class SettingType { boolean, integer, unsigned_integer, real, text, list, choice };

namespace setting_detail {

template <class T>
constexpr SettingType type_of() {
  if constexpr (std::is_enum_v<T>) return SettingType::choice;
  if constexpr (std::is_same_v<T, bool>) return SettingType::boolean;
  if constexpr (std::is_same_v<T, std::int64_t>) return SettingType::integer;
  if constexpr (std::is_same_v<T, std::uint64_t>) return SettingType::unsigned_integer;
  if constexpr (std::is_same_v<T, double>) return SettingType::real;
  if constexpr (std::is_same_v<T, std::string>) return SettingType::text;
  return SettingType::list;
}

template <class T>
SettingValue to_value(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return std::string(choice_name(value));
  } else {
    return value;
  }
}

// An integer in a row may stand for any other type of number, such as `.fallback = 1` for a double.
template <class T>
T from_value(const SettingValue& value) {
  if constexpr (std::is_enum_v<T>) {
    const auto names = choice_names(T{});
    const auto& name = std::get<std::string>(value);
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (name == names[i]) return static_cast<T>(i);
    }
    fail("'" + name + "' is not a known name");
  } else {
    if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<T>(*integer);
    }
    return std::get<T>(value);
  }
}

}  // namespace setting_detail

// Access to a setting in P::Request and in P::Config. It is built from one function that works on
// both, such as `[](auto& s) -> decltype(auto) { return (s.batch.seq_len); }`.
template <class P>
struct Field {
  using Request = typename P::Request;
  using Config = typename P::Config;

  template <class Access, class = std::invoke_result_t<Access, Config&>>
  Field(Access) {
    using T = std::remove_cvref_t<std::invoke_result_t<Access, Config&>>;
    type = setting_detail::type_of<T>();
    if constexpr (std::is_enum_v<T>) {
      for (const char* name : choice_names(T{})) choices.emplace_back(name);
      other_choices = other_choice_names(T{});
    }
    get_request = [](const Request& request) -> std::optional<SettingValue> {
      const std::optional<T>& value = Access{}(request);
      if (!value) return std::nullopt;
      return setting_detail::to_value(*value);
    };
    set_request = [](Request& all, const SettingValue& value) {
      Access{}(all) = setting_detail::from_value<T>(value);
    };
    get = [](const Config& config) { return setting_detail::to_value<T>(Access{}(config)); };
    set = [](Config& config, const SettingValue& value) {
      Access{}(config) = setting_detail::from_value<T>(value);
    };
    zero = [] { return setting_detail::to_value<T>(T{}); };
  }

  SettingType type = SettingType::boolean;
  std::vector<std::string> choices;
  std::vector<KnownName> other_choices;  // names of choices elsewhere; only suggested
  std::optional<SettingValue> (*get_request)(const Request&) = nullptr;
  void (*set_request)(Request&, const SettingValue&) = nullptr;
  SettingValue (*get)(const Config&) = nullptr;
  void (*set)(Config&, const SettingValue&) = nullptr;
  SettingValue (*zero)() = nullptr;
};

// The inputs of a rule: the flags that were given, the settings of the rows above, and facts.
template <class P>
struct Resolution {
  const typename P::Request& request;
  const typename P::Config& config;
  const typename P::Facts& facts;
};

// The value of a setting that was not given: a constant, or a rule with its text for --help. A text
// without a rule stands for false, 0 or the empty text.
template <class P>
struct Default {
  using Rule = std::function<SettingValue(const Resolution<P>&)>;

  Default() = default;
  Default(const char* rule_text) : text(rule_text) {}
  Default(const char* rule_text, Rule value_rule) : text(rule_text), rule(std::move(value_rule)) {}
  Default(int number) : value(std::int64_t{number}) {}
  Default(double number) : value(number) {}
  Default(SettingValue constant) : value(std::move(constant)) {}

  std::optional<SettingValue> value;
  std::string text;
  Rule rule;
};

// Inclusive bounds of a number.
struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
};
inline Range at_least(double min) {
  return {.min = min};
}
inline Range between(double min, double max) {
  return {min, max};
}

// Whether a resumed run may use another value than the run it continues. Checkpoints record all
// settings except `indirect` and `process` ones; a resumed run uses the recorded value of every
// flag that is not typed.
enum class OnResume {
  free,      // yes, and a change is reported; results do not change, or only in rounding
  noted,     // yes, and a change is reported
  indirect,  // yes; the settings that follow from it are recorded and reported
  adapted,   // yes; the position in the data is converted (train/checkpoint/resume_checks.h)
  ignored,   // the value is not used: the checkpoint has its own weights and loss scale
  fixed,     // no; a change is an error
  process    // the setting belongs to one process, not to the run
};

// The setting has an effect only if another flag has one of these values.
struct Condition {
  Condition() = default;
  Condition(const char* other_flag, std::vector<std::string> other_values)
      : flag(other_flag), values(std::move(other_values)) {}

  std::string flag;
  std::vector<std::string> values;
};

// The setting's part of the sentence about the optimizer in a model card; {} is replaced by the
// value. The parts are sorted by `order`.
struct CardText {
  CardText() = default;
  CardText(int part_order, const char* part_text) : order(part_order), text(part_text) {}

  int order = 0;
  std::string text;
};

// A recorded run that is continued from another directory, or whose --out was moved.
struct Relocation {
  std::string directory;  // working directory of the run so far
  std::string out;        // --out of the run so far, as it was typed there
  std::string new_out;    // --out now
};

// Columns that few rows have.
struct SpecialColumns {
  Condition condition;      // empty: the setting always has an effect
  std::string resume_text;  // extra note in the table of --resume
  std::string may_differ;   // why ranks may be given different values; empty: they must be equal
  CardText card;            // part of the model card
  std::string synonym;      // alternative name, such as "-n"
  std::string negated;      // for switches: the name that turns it off
  std::vector<std::string> old_names;  // former names, still accepted
  bool required = false;
  std::string required_unless;     // the flag with which it is not required; empty: none
  bool recorded_if_given = false;  // checkpoints record no 0, which stands for: not given
  bool may_be_empty = false;       // for texts; otherwise an empty value is an error
  bool empty_is_default = false;   // for texts: an empty value counts as not given
  bool keeps_commas = false;       // for lists: each value has its own flag and may contain commas
  // For texts with names of files: returns the text with names that lead to the same files after a
  // relocation (relocation.h).
  std::function<std::string(const std::string&, const Relocation&)> relocate;
  // Whether a word without a flag may be a value of this flag, which is then suggested.
  std::function<bool(const std::string&)> accepts_bare_word;
  std::string word_separator;  // joins several such words into one value; empty: only one word
  // For the positional argument: the commands that it may begin with, and names that are only
  // suggested, whose answer is a command. Empty: it accepts any words.
  std::vector<KnownName> first_words;
};

template <class P>
struct Setting {
  std::string flag;     // "--lr"; a name without dashes is the positional argument
  Field<P> field;       // where it is stored
  std::string unit;     // name of the value in --help, such as STEPS or DIR
  std::string help;     // what the flag does
  Default<P> fallback;  // the default
  Range range;          // bounds of a number
  std::vector<std::string> required_flags;  // flags that must be given with it
  std::vector<std::string> excluded_flags;  // flags that must not be given with it
  bool changes_results = false;             // whether weights or training losses depend on it
  OnResume on_resume = OnResume::free;      // whether a resumed run may change it
  std::string quantity;                     // its name in errors of lower layers
  SpecialColumns special;
  // Returns an error for one value as it was typed, or an empty text.
  std::function<std::string(const std::string&)> check;
  // Returns the value that another given flag implies. It precedes presets and the default.
  std::function<std::optional<SettingValue>(const Resolution<P>&)> implied_value;
  // Throws if the value conflicts with those of the rows above; called as soon as the value is set.
  std::function<void(const Resolution<P>&)> verify;
  std::vector<std::string>
      commands;       // commands with an effect of the setting, "": none; empty: all
  std::string group;  // heading in --help; set by the table
};

template <class P>
using Settings = std::vector<Setting<P>>;

// ---- texts of values ----

// Returns the value as typed after a flag; empty for false, an empty text and an empty list.
std::string value_text(const SettingValue& value);

// The default as --help prints it: the constant, or the text of the rule; empty if there is none.
template <class P>
std::string default_text(const Setting<P>& row) {
  if (!row.fallback.text.empty() || !row.fallback.value) return row.fallback.text;
  return value_text(*row.fallback.value);
}

// ---- rows of a table ----

// The names of a flag as --help lists them, such as "-n,--tokens" or "--stream,--no-stream".
template <class P>
std::string names_text(const Setting<P>& row) {
  return (row.special.synonym.empty() ? "" : row.special.synonym + ",") + row.flag +
         (row.special.negated.empty() ? "" : "," + row.special.negated);
}

// Appends the rows under a heading.
template <class P>
void add_group(Settings<P>& table, const std::string& heading, Settings<P> rows) {
  for (Setting<P>& row : rows) {
    row.group = heading;
    table.push_back(std::move(row));
  }
}

// Finds the row of a flag by any of its names; null if there is none.
template <class P>
const Setting<P>* find_setting(const Settings<P>& table, const std::string& name) {
  for (const Setting<P>& row : table) {
    if (row.flag == name || row.special.synonym == name) return &row;
    if (!row.special.negated.empty() && row.special.negated == name) return &row;
    for (const std::string& old : row.special.old_names) {
      if (old == name) return &row;
    }
  }
  return nullptr;
}

// Whether the flag was given. A switch given as false counts as not given.
template <class P>
bool is_given(const Setting<P>& row, const typename P::Request& request) {
  const auto value = row.field.get_request(request);
  return value && *value != SettingValue(false);
}

}  // namespace llmc
