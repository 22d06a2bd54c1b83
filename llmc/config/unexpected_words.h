// Explains the words of a command line that belong to no setting: unknown flags, and words without
// a flag.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/shell_word.h"
#include "llmc/base/suggestions.h"
#include "llmc/config/help_page.h"
#include "llmc/config/names_elsewhere.h"
#include "llmc/config/setting.h"

namespace llmc {

// All names of flags, those that are still accepted and those that are only well known, with the
// flag to use.
template <class P>
std::vector<KnownName> known_flags(const Settings<P>& table) {
  std::vector<KnownName> known{{"--help", "--help"},           {"--usage", "--help"},
                               {"--help-json", "--help-json"}, {"--version", "--version"},
                               {"--config", "--config"},       {"--config-file", "--config"}};
  for (const Setting<P>& row : table) {
    if (!row.flag.starts_with('-')) continue;
    known.push_back({row.flag, row.flag});
    if (!row.special.synonym.empty()) known.push_back({row.special.synonym, row.flag});
    if (!row.special.negated.empty()) known.push_back({row.special.negated, row.special.negated});
    for (const std::string& name : row.special.old_names) known.push_back({name, row.flag});
    for (const std::string& name : names_elsewhere(P::kName, row.flag)) {
      known.push_back({name, row.flag});
    }
  }
  return known;
}

// "there is no flag --batch_size; did you mean --batch-size?", or "there is no flag --lora: LoRA is
// not supported"
template <class P>
std::string unknown_flag_error(const Settings<P>& table, const std::string& flag) {
  const std::string way = way_here(P::kName, flag);
  if (!way.empty()) return "there is no flag " + flag + ": " + way;
  const std::vector<std::string> answers = nearest_answers(flag, known_flags(table));
  const std::string other = answers.empty() ? way_in_other_program(P::kName, flag) : "";
  return "there is no flag " + flag + (other.empty() ? did_you_mean(answers) : ": " + other);
}

// The names of the row's commands, separated by commas.
template <class P>
std::string command_names(const Setting<P>& row) {
  std::string names;
  for (const KnownName& word : row.special.first_words) {
    if (word.name == word.answer) names += (names.empty() ? "" : ", ") + word.name;
  }
  return names;
}

template <class P>
bool is_command(const Setting<P>& row, const std::string& word) {
  return std::ranges::any_of(row.special.first_words, [&](const KnownName& known) {
    return known.name == word && known.answer == word;
  });
}

// "there is no command 'benhc'; the commands are bench, score; did you mean bench?"
template <class P>
std::string unknown_command_error(const Setting<P>& row, const std::string& word) {
  return "there is no command '" + word + "'; the commands are " + command_names(row) +
         did_you_mean(nearest_answers(word, row.special.first_words));
}

// Reads a command line as the parser does and collects one error per unknown flag and per group of
// words without a flag, in the order in which they were typed.
template <class P>
class UnexpectedWords {
 public:
  UnexpectedWords(const Settings<P>& table, std::vector<std::string> words)
      : table_(table), words_(std::move(words)) {
    for (const Setting<P>& row : table) {
      if (row.flag.starts_with('-')) continue;
      (row.special.first_words.empty() ? has_positional_ : may_have_command_) = true;
      command_row_ = &row;
    }
    for (std::size_t i = 0; i < words_.size();) {
      i = words_[i] == "--"    ? read_run(i + 1, words_.size())
          : is_flag(words_[i]) ? read_flag(i)
                               : read_run(i, end_of_run(i));
    }
  }

  const std::vector<std::string>& errors() const { return errors_; }

 private:
  // "-", numbers and texts such as "- item" are values.
  static bool is_flag(std::string_view word) {
    return word.size() > 1 && word[0] == '-' && word[1] != ' ' && word[1] != '.' &&
           (word[1] < '0' || word[1] > '9');
  }

  static bool is_common(const std::string& name) {
    for (const CommonFlag& flag : kCommonFlags) {
      const std::string names = "," + std::string(flag.names) + ",";
      if (names.find("," + name + ",") != names.npos) return true;
    }
    return false;
  }

  // Reads the flag at word i and its value. Returns the index of the next word.
  std::size_t read_flag(std::size_t i) {
    const std::string& word = words_[i];
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const bool is_attached = equals != word.npos;
    value_row_ = nullptr;
    switch_.clear();
    if (is_common(name)) return i + (name == "--config" && !is_attached ? 2 : 1);
    if (const Setting<P>* row = find_setting(table_, name)) {
      if (row->field.type == SettingType::boolean) {
        switch_ = name;
        return i + 1;
      }
      const std::size_t value = is_attached ? i : i + 1;
      if (value >= words_.size()) return value;
      value_row_ = row;
      value_flag_ = name;
      value_ = is_attached ? word.substr(equals + 1) : words_[value];
      return value + 1;
    }
    if (word[1] != '-' && find_setting(table_, word.substr(0, 2)) != nullptr) return i + 1;  // -n5
    errors_.push_back(unknown_flag_error(table_, name));
    const bool has_value = !is_attached && i + 1 < words_.size() && !is_flag(words_[i + 1]);
    return i + (has_value ? 2 : 1);
  }

  // The index of the next flag after word i.
  std::size_t end_of_run(std::size_t i) const {
    while (i < words_.size() && !is_flag(words_[i])) ++i;
    return i;
  }

  // Reads the words i .. end - 1, which have no flag. Returns `end`.
  std::size_t read_run(std::size_t i, std::size_t end) {
    if (!has_positional_ && may_have_command_ && i < end) read_first_word(words_[i]);
    if (has_positional_) return end;
    while (i < end) {
      const Setting<P>* row = row_of(words_[i]);
      std::vector<std::string> group{words_[i++]};
      while (row != nullptr && !row->special.word_separator.empty() && i < end &&
             row_of(words_[i]) == row) {
        group.push_back(words_[i++]);
      }
      add_error(group, row);
      value_row_ = nullptr;
    }
    return end;
  }

  // Reads the first word without a flag. If it is a command, or probably meant as one, the words
  // after it are its arguments.
  void read_first_word(const std::string& word) {
    constexpr std::size_t kMinLength = 4;  // a shorter word is near to too many others
    may_have_command_ = false;
    has_positional_ = is_command(*command_row_, word);
    if (has_positional_ || word.size() < kMinLength) return;
    if (nearest_answers(word, command_row_->special.first_words).empty()) return;
    errors_.push_back(unknown_command_error(*command_row_, word));
    has_positional_ = true;
  }

  // The row whose value the word may be: that of the flag before it if that accepts lists.
  const Setting<P>* row_of(const std::string& word) const {
    const auto accepts = [&](const Setting<P>& row) {
      return row.special.accepts_bare_word && row.special.accepts_bare_word(word);
    };
    if (value_row_ != nullptr && !value_row_->special.word_separator.empty() &&
        accepts(*value_row_)) {
      return value_row_;
    }
    for (const Setting<P>& row : table_) {
      if (accepts(row)) return &row;
    }
    return nullptr;
  }

  void add_error(const std::vector<std::string>& group, const Setting<P>* row) {
    const bool extends_value =
        row != nullptr && row == value_row_ && !row->special.word_separator.empty();
    std::string list, value = extends_value ? value_ : "";
    for (const std::string& word : group) {
      list += (list.empty() ? "'" : ", '") + word + "'";
      if (row != nullptr) value += (value.empty() ? "" : row->special.word_separator) + word;
    }
    std::string error = "unexpected argument" + std::string(group.size() > 1 ? "s " : " ") + list;
    if (!switch_.empty() && (group.front() == "true" || group.front() == "false")) {
      error += "; did you mean " + switch_ + "=" + group.front() + "?";
    } else if (group.size() == 1 && group.front().ends_with(".toml")) {
      error += "; did you mean --config " + shell_word(group.front()) + "?";
    } else if (row != nullptr) {
      const std::string flag = row == value_row_ ? value_flag_ : row->flag;
      error += "; did you mean " + flag + " " + shell_word(value) + "?";
    }
    errors_.push_back(error);
  }

  const Settings<P>& table_;
  std::vector<std::string> words_;
  bool has_positional_ = false;    // words without a flag are values of the positional argument
  bool may_have_command_ = false;  // if the first of them is a command
  const Setting<P>* command_row_ = nullptr;
  // The flag with a value directly before the current word, and that value.
  const Setting<P>* value_row_ = nullptr;
  std::string value_flag_, value_;
  std::string switch_;  // the switch directly before the current word
  std::vector<std::string> errors_;
};

}  // namespace llmc
