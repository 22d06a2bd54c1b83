// The tokens and merges of a byte pair encoding, assembled from its files and checked: ids have no
// gaps, every byte has a token, merges use only known tokens, and no merge is missing.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

struct BpeMerge {
  std::int32_t left, right, merged;
};

struct BpeVocabulary {
  std::vector<std::string> bytes;          // bytes that each token stands for, by id
  std::vector<BpeMerge> merges;            // highest priority first
  std::vector<AddedToken> added;           // tokens that a text is searched for, by id
  std::array<std::int32_t, 256> byte_ids;  // token id of each byte
};

// The unchecked content of the files, and the names that errors use for its places.
struct BpeListing {
  using NamedIds = std::vector<std::pair<std::string, std::int64_t>>;

  NamedIds ids;            // by token name, which has one character per byte (byte_names.h)
  std::string ids_source;  // such as "DIR/encoder.json"

  std::vector<std::pair<std::string, std::string>> merges;  // two token names each
  std::string merges_source;                                // such as "DIR/vocab.bpe"
  std::string merge_label = ", merge ";  // text before the number of a merge in errors
  std::int64_t first_merge = 1;          // number of the first merge

  std::vector<AddedToken> added;  // the token may be in `ids` too
  std::string added_source;       // such as "DIR/added_tokens.json"
  // True if no file lists the special tokens. Tokens named <...> that no merge produces are then
  // special.
  bool infer_special = false;
};

namespace bpe {

using Ids = std::unordered_map<std::string, std::int32_t>;  // token ids by name

std::string in_quotes(std::string_view name);

// Stores a token under its id. `bytes` is empty if the name does not stand for bytes, which is an
// error.
void place(BpeVocabulary& vocabulary, Ids& ids, const std::string& source, const std::string& name,
           std::int64_t id, const std::string& bytes);

}  // namespace bpe

// Throws an error that begins with the place of the fault in the files.
BpeVocabulary make_bpe_vocabulary(const BpeListing& listing);

}  // namespace llmc
