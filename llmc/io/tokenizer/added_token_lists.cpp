#include "llmc/io/tokenizer/added_token_lists.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/notice.h"
#include "llmc/io/tokenizer/bpe_files.h"

namespace llmc {

namespace bpe {

AddedToken added_token(const JsonSection& token, std::int64_t id) {
  token.allow_only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  const std::string text = json_text(token.at("content"), token.place("content"));
  require(!text.empty(), token.place("content") + " is empty");
  const bool special = token.flag("special", false);
  return {.text = text,
          .id = token_id(id, token.place("id"), text),
          .special = special,
          .strips_left = token.flag("lstrip", false),
          .strips_right = token.flag("rstrip", false),
          .single_word = token.flag("single_word", false),
          .is_second = token.flag("normalized", !special)};
}

void close_gaps(BpeListing& listing) {
  std::set<std::string_view> ordinary;
  for (const auto& [name, id] : listing.ids) ordinary.insert(name);
  const auto first = static_cast<std::int32_t>(std::ssize(listing.ids));
  std::int32_t next = first;
  std::string moved;
  for (AddedToken& token : listing.added) {
    if (ordinary.contains(token.text) || token.id < first) continue;
    if (token.id != next && moved.empty()) {
      moved = in_quotes(token.text) + " has the id " + std::to_string(token.id) + " and gets " +
              std::to_string(next);
    }
    token.id = next++;
  }
  if (moved.empty()) return;
  Notice::print(listing.added_source + ": " + moved +
                ": as in transformers, ids of added tokens have the order of the file and no gaps");
}

namespace {

std::optional<Json> parse_if_exists(const std::filesystem::path& path) {
  if (!path_exists(path)) return std::nullopt;
  return parse_json(read_file(path), path.string());
}

// Reads {"ID": {"content": ...}, ...}.
void list_decoder(const JsonSection& tokens, BpeListing& listing) {
  for (const auto& [key, value] : tokens.json().items()) {
    std::int64_t id = -1;
    const auto end = std::from_chars(key.data(), key.data() + key.size(), id);
    if (end.ec != std::errc() || end.ptr != key.data() + key.size() || id < 0) {
      fail(listing.added_source + ": the key " + in_quotes(key) + " is not the id of a token");
    }
    listing.added.push_back(added_token(JsonSection(value, tokens.place(printable(key))), id));
  }
}

// Inserts the texts of the tokens with a role: "NAME_token": "TEXT" or {"content": "TEXT"}, and
// "additional_special_tokens": [...].
void insert_roles(const Json& file, std::set<std::string>& texts) {
  const auto insert = [&](const Json& token) {
    const Json* const text = token.is_object() ? json_member(token, "content") : &token;
    if (text != nullptr && text->is_string()) texts.insert(text->text());
  };
  if (!file.is_object()) return;
  for (const auto& [key, value] : file.items()) {
    if (key.ends_with("_token")) insert(value);
    if (key == "additional_special_tokens") {
      for (const Json& token : value) insert(token);
    }
  }
}

// Reads {"TEXT": ID, ...}.
void list_added_file(const Json& tokens, const std::set<std::string>& roles, BpeListing& listing) {
  for (const auto& [text, id] : named_ids(tokens, listing.added_source)) {
    require(!text.empty(), listing.added_source + ": the text of a token is empty");
    const bool is_named_special = text.starts_with('<') && text.ends_with('>');
    const bool special = is_named_special || roles.contains(text);
    listing.added.push_back({.text = text,
                             .id = token_id(id, listing.added_source, text),
                             .special = special,
                             .is_second = !special});
  }
}

}  // namespace

void list_added_of_pair(const std::filesystem::path& directory, BpeListing& listing) {
  const std::filesystem::path config_path = directory / "tokenizer_config.json";
  const std::filesystem::path added_path = directory / "added_tokens.json";
  const std::optional<Json> config = parse_if_exists(config_path);
  const Json* const decoder =
      config.has_value() ? json_member(*config, "added_tokens_decoder") : nullptr;
  if (decoder != nullptr && !decoder->is_null()) {
    listing.added_source = config_path.string() + ": added_tokens_decoder";
    list_decoder(JsonSection(*decoder, listing.added_source), listing);
  } else if (const std::optional<Json> added = parse_if_exists(added_path)) {
    std::set<std::string> roles;
    if (config.has_value()) insert_roles(*config, roles);
    const auto map = parse_if_exists(directory / "special_tokens_map.json");
    if (map.has_value()) insert_roles(*map, roles);
    listing.added_source = added_path.string();
    list_added_file(*added, roles, listing);
  }
  std::ranges::sort(listing.added, {}, [](const AddedToken& token) { return token.id; });
  close_gaps(listing);
}

}  // namespace bpe

}  // namespace llmc
