#include "llmc/io/data/labelled_texts.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/lines.h"
#include "llmc/base/notice.h"
#include "llmc/base/suggestions.h"
#include "llmc/base/utf8.h"
#include "llmc/io/data/compressed_file.h"
#include "llmc/io/data/json_objects.h"
#include "llmc/io/data/source_list.h"
#include "llmc/io/data/text_encoding.h"

namespace llmc {

namespace {

constexpr const char* kLabelHint =
    "label each line with an integer from 0 to the number of classes - 1, or each with a name";

// A label as a file has it.
struct WrittenLabel {
  std::optional<std::int64_t> number{};
  std::string name{};

  std::string text() const { return number ? std::to_string(*number) : printable(name); }
};

// The lines of all files.
struct LabelledLines {
  struct Line {
    std::string text;
    WrittenLabel label;
    std::size_t file;
    std::int64_t number;
  };

  std::vector<std::string> files;
  std::vector<Line> lines;

  std::string location(const Line& line) const {
    return files[line.file] + ":" + std::to_string(line.number);
  }

  // Calls the last file `location` in errors.
  void add(const std::string& text, WrittenLabel label, std::int64_t number) {
    lines.push_back({text, std::move(label), files.size() - 1, number});
    const Line& line = lines.back();
    if (text.find_first_not_of(" \t\r\n\v\f") == text.npos) {
      fail(location(line) + ": the text is empty", "remove the line, or write a text");
    }
    const bool is_number = line.label.number.has_value();
    if (lines.front().label.number.has_value() == is_number) return;
    fail(location(line) + ": the label " + line.label.text() + " is " +
             (is_number ? "an integer" : "a string") + ", but that of " + location(lines.front()) +
             " is " + (is_number ? "a string" : "an integer"),
         kLabelHint);
  }
};

void check_label_name(const std::string& name, const std::string& location) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (!name.empty() && std::ranges::none_of(name, is_control) && is_utf8(name)) return;
  fail(location + ": the label '" + printable(name) + "' " +
           (name.empty() ? "is empty" : "has a control character or is not UTF-8"),
       kLabelHint);
}

WrittenLabel label_of(const Json& object, const std::string& location) {
  const Json* value = json_member(object, "label");
  if (value == nullptr) fail(location + " has no \"label\"", kLabelHint);
  if (value->is_string()) {
    check_label_name(value->text(), location);
    return {.name = value->text()};
  }
  if (!value->is_number_unsigned()) {
    fail(location + ": \"label\" is " + printable(value->dump(-1, true)) +
             ", neither an integer of 0 or more nor a string",
         kLabelHint);
  }
  return {.number = json_size(*value, location + ": \"label\"")};
}

void read_json_labels(const std::string& file, LabelledLines& lines) {
  lines.files.push_back(file);
  for_each_json_object(
      file, 0, [&](const Json& object, std::int64_t line, const std::string& location) {
        const std::string& text = json_text_field(
            object, "text", location, R"(write {"text": "...", "label": ...} on each line)");
        lines.add(text, label_of(object, location), line);
      });
}

void read_text_lines(const std::string& file, const std::string& label, LabelledLines& lines) {
  if (uncompressed_name(file).ends_with(".jsonl")) {
    fail(file + ": JSON lines have their own labels",
         "give the file without a label, or one text on each line of a .txt file");
  }
  lines.files.push_back(file);
  const TextInput input(file);
  warn_about_encoding(input.text(), file, true);
  if (input.text().empty()) fail(file + " is empty", "write one text on each line");
  for (Lines text(input.text()); text.next();) {
    std::string_view line = text.line();
    if (line.ends_with('\r')) line.remove_suffix(1);
    require(is_utf8(line), file + ":" + std::to_string(text.number()) + " is not UTF-8",
            "convert the file with iconv");
    lines.add(std::string(line), {.name = label}, text.number());
  }
}

// A label and the name of its files.
using LabelFiles = std::vector<std::pair<std::string, std::string>>;

LabelFiles parse_label_files(const std::string& source, const std::string& flag) {
  using namespace source_list_detail;
  LabelFiles list;
  for (const std::string& item : split_list(source)) {
    const std::size_t equals = item.find('=');
    const std::string label = item.substr(0, equals);
    const std::string name = equals == item.npos ? "" : unescape(item.substr(equals + 1));
    if (label.empty() || name.empty()) {
      fail_usage(flag + " '" + source + "': '" + item + "' is not LABEL=FILE",
                 "write LABEL=FILE,LABEL=FILE, or give a file whose name ends in .jsonl");
    }
    check_label_name(label, flag);
    if (std::ranges::find(list, label, &LabelFiles::value_type::first) != list.end()) {
      fail_usage(flag + " '" + source + "' has the label " + label + " twice",
                 "give one file or one pattern for each label");
    }
    list.emplace_back(label, name);
  }
  return list;
}

bool is_json_source(const std::string& source) {
  return uncompressed_name(source).ends_with(".jsonl") &&
         (source_list_detail::exists(source) || source.find('=') == source.npos);
}

// The first line with each label, sorted by label.
std::map<std::pair<std::int64_t, std::string>, std::string> label_places(
    const LabelledLines& lines) {
  std::map<std::pair<std::int64_t, std::string>, const LabelledLines::Line*> first;
  for (const LabelledLines::Line& line : lines.lines) {
    first.try_emplace({line.label.number.value_or(0), line.label.name}, &line);
  }
  std::map<std::pair<std::int64_t, std::string>, std::string> places;
  for (const auto& [label, line] : first) places.emplace(label, lines.location(*line));
  return places;
}

// Names the classes of a source whose classes are not known.
std::vector<std::string> names_of_labels(const LabelledLines& lines, const std::string& source) {
  const bool has_numbers = lines.lines.front().label.number.has_value();
  std::vector<std::string> names;
  const auto places = label_places(lines);
  for (const auto& [label, place] : places) {
    const auto count = static_cast<std::int64_t>(names.size());
    if (has_numbers && label.first != count) {
      fail(place + ": the label is " + std::to_string(label.first) +
               ", but no line has the label " + std::to_string(count),
           kLabelHint);
    }
    names.push_back(has_numbers ? "LABEL_" + std::to_string(count) : label.second);
  }
  if (names.size() > 1) return names;
  const auto& [label, place] = *places.begin();
  fail(source + ": all texts have the label " +
           (has_numbers ? std::to_string(label.first) : label.second),
       "give texts of at least two classes");
}

std::int32_t class_of_label(const LabelledLines& lines, const LabelledLines::Line& line,
                            const std::vector<std::string>& names,
                            const std::unordered_map<std::string, std::int32_t>& classes) {
  const WrittenLabel& label = line.label;
  if (label.number) {
    if (*label.number < std::ssize(names)) return static_cast<std::int32_t>(*label.number);
    fail(lines.location(line) + ": the label is " + label.text() + ", not one of 0 to " +
         std::to_string(names.size() - 1));
  }
  if (const auto known = classes.find(label.name); known != classes.end()) return known->second;
  std::vector<KnownName> answers;
  for (const std::string& name : names) answers.push_back({name, name});
  constexpr std::size_t kMaxListed = 10;
  std::string list;
  for (std::size_t i = 0; i < std::min(names.size(), kMaxListed); ++i) {
    list += (i == 0 ? "" : ", ") + printable(names[i]);
  }
  fail(lines.location(line) + ": the label " + label.text() + " is unknown" +
           did_you_mean(nearest_answers(label.name, answers)),
       "use one of the " + std::to_string(names.size()) + " labels " + list +
           (names.size() > kMaxListed ? ", ..." : ""));
}

// Counts the texts with several labels, and warns about them.
std::int64_t report_contradictions(const LabelledLines& lines, const LabelledTexts& result) {
  struct Use {
    std::size_t line;
    bool is_counted = false;
  };
  std::unordered_map<std::string_view, Use> uses;
  std::int64_t count = 0;
  std::string example;
  for (std::size_t i = 0; i < lines.lines.size(); ++i) {
    Use& use = uses.try_emplace(result.texts[i], Use{i}).first->second;
    if (use.is_counted || result.labels[use.line] == result.labels[i]) continue;
    use.is_counted = true;
    if (count++ > 0) continue;
    const auto describe = [&](std::size_t at) {
      return lines.location(lines.lines[at]) + " (" +
             printable(result.label_names[static_cast<std::size_t>(result.labels[at])]) + ")";
    };
    example = describe(use.line) + " and " + describe(i);
  }
  if (count > 0) {
    Notice::warn("warning: " + result.source + ": " + std::to_string(count) +
                 (count == 1 ? " text has" : " texts have") + " several labels: " + example +
                 (count == 1 ? "" : " are the first"));
  }
  return count;
}

LabelledTexts selected_texts(const LabelledTexts& all, const std::vector<std::size_t>& indices) {
  LabelledTexts part{.source = all.source,
                     .texts = {},
                     .labels = {},
                     .label_names = all.label_names,
                     .num_contradictions = 0};
  for (const std::size_t i : indices) {
    part.texts.push_back(all.texts[i]);
    part.labels.push_back(all.labels[i]);
  }
  return part;
}

}  // namespace

LabelledTexts read_labelled_texts(const std::string& source, const std::string& flag,
                                  const std::vector<std::string>& known_names) {
  LabelledLines lines;
  LabelledTexts result{.source = source,
                       .texts = {},
                       .labels = {},
                       .label_names = known_names,
                       .num_contradictions = 0};
  if (is_json_source(source)) {
    for (const std::string& file : files_of_source(source, flag)) read_json_labels(file, lines);
    if (known_names.empty()) result.label_names = names_of_labels(lines, source);
  } else {
    const LabelFiles list = parse_label_files(source, flag);
    if (known_names.empty()) {
      if (list.size() < 2) {
        fail_usage(flag + " '" + source + "' has only one class",
                   "write LABEL=FILE,LABEL=FILE with at least two labels");
      }
      for (const auto& [label, name] : list) result.label_names.push_back(label);
    }
    for (const auto& [label, name] : list) {
      for (const std::string& file : files_of_source(name, flag)) {
        read_text_lines(file, label, lines);
      }
    }
  }
  std::unordered_map<std::string, std::int32_t> classes;
  for (const std::string& name : result.label_names) {
    classes.emplace(name, static_cast<std::int32_t>(classes.size()));
  }
  for (LabelledLines::Line& line : lines.lines) {
    result.labels.push_back(class_of_label(lines, line, result.label_names, classes));
    result.texts.push_back(std::move(line.text));
  }
  result.num_contradictions = report_contradictions(lines, result);
  return result;
}

LabelledSplit split_labelled_texts(const LabelledTexts& texts, const SplitFractions& fractions) {
  std::vector<std::uint64_t> hashes;
  for (const std::string& text : texts.texts) hashes.push_back(split_hash(text));
  const SplitIndices indices = split_by_hash(hashes, fractions, texts.source);
  std::vector<bool> has_text(texts.label_names.size(), false);
  for (const std::size_t i : indices.train) {
    has_text[static_cast<std::size_t>(texts.labels[i])] = true;
  }
  for (std::size_t label = 0; label < has_text.size(); ++label) {
    if (has_text[label]) continue;
    fail(texts.source + ": no text with the label " + printable(texts.label_names[label]) +
             " is in the training part",
         "give more texts with this label, or a greater fraction for training");
  }
  return {selected_texts(texts, indices.train), selected_texts(texts, indices.validation),
          selected_texts(texts, indices.test)};
}

}  // namespace llmc
