#include "llmc/io/tokenizer/bpe_tokenizer.h"

#include <iterator>

#include "llmc/io/tokenizer/added_tokens.h"
#include "llmc/io/tokenizer/tokenizer_files.h"

namespace llmc {

BpeTokenizer::BpeTokenizer(BpeVocabulary vocabulary, std::string name)
    : name_(std::move(name)), vocabulary_(std::move(vocabulary)) {
  for (const BpeMerge& merge : vocabulary_.merges) {
    const auto rank = static_cast<std::int32_t>(ranks_.size());
    ranks_.emplace(pair_key(merge.left, merge.right), rank);
  }
  for (const AddedToken& token : vocabulary_.added) {
    if (token.text == kEndOfText) end_of_text_ = token.id;
    has_plain_added_ = has_plain_added_ || !token.special;
  }
}

std::int64_t BpeTokenizer::vocabulary_size() const {
  return std::ssize(vocabulary_.bytes);
}

std::vector<std::int32_t> BpeTokenizer::encode(std::string_view text) const {
  if (has_plain_added_) return encode_added(text, false);
  std::vector<std::int32_t> tokens;
  tokens.reserve(text.size() / 4);
  encode_plain(text, tokens);
  return tokens;
}

std::vector<std::int32_t> BpeTokenizer::encode_with_special(std::string_view text) const {
  return encode_added(text, true);
}

std::vector<std::int32_t> BpeTokenizer::encode_added(std::string_view text,
                                                     bool with_special) const {
  std::vector<std::int32_t> tokens;
  split_added_tokens(text, vocabulary_.added,
                     [&](const AddedToken& token) { return with_special || !token.special; },
                     {.text = [&](std::string_view part) { encode_plain(part, tokens); },
                      .token = [&](const AddedToken& token) { tokens.push_back(token.id); }});
  return tokens;
}

void BpeTokenizer::encode_plain(std::string_view text, std::vector<std::int32_t>& tokens) const {
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
}

std::string BpeTokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) text += vocabulary_.bytes[checked_index(token)];
  return text;
}

std::vector<TextFile> BpeTokenizer::files() const {
  return bpe_files(vocabulary_);
}

std::uint64_t BpeTokenizer::pair_key(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

void BpeTokenizer::merge(std::string_view piece, std::vector<std::int32_t>& tokens,
                         Workspace& work) const {
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

}  // namespace llmc
