// A file of prompts: one JSON object per line if its name ends in .jsonl, otherwise one prompt per
// line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/lines.h"
#include "llmc/io/data/text_encoding.h"

namespace llmc {

// A prompt, with what its line sets in addition. If the line is wrong, only `id`, `location` and
// `error` are set: other prompts are not affected.
struct PromptEntry {
  std::string id{};  // default: the number of the line
  std::string prompt{};
  std::optional<std::int64_t> tokens{};  // maximum number to generate
  std::optional<std::int64_t> seed{};
  std::vector<std::string> stop{};  // in addition to those of the command line
  std::string location{};           // FILE:LINE
  std::string error{};
};

namespace prompt_list_detail {

inline std::vector<std::string> read_stops(const Json& value, const std::string& what) {
  std::vector<std::string> stops;
  if (value.is_array()) {
    for (const Json& stop : value) stops.push_back(json_text(stop, what));
  } else {
    stops.push_back(json_text(value, what));
  }
  for (const std::string& stop : stops) require(!stop.empty(), what + " is empty");
  return stops;
}

inline void read_member(PromptEntry& entry, const std::string& key, const Json& value) {
  const std::string what = entry.location + ": \"" + key + "\"";
  if (key == "prompt") {
    entry.prompt = json_text(value, what);
  } else if (key == "id") {
    entry.id = value.is_number_integer() ? value.dump() : json_text(value, what);
  } else if (key == "tokens") {
    entry.tokens = json_size(value, what);
    require(*entry.tokens >= 1, what + " is less than 1");
  } else if (key == "seed") {
    entry.seed = json_size(value, what);
  } else if (key == "stop") {
    entry.stop = read_stops(value, what);
  } else {
    fail(entry.location + " has an unknown key \"" + printable(key) + "\"",
         "use prompt, id, tokens, seed and stop");
  }
}

inline void read_object(PromptEntry& entry, std::string_view line) {
  const Json object = parse_json(std::string(line), entry.location);
  require(object.is_object(), entry.location + " is not a JSON object");
  require(json_member(object, "prompt") != nullptr, entry.location + " has no \"prompt\"");
  for (const auto& [key, value] : object.items()) read_member(entry, key, value);
}

}  // namespace prompt_list_detail

// Reads the prompts of a file. Throws if it cannot be read or has no line; errors in a line are in
// its entry.
inline std::vector<PromptEntry> read_prompt_list(const std::string& path) {
  const std::string text = read_file(path);
  warn_about_encoding(text, path);
  require(!text.empty(), path + " is empty", "give one prompt per line");
  const bool objects = path.ends_with(".jsonl");
  std::vector<PromptEntry> entries;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::string number = std::to_string(entries.size() + 1);
    PromptEntry entry{.id = number, .location = path + ":" + number};
    try {
      require(!line.empty(), entry.location + " is empty");
      if (objects) {
        prompt_list_detail::read_object(entry, line);
      } else {
        entry.prompt = std::string(line);
      }
    } catch (const Error& error) {
      entry = {.id = entry.id, .location = entry.location, .error = error.what()};
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace llmc
