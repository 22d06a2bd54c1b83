#include "llmc/infer/prompt_list.h"

#include <string_view>

#include "llmc/base/error.h"
#include "llmc/base/json.h"
#include "llmc/base/lines.h"
#include "llmc/base/suggestions.h"
#include "llmc/config/infer_values.h"
#include "llmc/io/data/compressed_file.h"
#include "llmc/io/data/text_encoding.h"

namespace llmc {

namespace {

// The stop strings of a line: a text or a list of texts, none of them empty.
std::vector<std::string> stop_texts(const Json& value, const std::string& what) {
  std::vector<std::string> stops;
  if (value.is_array()) {
    for (const Json& item : value) stops.push_back(json_text(item, "a text of " + what));
  } else if (value.is_string()) {
    stops.push_back(json_text(value, what));
  } else {
    fail(what + " is not a text or a list of texts");
  }
  for (const std::string& stop : stops) require(!stop.empty(), what + " is an empty text");
  return stops;
}

// A whole number from 0 up, or -1, which draws a seed.
std::int64_t seed_value(const Json& value, const std::string& what) {
  return value == -1 ? draw_seed() : json_size(value, what);
}

// A text, or a whole number that becomes its decimal text.
std::string id_text(const Json& value, const std::string& what) {
  if (value.is_number_unsigned()) return std::to_string(json_size(value, what));
  if (!value.is_string()) fail(what + " is not a string or a whole number");
  return json_text(value, what);
}

void read_member(const std::string& key, const Json& value, PromptEntry& entry) {
  const std::string what = entry.location + ": \"" + printable(key) + "\"";
  if (key == "prompt") {
    entry.prompt = json_text(value, what);
  } else if (key == "id") {
    entry.id = id_text(value, what);
  } else if (key == "tokens") {
    const std::int64_t tokens = json_size(value, what);
    require(tokens > 0, what + " is 0, not at least 1");
    entry.tokens = tokens;
  } else if (key == "seed") {
    entry.seed = seed_value(value, what);
  } else if (key == "stop") {
    entry.stop = stop_texts(value, what);
  } else {
    const std::vector<KnownName> known = {{"prompt", "prompt"}, {"text", "prompt"},
                                          {"id", "id"},         {"tokens", "tokens"},
                                          {"seed", "seed"},     {"max_tokens", "tokens"},
                                          {"stop", "stop"},     {"max_new_tokens", "tokens"}};
    fail(what + " is not one of the keys prompt, id, tokens, seed, stop" +
         did_you_mean(nearest_answers(key, known)));
  }
}

// Fills an entry from a line of a .jsonl file. Members that are valid are read even if others are
// not, so that the output can show id and prompt. The first error, in the order of the keys'
// names, is reported.
void read_object(std::string_view line, PromptEntry& entry) {
  const auto attempt = [&](const auto& read) {
    try {
      read();
    } catch (const Error& error) {
      if (entry.error.empty()) entry.error = error.what();
    }
  };
  Json object;
  attempt([&] {
    object = parse_json(line, entry.location);
    require(object.is_object(), entry.location + " is not a JSON object");
    require(object.contains("prompt"), entry.location + ": the key \"prompt\" is missing");
  });
  if (!object.is_object()) return;
  for (const auto& [key, value] : object.items()) {
    attempt([&, &key = key, &value = value] { read_member(key, value, entry); });
  }
}

// Fills an entry from a line of any other file.
void read_text(std::string_view line, PromptEntry& entry) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  entry.prompt = std::string(line);
  if (line.empty()) entry.error = entry.location + " is empty";
}

}  // namespace

std::vector<PromptEntry> read_prompt_list(const std::string& path) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  const TextInput file(path);
  const std::string_view content = file.text();
  warn_about_encoding(content, path);
  std::string_view text = content;
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const bool is_jsonl = uncompressed_name(path).ends_with(".jsonl");
  std::vector<PromptEntry> entries;
  Lines lines(text);
  while (is_jsonl ? lines.next_filled() : lines.next()) {
    PromptEntry& entry = entries.emplace_back();
    entry.id = std::to_string(lines.number());
    entry.location = path + ":" + entry.id;
    is_jsonl ? read_object(lines.line(), entry) : read_text(lines.line(), entry);
  }
  if (entries.empty()) fail("--prompts " + path + " is empty", "give one prompt per line");
  return entries;
}

}  // namespace llmc
