#include "llmc/io/tokenizer/bpe_vocabulary.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <unordered_set>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/io/tokenizer/byte_names.h"

namespace llmc {

namespace bpe {

std::string in_quotes(std::string_view name) {
  return "\"" + printable(name) + "\"";
}

void place(BpeVocabulary& vocabulary, Ids& ids, const std::string& source, const std::string& name,
           std::int64_t id, const std::string& bytes) {
  const std::string what = source + ": the id of " + in_quotes(name);
  const auto size = std::ssize(vocabulary.bytes);
  if (bytes.empty()) fail(what + " belongs to a name that does not stand for bytes");
  if (id < 0 || id >= size) {
    fail(what + " is " + std::to_string(id) + ", but there are only " + std::to_string(size) +
             " tokens",
         "number the tokens from 0, without gaps");
  }
  std::string& at = vocabulary.bytes[static_cast<std::size_t>(id)];
  if (!at.empty())
    fail(what + " is " + std::to_string(id) + ", which is also the id of another token");
  at = bytes;
  if (!ids.emplace(name, static_cast<std::int32_t>(id)).second) {
    fail(source + ": the token " + in_quotes(name) + " is listed twice");
  }
}

namespace {

// Returns the bytes of an added token: its text. But the text of an added token may be the name of
// other bytes in the vocabulary: "\u00e9" is the name of the byte 0xe9. Then both are one token,
// which keeps the bytes that pieces of a text need (`tokenizers` decodes it so too).
std::string bytes_of_added(const AddedToken& token, bool is_ordinary, const BpeListing& listing) {
  const std::optional<std::string> named = bytes_of_name(token.text);
  if (token.special || !is_ordinary || !named.has_value() || *named == token.text) {
    return token.text;
  }
  const bool is_used =
      named->size() == 1 || std::ranges::any_of(listing.merges, [&](const auto& merge) {
        return merge.first + merge.second == token.text;
      });
  return is_used ? *named : token.text;
}

// Fills vocabulary.bytes and vocabulary.added.
Ids place_all(BpeVocabulary& vocabulary, const BpeListing& listing) {
  std::unordered_map<std::string_view, std::int64_t> added;
  for (const AddedToken& token : listing.added) added.emplace(token.text, token.id);
  if (added.size() != listing.added.size()) {
    fail(listing.added_source + ": a token is listed twice");
  }
  std::size_t size = listing.ids.size() + added.size();
  for (const auto& [name, id] : listing.ids) size -= added.count(name);
  vocabulary.bytes.resize(size);
  Ids ids;
  std::unordered_set<std::string_view> ordinary;
  for (const auto& [name, id] : listing.ids) {
    const auto entry = added.find(name);
    if (entry != added.end()) ordinary.insert(name);
    if (entry == added.end()) {
      place(vocabulary, ids, listing.ids_source, name, id, bytes_of_name(name).value_or(""));
    } else if (entry->second != id) {
      fail(listing.added_source + ": the id of " + in_quotes(name) + " is " +
           std::to_string(entry->second) + ", but in " + listing.ids_source + " it is " +
           std::to_string(id));
    }
  }
  for (const AddedToken& token : listing.added) {
    place(vocabulary, ids, listing.added_source, token.text, token.id,
          bytes_of_added(token, ordinary.contains(token.text), listing));
    vocabulary.added.push_back(token);
  }
  return ids;
}

// Fills vocabulary.byte_ids.
void find_bytes(BpeVocabulary& vocabulary, const Ids& ids, const BpeListing& listing) {
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const auto entry = ids.find(name_of_bytes(std::string(1, static_cast<char>(byte))));
    const bool exists =
        entry != ids.end() &&
        std::none_of(vocabulary.added.begin(), vocabulary.added.end(),
                     [&](const AddedToken& t) { return t.special && t.id == entry->second; });
    if (!exists) {
      fail(listing.ids_source + " has no token for the byte " + std::to_string(byte),
           "give a byte-level vocabulary, which has a token for each of the 256 bytes");
    }
    vocabulary.byte_ids[byte] = entry->second;
  }
}

// Fills vocabulary.merges. Returns one flag per token id: whether a merge produces the token.
std::vector<bool> add_merges(BpeVocabulary& vocabulary, const Ids& ids, const BpeListing& listing) {
  std::vector<bool> is_merged(vocabulary.bytes.size());
  std::unordered_set<std::string> pairs;
  std::int64_t number = listing.first_merge;
  for (const auto& [left, right] : listing.merges) {
    const std::string location =
        listing.merges_source + listing.merge_label + std::to_string(number++) + ": ";
    const auto id = [&](const std::string& name) {
      const auto entry = ids.find(name);
      if (entry != ids.end()) return entry->second;
      fail(location + in_quotes(name) + " is not in " + listing.ids_source,
           "check that both files belong to the same tokenizer and are complete");
    };
    const BpeMerge merge{id(left), id(right), id(left + right)};
    if (!pairs.insert(left + " " + right).second) {
      fail(location + in_quotes(left + " " + right) + " is listed twice");
    }
    vocabulary.merges.push_back(merge);
    is_merged[static_cast<std::size_t>(merge.merged)] = true;
  }
  return is_merged;
}

// Throws if a merge produces a special token: a document could then contain its own end.
void check_special(const BpeVocabulary& vocabulary, const std::vector<bool>& is_merged,
                   const BpeListing& listing) {
  for (const AddedToken& token : vocabulary.added) {
    if (!token.special || !is_merged[static_cast<std::size_t>(token.id)]) continue;
    fail(listing.added_source + ": " + in_quotes(token.text) + " is also the result of a merge",
         "remove the merge: plain text must never encode to a special token");
  }
}

// A truncated list of merges would still encode every text, but into other tokens. So each token
// must be a byte, the product of a merge, added, or named <...> as special tokens are. With
// listing.infer_special, adds those named <...> to vocabulary.added.
void check_complete(BpeVocabulary& vocabulary, const Ids& ids,
                    const std::vector<bool>& is_reachable, const BpeListing& listing) {
  auto first = static_cast<std::int32_t>(vocabulary.bytes.size());
  std::string_view missing;
  for (const auto& [name, id] : ids) {
    if (is_reachable[static_cast<std::size_t>(id)]) continue;
    if (name.starts_with('<') && name.ends_with('>')) {
      const bool plain = vocabulary.bytes[static_cast<std::size_t>(id)] == name;
      if (listing.infer_special && plain) vocabulary.added.push_back({name, id});
    } else if (id < first) {
      first = id;
      missing = name;
    }
  }
  if (missing.empty()) return;
  fail(listing.merges_source + " is truncated: no merge produces " + in_quotes(missing) +
           ", token " + std::to_string(first) + " of " + listing.ids_source,
       "check that both files are complete and belong to the same tokenizer");
}

}  // namespace

}  // namespace bpe

BpeVocabulary make_bpe_vocabulary(const BpeListing& listing) {
  BpeVocabulary vocabulary;
  const bpe::Ids ids = bpe::place_all(vocabulary, listing);
  bpe::find_bytes(vocabulary, ids, listing);
  std::vector<bool> is_reachable = bpe::add_merges(vocabulary, ids, listing);
  bpe::check_special(vocabulary, is_reachable, listing);
  const auto mark = [&](std::int32_t id) { is_reachable[static_cast<std::size_t>(id)] = true; };
  for (const std::int32_t id : vocabulary.byte_ids) mark(id);
  for (const AddedToken& token : vocabulary.added) mark(token.id);
  bpe::check_complete(vocabulary, ids, is_reachable, listing);
  std::sort(vocabulary.added.begin(), vocabulary.added.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return vocabulary;
}

}  // namespace llmc
