// The files of evaluation tasks, in the formats that their authors publish:
//
//   perplexity  any text
//   wikitext    WikiText-2 or -103: wiki.test.tokens, one article after the other
//   lambada     lambada_test.jsonl, one object per line:
//               {"text": "... whose last word is to be predicted"}
//   hellaswag   hellaswag_val.jsonl, one object per line:
//               {"ctx": "...", "endings": ["...", ...], "label": 2, ...}
//
// Every error names file, line and field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/lines.h"

namespace llmc {

// The last word of a text, to be predicted from the text before it.
struct LambadaExample {
  std::int64_t line = 0;
  std::string context;
  std::string word;  // with the space before it
};

// A context and several endings, of which one is right.
struct HellaSwagExample {
  std::int64_t line = 0;
  std::string context;
  std::vector<std::string> endings;  // without the space before them
  std::size_t label = 0;
};

namespace eval_files_detail {

inline std::string text_field(const Json& object, const std::string& key, const std::string& what) {
  const Json* value = json_member(object, key);
  if (value == nullptr) fail(what + " has no \"" + key + "\"");
  return json_text(*value, what + ": \"" + key + "\"");
}

// Calls read(object, line number, name of the line in errors) for each line that is not blank, up
// to `limit` objects (0: all). Throws if there is none.
inline void for_each_object(
    const std::string& path, std::int64_t limit,
    const std::function<void(const Json&, std::int64_t, const std::string&)>& read) {
  const std::string text = read_file(path);
  std::int64_t objects = 0;
  for (Lines lines(text); (limit == 0 || objects < limit) && lines.next_filled(); ++objects) {
    const std::string what = path + ":" + std::to_string(lines.number());
    const Json object = parse_json(lines.line(), what);
    if (!object.is_object()) fail(what + " is not a JSON object");
    read(object, lines.number(), what);
  }
  if (objects == 0) fail(path + " holds no examples", "a JSON object a line");
}

// Some copies of the data have the number in quotes.
inline std::size_t read_label(const Json& object, std::size_t endings, const std::string& what) {
  const Json* value = json_member(object, "label");
  if (value == nullptr) fail(what + " has no \"label\"");
  const std::string text = value->is_string() ? value->get<std::string>() : value->dump();
  for (std::size_t label = 0; label < endings; ++label) {
    if (text == std::to_string(label)) return label;
  }
  fail(what + ": \"label\" is " + (text.empty() ? "empty" : printable(text)) +
       ", not one of 0 to " + std::to_string(endings - 1));
}

inline std::vector<std::string> read_endings(const Json& object, const std::string& what) {
  const Json* list = json_member(object, "endings");
  if (list == nullptr) fail(what + " has no \"endings\"");
  if (!list->is_array() || list->size() < 2) {
    fail(what + ": \"endings\" is not a list of at least two texts");
  }
  std::vector<std::string> endings;
  for (const Json& ending : *list) {
    const std::string name = what + ": \"endings\"[" + std::to_string(endings.size()) + "]";
    endings.push_back(json_text(ending, name));
    if (endings.back().empty()) fail(name + " is empty");
  }
  return endings;
}

// Returns "ctx". If a file has only its two parts, returns those with a space between, which is how
// "ctx" is made.
inline std::string read_context(const Json& object, const std::string& what) {
  if (json_member(object, "ctx") != nullptr || json_member(object, "ctx_a") == nullptr) {
    return text_field(object, "ctx", what);
  }
  const std::string first = text_field(object, "ctx_a", what);
  const std::string second = text_field(object, "ctx_b", what);
  return first.empty() || second.empty() ? first + second : first + " " + second;
}

}  // namespace eval_files_detail

// The last word is the text after the last space; white space at the end of the text is ignored.
// `limit`: maximum number of examples (0: all).
inline std::vector<LambadaExample> read_lambada(const std::string& path, std::int64_t limit = 0) {
  std::vector<LambadaExample> examples;
  const auto read = [&](const Json& object, std::int64_t line, const std::string& what) {
    std::string text = eval_files_detail::text_field(object, "text", what);
    text.erase(text.find_last_not_of(" \t\r\n") + 1);
    const std::size_t space = text.rfind(' ');
    const bool two = space != std::string::npos && space > 0;
    if (!two) fail(what + ": \"text\" has no word before its last one");
    examples.push_back({line, text.substr(0, space), text.substr(space)});
  };
  eval_files_detail::for_each_object(path, limit, read);
  return examples;
}

inline std::vector<HellaSwagExample> read_hellaswag(const std::string& path,
                                                    std::int64_t limit = 0) {
  std::vector<HellaSwagExample> examples;
  const auto read = [&](const Json& object, std::int64_t line, const std::string& what) {
    HellaSwagExample example{line, eval_files_detail::read_context(object, what),
                             eval_files_detail::read_endings(object, what), 0};
    if (example.context.empty()) fail(what + ": the context is empty");
    example.label = eval_files_detail::read_label(object, example.endings.size(), what);
    examples.push_back(std::move(example));
  };
  eval_files_detail::for_each_object(path, limit, read);
  return examples;
}

}  // namespace llmc
