// Byte pair encoding from the two files that GPT-2 was published with: encoder.json (the token ids)
// and vocab.bpe (the merges). Hugging Face calls them vocab.json and merges.txt; its optional
// added_tokens.json holds more tokens.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "llmc/base/json.h"
#include "llmc/io/tokenizer/bpe_vocabulary.h"

namespace llmc {

namespace bpe {

// Parses {"token": id, ...}; `what` names the object in errors.
BpeListing::NamedIds named_ids(const Json& json, const std::string& what);

// Returns the id of a token. Throws if it is too large for a vocabulary.
std::int32_t token_id(std::int64_t id, const std::string& source, const std::string& name);

// Parses "a b"; `location` names the place of the line in errors.
std::pair<std::string, std::string> two_names(std::string_view line, const std::string& location);

// Reads one merge per line. The first line may be a version.
void list_merges(const std::filesystem::path& path, BpeListing& listing);

}  // namespace bpe

// Throws an error that names the file and what is wrong with it.
BpeVocabulary read_bpe_pair(const std::filesystem::path& directory);

}  // namespace llmc
