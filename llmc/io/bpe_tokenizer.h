// GPT-2's byte-level byte pair encoding (Sennrich et al., "Neural machine translation of rare words
// with subword units", 2016; on bytes: Radford et al., 2019, 2.2), from the files published with
// it.
//
// Each piece of a text (gpt2_splitter.h) begins as single bytes. Of all merges that two neighbours
// allow, the one that stands first in the list of merges is made, the leftmost of equals, until
// none is left. Both files write each byte as one printable character: the printable ones as
// themselves, the others as U+0100 and up, in the order of kByteOrder.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "llmc/io/byte_tokenizer.h"
#include "llmc/io/file.h"
#include "llmc/io/gpt2_splitter.h"
#include "llmc/io/json.h"
#include "llmc/io/tokenizer_interface.h"

namespace llmc {

class BpeTokenizer : public Tokenizer {
 public:
  // A directory with encoder.json and vocab.bpe, or vocab.json and merges.txt (the names these
  // files have at Hugging Face). Throws an error that names the file and what is wrong with it.
  explicit BpeTokenizer(const std::filesystem::path& directory) : name_(directory.string()) {
    const auto [vocabulary, merges] = files_in(directory);
    const Ids ids = read_vocabulary(vocabulary);
    const std::vector<bool> made = read_merges(merges, ids, vocabulary);
    check_complete(made, ids, vocabulary, merges);
  }

  std::int64_t vocabulary_size() const override { return static_cast<std::int64_t>(bytes_.size()); }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> tokens;
    tokens.reserve(text.size() / 4);
    // Most pieces of a long text were seen before in it: where their tokens lie in `tokens`.
    std::unordered_map<std::string_view, std::pair<std::size_t, std::size_t>> seen;
    Workspace workspace;
    splitter_.split(text, [&](std::string_view piece) {
      const std::size_t begin = tokens.size();
      const auto found = seen.find(piece);
      if (found == seen.end()) {
        merge(piece, tokens, workspace);
        if (seen.size() < kMostSeen) seen.emplace(piece, std::pair(begin, tokens.size()));
        return;
      }
      const auto [from, to] = found->second;
      for (std::size_t i = from; i < to; ++i) tokens.push_back(tokens[i]);
    });
    return tokens;
  }

  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::string text;
    for (const std::int32_t token : tokens) text += bytes_[checked(token)];
    return text;
  }

  std::optional<std::int32_t> end_of_text() const override { return end_of_text_; }
  std::string name() const override { return name_; }

 private:
  static constexpr std::size_t kMostSeen = std::size_t{1} << 20;  // some 100 MB

  // By the name a token has in the files.
  using Ids = std::unordered_map<std::string, std::int32_t>;

  struct Merge {
    std::int32_t left, right, merged;
  };

  // ---- encoding --------------------------------------------------------------------------------

  // A token of an unfinished piece, in a list linked by index.
  struct Link {
    std::int32_t token;  // kGone once it is part of the one before
    std::int64_t previous, next;
  };
  static constexpr std::int32_t kGone = -1;

  struct Workspace {
    using Candidate = std::pair<std::int32_t, std::int64_t>;  // rank of a merge, index of its left
    std::vector<Link> links;
    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  };

  static std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 |
           static_cast<std::uint32_t>(right);
  }

  // Appends the tokens of one piece. Candidates wait in a heap, so that a piece of n bytes takes
  // O(n log n) also where n is millions; one whose tokens have changed since is passed over.
  void merge(std::string_view piece, std::vector<std::int32_t>& tokens, Workspace& work) const {
    const auto n = static_cast<std::int64_t>(piece.size());
    work.links.clear();
    for (std::int64_t i = 0; i < n; ++i) {
      const auto byte = static_cast<std::uint8_t>(piece[static_cast<std::size_t>(i)]);
      work.links.push_back({byte_ids_[byte], i - 1, i + 1});
    }
    const auto link = [&](std::int64_t i) -> Link& {
      return work.links[static_cast<std::size_t>(i)];
    };
    const auto consider = [&](std::int64_t i) {
      if (i < 0 || link(i).next == n) return;
      const auto rank = ranks_.find(pair_key(link(i).token, link(link(i).next).token));
      if (rank != ranks_.end()) work.candidates.emplace(rank->second, i);
    };
    for (std::int64_t i = 0; i < n; ++i) consider(i);
    while (!work.candidates.empty()) {
      const auto [rank, i] = work.candidates.top();
      work.candidates.pop();
      const Merge& wanted = merges_[static_cast<std::size_t>(rank)];
      const std::int64_t right = link(i).next;
      if (link(i).token != wanted.left || right == n || link(right).token != wanted.right) continue;
      link(i) = {wanted.merged, link(i).previous, link(right).next};
      if (link(right).next < n) link(link(right).next).previous = i;
      link(right).token = kGone;
      consider(link(i).previous);
      consider(i);
    }
    for (std::int64_t i = 0; i < n; i = link(i).next) tokens.push_back(link(i).token);
  }

  // ---- reading the files -----------------------------------------------------------------------

  static std::pair<std::filesystem::path, std::filesystem::path> files_in(
      const std::filesystem::path& directory) {
    for (const auto& [vocabulary, merges] :
         {std::pair("encoder.json", "vocab.bpe"), std::pair("vocab.json", "merges.txt")}) {
      const bool has_vocabulary = std::filesystem::exists(directory / vocabulary);
      const bool has_merges = std::filesystem::exists(directory / merges);
      if (has_vocabulary && has_merges) return {directory / vocabulary, directory / merges};
      if (has_vocabulary || has_merges) {
        const std::string here = has_vocabulary ? vocabulary : merges;
        fail(directory.string() + " has " + here + " but no " +
                 (has_vocabulary ? merges : vocabulary),
             kFiles);
      }
    }
    fail(directory.string() + " has no files of a tokenizer", kFiles);
  }
  static constexpr const char* kFiles =
      "a tokenizer's directory holds encoder.json and vocab.bpe, or vocab.json and merges.txt";

  // The bytes that a name stands for; nothing where it has a character that stands for no byte. All
  // that do have one or two bytes in UTF-8.
  static std::optional<std::string> bytes_of(std::string_view name) {
    std::string bytes;
    while (!name.empty()) {
      const std::size_t length = utf8_length(name);
      if (length != 1 && length != 2) return std::nullopt;
      std::size_t character = static_cast<std::uint8_t>(name[0]);
      if (length == 2)
        character = (character & 0x1f) << 6 | (static_cast<std::uint8_t>(name[1]) & 0x3f);
      const std::size_t place = character < 256 ? static_cast<std::size_t>(kPlaceOfByte[character])
                                                : character - 256 + kPrintableBytes;
      const bool stands = character < 256 ? place < kPrintableBytes : place < kByteOrder.size();
      if (!stands) return std::nullopt;
      bytes += static_cast<char>(kByteOrder[place]);
      name.remove_prefix(length);
    }
    return bytes;
  }

  // Fills bytes_, byte_ids_ and end_of_text_.
  Ids read_vocabulary(const std::filesystem::path& path) {
    const std::string file = path.string();
    const Json json = parse_json(read_file(path), file);
    require(json.is_object() && !json.empty(),
            file + " is not a JSON object of tokens and their ids");
    const auto size = static_cast<std::int64_t>(json.size());
    bytes_.resize(json.size());
    byte_ids_.fill(-1);
    Ids ids;
    for (const auto& [name, value] : json.items()) {
      const std::string what = file + ": the id of \"" + printable(name) + "\"";
      const std::int64_t id = json_size(value, what);
      const auto bytes = bytes_of(name);
      if (!bytes || bytes->empty()) fail(what + " belongs to a name that does not stand for bytes");
      if (id >= size) {
        fail(what + " is " + std::to_string(id) + ", and there are only " + std::to_string(size));
      }
      std::string& place = bytes_[static_cast<std::size_t>(id)];
      if (!place.empty())
        fail(what + " is " + std::to_string(id) + ", which another token has too");
      place = *bytes;
      const auto token = static_cast<std::int32_t>(id);
      if (bytes->size() == 1) byte_ids_[static_cast<std::uint8_t>(bytes->front())] = token;
      if (name == kEndOfText) end_of_text_ = token;
      ids.emplace(name, token);
    }
    const auto missing = std::find(byte_ids_.begin(), byte_ids_.end(), -1);
    if (missing != byte_ids_.end()) {
      fail(file + " has no token for the byte " + std::to_string(missing - byte_ids_.begin()),
           "a byte-level vocabulary has a token for each of the 256 bytes");
    }
    return ids;
  }

  // Fills merges_ and ranks_. Returns which tokens some merge makes.
  std::vector<bool> read_merges(const std::filesystem::path& path, const Ids& ids,
                                const std::filesystem::path& vocabulary) {
    const std::string list = read_file(path);
    std::vector<bool> made(ids.size());
    std::string_view rest = list;
    for (std::int64_t number = 1; !rest.empty(); ++number) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      if (number == 1 && line.starts_with("#version")) continue;
      const std::string where = path.string() + ", line " + std::to_string(number) + ": ";
      const Merge merge = read_merge(line, ids, where, vocabulary);
      const auto rank = static_cast<std::int32_t>(merges_.size());
      if (!ranks_.emplace(pair_key(merge.left, merge.right), rank).second) {
        fail(where + "\"" + printable(line) + "\" is there twice");
      }
      merges_.push_back(merge);
      made[static_cast<std::size_t>(merge.merged)] = true;
    }
    return made;
  }

  static Merge read_merge(std::string_view line, const Ids& ids, const std::string& where,
                          const std::filesystem::path& vocabulary) {
    const std::size_t space = line.find(' ');
    if (space == line.npos || space != line.rfind(' ')) {
      fail(where + "\"" + printable(line) + "\" is not two tokens with a space between them");
    }
    const auto id = [&](std::string name) {
      const auto found = ids.find(name);
      if (found != ids.end()) return found->second;
      fail(where + "\"" + printable(name) + "\" is not in " + vocabulary.string(),
           "the two files belong to different tokenizers, or one is damaged");
    };
    const std::string left(line.substr(0, space));
    const std::string right(line.substr(space + 1));
    return {id(left), id(right), id(left + right)};
  }

  // A list of merges that was cut short would still encode every text, into other tokens. So each
  // token must be a byte, be made by a merge, or look as the special ones do: <...>.
  void check_complete(const std::vector<bool>& made, const Ids& ids,
                      const std::filesystem::path& vocabulary,
                      const std::filesystem::path& merges) const {
    std::int32_t first = static_cast<std::int32_t>(bytes_.size());
    std::string_view missing;
    for (const auto& [name, id] : ids) {
      const auto at = static_cast<std::size_t>(id);
      const bool special = name.starts_with('<') && name.ends_with('>');
      if (id > first || made[at] || bytes_[at].size() == 1 || special) continue;
      first = id;
      missing = name;
    }
    if (missing.empty()) return;
    fail(merges.string() + " is truncated: no merge makes \"" + printable(missing) + "\", token " +
             std::to_string(first) + " of " + vocabulary.string(),
         "or the two files belong to different tokenizers");
  }

  std::string name_;
  Gpt2Splitter splitter_;
  std::vector<std::string> bytes_;          // what each token stands for
  std::array<std::int32_t, 256> byte_ids_;  // the token of each byte
  std::optional<std::int32_t> end_of_text_;
  std::vector<Merge> merges_;                              // by rank
  std::unordered_map<std::uint64_t, std::int32_t> ranks_;  // by pair_key
};

}  // namespace llmc
