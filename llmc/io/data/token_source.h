// One source of training text: the tokens of one or more files in sequence, and where documents
// begin in them. A window may continue from the end of one file into the next.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/io/data/token_file.h"

namespace llmc {

class TokenSource {
 public:
  // Ascending positions in a file where documents begin.
  using DocumentStarts = std::shared_ptr<const std::vector<std::int64_t>>;

  // Errors call the source `name`. If `vocabulary_size` is 0, tokens are not checked. `end_of_text`
  // is the token that begins a document in files without a list of document starts.
  explicit TokenSource(std::string name, std::int64_t vocabulary_size = 0,
                       std::optional<std::int32_t> end_of_text = std::nullopt)
      : name_(std::move(name)), vocabulary_size_(vocabulary_size), end_of_text_(end_of_text) {}

  // Appends the tokens of a file.
  void add(std::string file, TokenData tokens, DocumentStarts starts = nullptr);

  const std::string& name() const { return name_; }
  std::int64_t size() const { return size_; }
  // Number of files in this source. An end-of-text inserted between two texts belongs to the
  // second.
  std::int64_t files() const;

  // The types of the tokens in its token files, such as "16-bit"; empty without token files. Tokens
  // of texts are stored as the machine allows: in a cache or in memory.
  std::string file_types() const;

  // Returns tokens begin .. end - 1 without copying them.
  TokenSource slice(std::int64_t begin, std::int64_t end, std::string name) const;

  // Copies tokens begin .. begin + count - 1 to `out`. Throws if a token is outside the vocabulary,
  // so that callers never use one; the error names the file and the position.
  void copy(std::int64_t begin, std::int64_t count, std::int32_t* out) const;

  // `tokens` are the tokens from `begin` on. For each of them, writes to `out` where its document
  // begins, counted from `begin`; 0 if the document began earlier.
  void document_starts(std::int64_t begin, std::span<const std::int32_t> tokens,
                       std::int32_t* out) const;

  // Returns whether the start of any document is known. Reads tokens up to the first start.
  bool has_documents() const;

  // Runs the check of `copy` on the first and the last `count` tokens of each file. So tokens of
  // another tokenizer are detected before a run begins, not in the middle of it.
  void check_ends(std::int64_t count) const;

 private:
  struct Piece {
    std::string file;
    TokenData tokens;
    std::int64_t first;     // position of tokens[0] in the file
    std::int64_t begin;     // position of tokens[0] in the source
    DocumentStarts starts;  // starts in the whole file; null: end_of_text_ begins documents
  };
  static inline const std::vector<std::int64_t> kNoStarts;

  // Calls each(piece, position in the piece, number of tokens) for the parts of tokens begin ..
  // begin + count - 1.
  template <class Each>
  void for_each_part(std::int64_t begin, std::int64_t count, Each&& each) const {
    if (begin < 0 || count < 0 || count > size_ - begin) {
      fail(name_ + ": tokens " + std::to_string(begin) + " to " + std::to_string(begin + count) +
           " of " + std::to_string(size_) + " are out of range");
    }
    auto piece = std::ranges::upper_bound(pieces_, begin, {}, &Piece::begin);
    if (piece != pieces_.begin()) --piece;
    for (; count > 0; ++piece) {
      const std::int64_t at = begin - piece->begin;
      const std::int64_t n = std::min(count, piece->tokens.size() - at);
      each(*piece, at, n);
      begin += n;
      count -= n;
    }
  }

  std::string name_;
  std::int64_t vocabulary_size_;
  std::optional<std::int32_t> end_of_text_;
  std::vector<Piece> pieces_;
  std::int64_t size_ = 0;
};

}  // namespace llmc
