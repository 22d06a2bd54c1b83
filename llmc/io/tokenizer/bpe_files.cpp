#include "llmc/io/tokenizer/bpe_files.h"

#include <cstddef>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/lines.h"
#include "llmc/io/tokenizer/added_token_lists.h"

namespace llmc {

namespace bpe {

BpeListing::NamedIds named_ids(const Json& json, const std::string& what) {
  if (!json.is_object()) fail(what + " is not a JSON object of tokens and their ids");
  BpeListing::NamedIds ids;
  for (const auto& [name, value] : json.items()) {
    ids.emplace_back(name, json_size(value, what + ": the id of " + in_quotes(name)));
  }
  return ids;
}

std::int32_t token_id(std::int64_t id, const std::string& source, const std::string& name) {
  constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;
  if (id < kMaxTokens) return static_cast<std::int32_t>(id);
  fail(source + ": the id of " + in_quotes(name) + " is " + std::to_string(id),
       "allowed: 0 to " + std::to_string(kMaxTokens - 1));
}

std::pair<std::string, std::string> two_names(std::string_view line, const std::string& location) {
  const std::size_t space = line.find(' ');
  if (space == line.npos || space != line.rfind(' ')) {
    fail(location + in_quotes(line) + " is not two tokens with a space between them");
  }
  return {std::string(line.substr(0, space)), std::string(line.substr(space + 1))};
}

void list_merges(const std::filesystem::path& path, BpeListing& listing) {
  const std::string list = read_file(path);
  listing.merges_source = path.string();
  listing.merge_label = ", line ";
  for (Lines lines(list); lines.next();) {
    if (lines.number() == 1 && lines.line().starts_with("#version")) {
      listing.first_merge = 2;
      continue;
    }
    const std::string location = path.string() + ", line " + std::to_string(lines.number()) + ": ";
    std::string_view line = lines.line();
    if (line.ends_with('\r')) line.remove_suffix(1);  // a file with the line ends of Windows
    listing.merges.push_back(two_names(line, location));
  }
}

namespace {

// Returns the paths of the vocabulary and of the merges in `directory`.
std::pair<std::filesystem::path, std::filesystem::path> find_pair(
    const std::filesystem::path& directory) {
  constexpr const char* kFiles =
      "give a directory with tokenizer.json, with encoder.json and vocab.bpe, or with "
      "vocab.json and merges.txt";
  for (const auto& [vocabulary, merges] :
       {std::pair("encoder.json", "vocab.bpe"), std::pair("vocab.json", "merges.txt")}) {
    const bool has_vocabulary = path_exists(directory / vocabulary);
    const bool has_merges = path_exists(directory / merges);
    if (has_vocabulary && has_merges) return {directory / vocabulary, directory / merges};
    if (has_vocabulary || has_merges) {
      const std::string existing = has_vocabulary ? vocabulary : merges;
      fail(directory.string() + " has " + existing + " but no " +
               (has_vocabulary ? merges : vocabulary),
           kFiles);
    }
  }
  fail(directory.string() + " has no tokenizer files", kFiles);
}

}  // namespace

}  // namespace bpe

BpeVocabulary read_bpe_pair(const std::filesystem::path& directory) {
  const auto [vocabulary, merges] = bpe::find_pair(directory);
  BpeListing listing;
  listing.infer_special = true;
  listing.ids_source = vocabulary.string();
  listing.ids =
      bpe::named_ids(parse_json(read_file(vocabulary), listing.ids_source), listing.ids_source);
  bpe::list_merges(merges, listing);
  bpe::list_added_of_pair(directory, listing);
  return make_bpe_vocabulary(listing);
}

}  // namespace llmc
