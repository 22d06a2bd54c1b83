// The tokens and merges of a byte pair encoding, assembled from its files and checked: ids have no
// gaps, every byte has a token, merges use only known tokens, and no merge is missing.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/io/tokenizer/byte_names.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

struct BpeMerge {
  std::int32_t left, right, merged;
};

struct BpeVocabulary {
  std::vector<std::string> bytes;          // bytes that each token stands for, by id
  std::vector<BpeMerge> merges;            // highest priority first
  std::vector<SpecialToken> special;       // tokens that no merge produces
  std::array<std::int32_t, 256> byte_ids;  // token id of each byte
};

// The unchecked content of the files, and the names that errors use for its places.
struct BpeListing {
  using NamedIds = std::vector<std::pair<std::string, std::int64_t>>;

  NamedIds ids;         // by token name, which has one character per byte (byte_names.h)
  std::string ids_are;  // such as "DIR/encoder.json"

  std::vector<std::pair<std::string, std::string>> merges;  // two token names each
  std::string merges_are;                                   // such as "DIR/vocab.bpe"
  std::string merge_number = ", merge ";  // text before the number of a merge in errors
  std::int64_t first_merge = 1;           // number of the first merge

  NamedIds special;         // by token text; the token may be in `ids` too
  std::string special_are;  // such as "DIR/added_tokens.json"
  // True if no file lists the special tokens. Tokens named <...> that no merge produces are then
  // special.
  bool special_by_look = false;
};

namespace bpe {

using Ids = std::unordered_map<std::string, std::int32_t>;  // token ids by name

inline std::string in_quotes(std::string_view name) {
  return "\"" + printable(name) + "\"";
}

// Stores a token under its id. `bytes` is empty if the name does not stand for bytes, which is an
// error.
inline void place(BpeVocabulary& vocabulary, Ids& ids, const std::string& source,
                  const std::string& name, std::int64_t id, const std::string& bytes) {
  const std::string what = source + ": the id of " + in_quotes(name);
  const auto size = std::ssize(vocabulary.bytes);
  if (bytes.empty()) fail(what + " belongs to a name that does not stand for bytes");
  if (id < 0 || id >= size) {
    fail(what + " is " + std::to_string(id) + ", and there are only " + std::to_string(size),
         "ids count the tokens from 0, without holes");
  }
  std::string& at = vocabulary.bytes[static_cast<std::size_t>(id)];
  if (!at.empty()) fail(what + " is " + std::to_string(id) + ", which another token has too");
  at = bytes;
  if (!ids.emplace(name, static_cast<std::int32_t>(id)).second) {
    fail(source + ": the token " + in_quotes(name) + " is there twice");
  }
}

// Fills vocabulary.bytes and vocabulary.special.
inline Ids place_all(BpeVocabulary& vocabulary, const BpeListing& listing) {
  std::unordered_map<std::string_view, std::int64_t> special(listing.special.begin(),
                                                             listing.special.end());
  if (special.size() != listing.special.size()) {
    fail(listing.special_are + ": a token is there twice");
  }
  std::size_t size = listing.ids.size() + special.size();
  for (const auto& [name, id] : listing.ids) size -= special.count(name);
  vocabulary.bytes.resize(size);
  Ids ids;
  for (const auto& [name, id] : listing.ids) {
    const auto also = special.find(name);
    if (also == special.end()) {
      place(vocabulary, ids, listing.ids_are, name, id, bytes_of_name(name).value_or(""));
    } else if (also->second != id) {
      fail(listing.special_are + ": the id of " + in_quotes(name) + " is " +
           std::to_string(also->second) + ", but in " + listing.ids_are + " it is " +
           std::to_string(id));
    }
  }
  for (const auto& [text, id] : listing.special) {
    place(vocabulary, ids, listing.special_are, text, id, text);
    vocabulary.special.push_back({text, static_cast<std::int32_t>(id)});
  }
  return ids;
}

// Fills vocabulary.byte_ids.
inline void find_bytes(BpeVocabulary& vocabulary, const Ids& ids, const BpeListing& listing) {
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto found = ids.find(name_of_bytes(std::string(1, static_cast<char>(byte))));
    const bool there = found != ids.end() &&
                       std::none_of(vocabulary.special.begin(), vocabulary.special.end(),
                                    [&](const SpecialToken& t) { return t.id == found->second; });
    if (!there) {
      fail(listing.ids_are + " has no token for the byte " + std::to_string(byte),
           "a byte-level vocabulary has a token for each of the 256 bytes");
    }
    vocabulary.byte_ids[byte] = found->second;
  }
}

// Fills vocabulary.merges. Returns one flag per token id: whether a merge produces the token.
inline std::vector<bool> add_merges(BpeVocabulary& vocabulary, const Ids& ids,
                                    const BpeListing& listing) {
  std::vector<bool> made(vocabulary.bytes.size());
  std::unordered_set<std::string> seen;
  std::int64_t number = listing.first_merge;
  for (const auto& [left, right] : listing.merges) {
    const std::string where =
        listing.merges_are + listing.merge_number + std::to_string(number++) + ": ";
    const auto id = [&](const std::string& name) {
      const auto found = ids.find(name);
      if (found != ids.end()) return found->second;
      fail(where + in_quotes(name) + " is not in " + listing.ids_are,
           "they belong to different tokenizers, or one is damaged");
    };
    const BpeMerge merge{id(left), id(right), id(left + right)};
    if (!seen.insert(left + " " + right).second) {
      fail(where + in_quotes(left + " " + right) + " is there twice");
    }
    vocabulary.merges.push_back(merge);
    made[static_cast<std::size_t>(merge.merged)] = true;
  }
  return made;
}

// Throws if a merge produces a special token: a document could then contain its own end.
inline void check_special(const BpeVocabulary& vocabulary, const std::vector<bool>& made,
                          const BpeListing& listing) {
  for (const SpecialToken& token : vocabulary.special) {
    if (!made[static_cast<std::size_t>(token.id)]) continue;
    fail(listing.special_are + ": " + in_quotes(token.text) + " is made by a merge too",
         "a special token is one that plain text is never encoded to");
  }
}

// A truncated list of merges would still encode every text, but into other tokens. So each token
// must be a byte, the product of a merge, special, or named <...> as special tokens are. With
// listing.special_by_look, adds those named <...> to vocabulary.special.
inline void check_complete(BpeVocabulary& vocabulary, const Ids& ids,
                           const std::vector<bool>& reached, const BpeListing& listing) {
  auto first = static_cast<std::int32_t>(vocabulary.bytes.size());
  std::string_view missing;
  for (const auto& [name, id] : ids) {
    if (reached[static_cast<std::size_t>(id)]) continue;
    if (name.starts_with('<') && name.ends_with('>')) {
      const bool plain = vocabulary.bytes[static_cast<std::size_t>(id)] == name;
      if (listing.special_by_look && plain) vocabulary.special.push_back({name, id});
    } else if (id < first) {
      first = id;
      missing = name;
    }
  }
  if (missing.empty()) return;
  fail(listing.merges_are + " is truncated: no merge makes " + in_quotes(missing) + ", token " +
           std::to_string(first) + " of " + listing.ids_are,
       "or they belong to different tokenizers");
}

}  // namespace bpe

// Throws an error that begins with the place of the fault in the files.
inline BpeVocabulary make_bpe_vocabulary(const BpeListing& listing) {
  BpeVocabulary vocabulary;
  const bpe::Ids ids = bpe::place_all(vocabulary, listing);
  bpe::find_bytes(vocabulary, ids, listing);
  std::vector<bool> reached = bpe::add_merges(vocabulary, ids, listing);
  bpe::check_special(vocabulary, reached, listing);
  const auto reach = [&](std::int32_t id) { reached[static_cast<std::size_t>(id)] = true; };
  for (const std::int32_t id : vocabulary.byte_ids) reach(id);
  for (const SpecialToken& token : vocabulary.special) reach(token.id);
  bpe::check_complete(vocabulary, ids, reached, listing);
  std::sort(vocabulary.special.begin(), vocabulary.special.end(),
            [](const SpecialToken& a, const SpecialToken& b) { return a.id < b.id; });
  return vocabulary;
}

}  // namespace llmc
