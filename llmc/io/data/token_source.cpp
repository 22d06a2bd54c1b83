#include "llmc/io/data/token_source.h"

#include <cstddef>
#include <set>

namespace llmc {

void TokenSource::add(std::string file, TokenData tokens, DocumentStarts starts) {
  if (tokens.size() == 0) return;
  const std::int64_t size = tokens.size();
  pieces_.push_back({std::move(file), std::move(tokens), 0, size_, std::move(starts)});
  size_ += size;
}

std::int64_t TokenSource::files() const {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (i == 0 || pieces_[i].file != pieces_[i - 1].file) ++count;
  }
  return count;
}

std::string TokenSource::file_types() const {
  std::set<std::string> types;
  for (const Piece& piece : pieces_) {
    if (piece.file.ends_with(".bin")) types.insert(type_text(piece.tokens.type()));
  }
  std::string text;
  for (const std::string& type : types) text += (text.empty() ? "" : " and ") + type;
  return text;
}

TokenSource TokenSource::slice(std::int64_t begin, std::int64_t end, std::string name) const {
  TokenSource part(std::move(name), vocabulary_size_, end_of_text_);
  for_each_part(begin, end - begin, [&](const Piece& piece, std::int64_t at, std::int64_t n) {
    part.pieces_.push_back(
        {piece.file, piece.tokens.slice(at, at + n), piece.first + at, part.size_, piece.starts});
    part.size_ += n;
  });
  return part;
}

void TokenSource::copy(std::int64_t begin, std::int64_t count, std::int32_t* out) const {
  for_each_part(begin, count, [&](const Piece& piece, std::int64_t at, std::int64_t n) {
    piece.tokens.copy(at, n, out);
    for (std::int64_t i = 0; vocabulary_size_ > 0 && i < n; ++i) {
      if (out[i] >= 0 && out[i] < vocabulary_size_) continue;
      fail_token(piece.tokens.stored(at + i), vocabulary_size_, piece.file, piece.first + at + i);
    }
    out += n;
  });
}

void TokenSource::document_starts(std::int64_t begin, std::span<const std::int32_t> tokens,
                                  std::int32_t* out) const {
  std::int32_t start = 0, i = 0;
  const auto count = static_cast<std::int64_t>(tokens.size());
  for_each_part(begin, count, [&](const Piece& piece, std::int64_t at, std::int64_t n) {
    const std::int64_t first = piece.first + at;
    auto next = piece.starts ? std::ranges::lower_bound(*piece.starts, first) : kNoStarts.begin();
    const auto end = piece.starts ? piece.starts->end() : kNoStarts.end();
    for (std::int64_t k = 0; k < n; ++k, ++i) {
      const bool is_listed = next != end && *next == first + k;
      if (is_listed) ++next;
      if (is_listed || (!piece.starts && end_of_text_ && tokens[i] == *end_of_text_)) start = i;
      out[i] = start;
    }
  });
}

bool TokenSource::has_documents() const {
  constexpr std::int64_t kPiece = 1 << 16;
  std::vector<std::int32_t> tokens;
  for (const Piece& piece : pieces_) {
    if (piece.starts) return true;
    if (!end_of_text_) continue;
    for (std::int64_t at = 0; at < piece.tokens.size(); at += kPiece) {
      tokens.resize(static_cast<std::size_t>(std::min(kPiece, piece.tokens.size() - at)));
      piece.tokens.copy(at, static_cast<std::int64_t>(tokens.size()), tokens.data());
      if (std::ranges::find(tokens, *end_of_text_) != tokens.end()) return true;
    }
  }
  return false;
}

void TokenSource::check_ends(std::int64_t count) const {
  constexpr std::int64_t kPiece = 1 << 16;
  std::vector<std::int32_t> tokens(kPiece);
  const auto check = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; at += kPiece) {
      copy(at, std::min(kPiece, end - at), tokens.data());
    }
  };
  for (const Piece& piece : pieces_) {
    const std::int64_t end = piece.begin + piece.tokens.size();
    check(piece.begin, std::min(end, piece.begin + count));
    check(std::max(piece.begin + count, end - count), end);
  }
}

}  // namespace llmc
