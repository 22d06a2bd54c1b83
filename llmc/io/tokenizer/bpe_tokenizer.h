// GPT-2's byte-level byte pair encoding (Sennrich et al., "Neural machine translation of rare words
// with subword units", 2016; on bytes: Radford et al., 2019, 2.2).
//
// Each piece of a text (gpt2_splitter.h) starts as single bytes. Of all merges that apply to two
// neighbours, the tokenizer applies the one that comes first in the list of merges. Ties go to the
// leftmost pair. It repeats this until no merge applies.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "llmc/io/tokenizer/bpe_files.h"
#include "llmc/io/tokenizer/bpe_vocabulary.h"
#include "llmc/io/tokenizer/gpt2_splitter.h"
#include "llmc/io/tokenizer/tokenizer_files.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

class BpeTokenizer : public Tokenizer {
 public:
  // `name` is the argument of make_tokenizer that creates this tokenizer.
  BpeTokenizer(BpeVocabulary vocabulary, std::string name)
      : name_(std::move(name)), vocabulary_(std::move(vocabulary)) {
    for (const BpeMerge& merge : vocabulary_.merges) {
      const auto rank = static_cast<std::int32_t>(ranks_.size());
      ranks_.emplace(pair_key(merge.left, merge.right), rank);
    }
    for (const SpecialToken& token : vocabulary_.special) {
      if (token.text == kEndOfText) end_of_text_ = token.id;
    }
  }

  // Reads the pair of files in a directory: see bpe_files.h.
  explicit BpeTokenizer(const std::filesystem::path& directory)
      : BpeTokenizer(read_bpe_pair(directory), directory.string()) {}

  std::int64_t vocabulary_size() const override { return std::ssize(vocabulary_.bytes); }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> tokens;
    tokens.reserve(text.size() / 4);
    // Most pieces of a long text occur in it several times. Maps a piece to the range [from, to) of
    // its tokens in `tokens`.
    std::unordered_map<std::string_view, std::pair<std::size_t, std::size_t>> cache;
    Workspace workspace;
    splitter_.split(text, [&](std::string_view piece) {
      const std::size_t begin = tokens.size();
      const auto entry = cache.find(piece);
      if (entry == cache.end()) {
        merge(piece, tokens, workspace);
        if (cache.size() < kMaxCachedPieces) cache.emplace(piece, std::pair(begin, tokens.size()));
        return;
      }
      const auto [from, to] = entry->second;
      for (std::size_t i = from; i < to; ++i) tokens.push_back(tokens[i]);
    });
    return tokens;
  }

  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::string text;
    for (const std::int32_t token : tokens) text += vocabulary_.bytes[checked_index(token)];
    return text;
  }

  std::optional<std::int32_t> end_of_text() const override { return end_of_text_; }
  std::string name() const override { return name_; }
  std::vector<SpecialToken> special_tokens() const override { return vocabulary_.special; }
  std::vector<TextFile> files() const override { return bpe_files(vocabulary_); }

 private:
  static constexpr std::size_t kMaxCachedPieces = std::size_t{1} << 20;  // about 100 MB

  // A token of an unfinished piece, in a list that is linked by index.
  struct Link {
    std::int32_t token;  // kGone after a merge into the token before it
    std::int64_t previous, next;
  };
  static constexpr std::int32_t kGone = -1;

  struct Workspace {
    using Candidate = std::pair<std::int32_t, std::int64_t>;  // merge rank, index of left token
    std::vector<Link> links;
    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  };

  static std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 |
           static_cast<std::uint32_t>(right);
  }

  // Appends the tokens of one piece. Candidate merges wait in a heap, so a piece of n bytes takes
  // O(n log n) even if n is in the millions. A candidate is skipped if its tokens have changed
  // since it was pushed.
  void merge(std::string_view piece, std::vector<std::int32_t>& tokens, Workspace& work) const {
    const auto n = static_cast<std::int64_t>(piece.size());
    work.links.clear();
    for (std::int64_t i = 0; i < n; ++i) {
      const auto byte = static_cast<std::uint8_t>(piece[static_cast<std::size_t>(i)]);
      work.links.push_back({vocabulary_.byte_ids[byte], i - 1, i + 1});
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
      const BpeMerge& expected = vocabulary_.merges[static_cast<std::size_t>(rank)];
      const std::int64_t right = link(i).next;
      if (link(i).token != expected.left || right == n || link(right).token != expected.right)
        continue;
      link(i) = {expected.merged, link(i).previous, link(right).next};
      if (link(right).next < n) link(link(right).next).previous = i;
      link(right).token = kGone;
      consider(link(i).previous);
      consider(i);
    }
    for (std::int64_t i = 0; i < n; i = link(i).next) tokens.push_back(link(i).token);
  }

  std::string name_;
  Gpt2Splitter splitter_;
  BpeVocabulary vocabulary_;
  std::optional<std::int32_t> end_of_text_;
  std::unordered_map<std::uint64_t, std::int32_t> ranks_;  // rank of each merge, by pair_key
};

}  // namespace llmc
