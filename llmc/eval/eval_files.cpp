#include "llmc/eval/eval_files.h"

#include <iterator>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/io/data/json_objects.h"

namespace llmc {

namespace {

// Some copies of the data have the number in quotes.
std::size_t read_label(const Json& object, std::size_t endings, const std::string& location) {
  const Json* value = json_member(object, "label");
  if (value == nullptr) fail(location + " has no \"label\"");
  const std::string text = value->is_string() ? value->text() : value->dump();
  for (std::size_t label = 0; label < endings; ++label) {
    if (text == std::to_string(label)) return label;
  }
  fail(location + ": \"label\" is " + (text.empty() ? "empty" : printable(text)) +
       ", not one of 0 to " + std::to_string(endings - 1));
}

const Json& list_field(const Json& object, const std::string& key, const std::string& location) {
  const Json* list = json_member(object, key);
  if (list == nullptr) fail(location + " has no \"" + key + "\"");
  if (!list->is_array()) fail(location + ": \"" + key + "\" is not a list");
  return *list;
}

// `name` in errors: FILE:LINE: "KEY".
std::vector<std::string> read_text_list(const Json& list, const std::string& name) {
  std::vector<std::string> texts;
  for (const Json& text : list) {
    const std::string item = name + "[" + std::to_string(texts.size()) + "]";
    texts.push_back(json_text(text, item));
    if (texts.back().empty()) fail(item + " is empty");
  }
  return texts;
}

std::vector<std::string> read_endings(const Json& object, const std::string& location) {
  const Json& list = list_field(object, "endings", location);
  if (list.size() < 2) fail(location + ": \"endings\" is not a list of at least two texts");
  return read_text_list(list, location + ": \"endings\"");
}

// Returns "ctx". If a file has only its two parts, returns those with a space between, which is how
// "ctx" is made.
std::string read_context(const Json& object, const std::string& location) {
  if (json_member(object, "ctx") != nullptr || json_member(object, "ctx_a") == nullptr) {
    return json_text_field(object, "ctx", location);
  }
  const std::string first = json_text_field(object, "ctx_a", location);
  const std::string second = json_text_field(object, "ctx_b", location);
  return first.empty() || second.empty() ? first + second : first + " " + second;
}

constexpr std::size_t kRaceOptions = 4;

std::vector<std::string> read_race_options(const Json& list, const std::string& name) {
  if (!list.is_array() || list.size() != kRaceOptions) fail(name + " is not a list of four texts");
  return read_text_list(list, name);
}

// A letter from A to D, or a number from 0 to 3 with or without quotes.
std::size_t read_race_answer(const Json& value, const std::string& name) {
  const std::string text = value.is_string() ? value.text() : value.dump();
  for (std::size_t answer = 0; answer < kRaceOptions; ++answer) {
    const bool is_letter = value.is_string() && text == std::string(1, "ABCD"[answer]);
    if (is_letter || text == std::to_string(answer)) return answer;
  }
  fail(name + " is " + (text.empty() ? "empty" : printable(text)) +
       ", not one of \"A\" to \"D\" or 0 to 3");
}

RaceExample read_race_question(const Json& object, const std::string& article, std::int64_t line,
                               const std::string& location) {
  for (const char* key : {"options", "answer"}) {
    if (json_member(object, key) == nullptr) fail(location + " has no \"" + key + "\"");
  }
  return {line, article, json_text_field(object, "question", location),
          read_race_options(object["options"], location + ": \"options\""),
          read_race_answer(object["answer"], location + ": \"answer\"")};
}

// The questions of one object that has lists of them.
std::vector<RaceExample> read_race_article(const Json& object, const std::string& article,
                                           std::int64_t line, const std::string& location) {
  const Json& questions = list_field(object, "questions", location);
  const Json& options = list_field(object, "options", location);
  const Json& answers = list_field(object, "answers", location);
  const std::size_t count = questions.size();
  if (count == 0) fail(location + ": \"questions\" is empty");
  for (const auto& [key, list] : {std::pair{"options", &options}, {"answers", &answers}}) {
    if (list->size() == count) continue;
    fail(location + ": \"" + key + "\" has " + std::to_string(list->size()) + " entries for " +
         std::to_string(count) + " questions");
  }
  std::vector<RaceExample> examples;
  for (std::size_t i = 0; i < count; ++i) {
    const auto name = [&](const char* key) {
      return location + ": \"" + key + "\"[" + std::to_string(i) + "]";
    };
    examples.push_back({line, article, json_text(questions[i], name("questions")),
                        read_race_options(options[i], name("options")),
                        read_race_answer(answers[i], name("answers"))});
  }
  return examples;
}

}  // namespace

std::vector<LambadaExample> read_lambada(const std::string& path, std::int64_t limit) {
  std::vector<LambadaExample> examples;
  const auto read = [&](const Json& object, std::int64_t line, const std::string& location) {
    std::string text = json_text_field(object, "text", location);
    text.erase(text.find_last_not_of(" \t\r\n") + 1);
    const std::size_t space = text.rfind(' ');
    const bool has_two_words = space != std::string::npos && space > 0;
    if (!has_two_words) fail(location + ": \"text\" has no word before its last one");
    examples.push_back({line, text.substr(0, space), text.substr(space)});
  };
  for_each_json_object(path, limit, read);
  return examples;
}

std::vector<HellaSwagExample> read_hellaswag(const std::string& path, std::int64_t limit) {
  std::vector<HellaSwagExample> examples;
  const auto read = [&](const Json& object, std::int64_t line, const std::string& location) {
    HellaSwagExample example{line, read_context(object, location), read_endings(object, location),
                             0};
    if (example.context.empty()) fail(location + ": the context is empty");
    example.label = read_label(object, example.endings.size(), location);
    examples.push_back(std::move(example));
  };
  for_each_json_object(path, limit, read);
  return examples;
}

std::vector<RaceExample> read_race(const std::string& path, std::int64_t limit) {
  std::vector<RaceExample> examples;
  const auto read = [&](const Json& object, std::int64_t line, const std::string& location) {
    const std::string article = json_text_field(object, "article", location);
    if (article.empty()) fail(location + ": \"article\" is empty");
    if (json_member(object, "questions") == nullptr) {
      examples.push_back(read_race_question(object, article, line, location));
      return;
    }
    for (RaceExample& example : read_race_article(object, article, line, location)) {
      examples.push_back(std::move(example));
    }
  };
  for_each_json_object(path, limit, read);
  if (limit > 0 && std::ssize(examples) > limit) {
    examples.resize(static_cast<std::size_t>(limit));
  }
  return examples;
}

}  // namespace llmc
