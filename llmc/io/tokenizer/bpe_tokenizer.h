// GPT-2's byte-level byte pair encoding (Sennrich et al., "Neural machine translation of rare words
// with subword units", 2016; on bytes: Radford et al., 2019, 2.2).
//
// Each piece of a text (gpt2_splitter.h) starts as single bytes. Of all merges that apply to two
// neighbours, the tokenizer applies the one that comes first in the list of merges. Ties go to the
// leftmost pair. It repeats this until no merge applies.
#pragma once

#include <cstddef>
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

#include "llmc/io/tokenizer/bpe_files.h"
#include "llmc/io/tokenizer/bpe_vocabulary.h"
#include "llmc/io/tokenizer/gpt2_splitter.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

class BpeTokenizer : public Tokenizer {
 public:
  // `name` is the argument of make_tokenizer that creates this tokenizer.
  BpeTokenizer(BpeVocabulary vocabulary, std::string name);

  // Reads the pair of files in a directory: see bpe_files.h.
  explicit BpeTokenizer(const std::filesystem::path& directory)
      : BpeTokenizer(read_bpe_pair(directory), directory.string()) {}

  std::int64_t vocabulary_size() const override;

  std::vector<std::int32_t> encode(std::string_view text) const override;

  std::string decode(std::span<const std::int32_t> tokens) const override;

  std::optional<std::int32_t> end_of_text() const override { return end_of_text_; }
  std::string name() const override { return name_; }
  std::vector<AddedToken> added_tokens() const override { return vocabulary_.added; }
  // Whether ordinary texts are searched for added tokens.
  bool has_plain_added_tokens() const { return has_plain_added_; }
  std::vector<std::int32_t> encode_with_special(std::string_view text) const override;
  std::vector<TextFile> files() const override;

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

  // Appends the tokens of a text without added tokens.
  void encode_plain(std::string_view text, std::vector<std::int32_t>& tokens) const;

  // The tokens of a text. `with_special`: special tokens that it spells out become these tokens.
  std::vector<std::int32_t> encode_added(std::string_view text, bool with_special) const;

  static std::uint64_t pair_key(std::int32_t left, std::int32_t right);

  // Appends the tokens of one piece. Candidate merges wait in a heap, so a piece of n bytes takes
  // O(n log n) even if n is in the millions. A candidate is skipped if its tokens have changed
  // since it was pushed.
  void merge(std::string_view piece, std::vector<std::int32_t>& tokens, Workspace& work) const;

  std::string name_;
  Gpt2Splitter splitter_;
  BpeVocabulary vocabulary_;
  std::optional<std::int32_t> end_of_text_;
  bool has_plain_added_ = false;
  std::unordered_map<std::uint64_t, std::int32_t> ranks_;  // rank of each merge, by pair_key
};

}  // namespace llmc
