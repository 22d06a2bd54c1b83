// Tokens in llm.c's token files or in memory, and slices of both.
//
// A token file (".bin") begins with a header of 256 32-bit integers. The first three are a magic
// number, the version 1 and the number of tokens. The others are 0, except in token caches
// (token_cache.h). The tokens follow as 16-bit unsigned integers. All integers are little-endian.
// Vocabularies of up to 65536 tokens fit.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

inline constexpr std::int32_t kTokenFileMagic = 20240520;
inline constexpr std::int32_t kTokenFileVersion = 1;
inline constexpr std::int64_t kTokenFileVocabulary = std::int64_t{1} << 16;
inline constexpr std::int64_t kTokenFileMaxTokens = std::numeric_limits<std::int32_t>::max();

using TokenFileHeader = std::array<std::int32_t, 256>;
inline constexpr std::size_t kTokenFileNote = 3;  // index of the first unused header integer

// ---- tokens in memory or in a file -----------------------------------------------------------

enum class TokenWidth { bits16, bits32 };

inline std::int64_t token_bytes(TokenWidth width) {
  return width == TokenWidth::bits16 ? 2 : 4;
}

// An immutable sequence of tokens, in memory or in a mapped file. Copies and slices share the
// tokens and keep them alive. Positions must be in range; only `slice` and `copy` check this.
class TokenData {
 public:
  TokenData() = default;

  explicit TokenData(std::vector<std::int32_t> tokens) {
    const auto shared = std::make_shared<const std::vector<std::int32_t>>(std::move(tokens));
    tokens32_ = shared->data();
    size_ = static_cast<std::int64_t>(shared->size());
    owner_ = shared;
  }

  // The tokens of a mapped file, from byte `begin` to its end: 16-bit unsigned or 32-bit signed
  // integers.
  TokenData(MappedFile file, std::size_t begin, TokenWidth width = TokenWidth::bits16) {
    const auto shared = std::make_shared<const MappedFile>(std::move(file));
    const std::span bytes = shared->bytes().subspan(begin);
    if (width == TokenWidth::bits16) {
      tokens16_ = reinterpret_cast<const std::uint16_t*>(bytes.data());
    } else {
      tokens32_ = reinterpret_cast<const std::int32_t*>(bytes.data());
    }
    size_ = static_cast<std::int64_t>(bytes.size()) / token_bytes(width);
    owner_ = shared;
  }

  std::int64_t size() const { return size_; }
  TokenWidth width() const {
    return tokens16_ != nullptr ? TokenWidth::bits16 : TokenWidth::bits32;
  }

  std::int32_t operator[](std::int64_t i) const {
    return tokens16_ != nullptr ? std::int32_t{tokens16_[i]} : tokens32_[i];
  }

  // Returns tokens begin .. end - 1 without copying them.
  TokenData slice(std::int64_t begin, std::int64_t end) const {
    check_range(begin, end);
    TokenData part = *this;
    if (tokens16_ != nullptr) part.tokens16_ += begin;
    if (tokens32_ != nullptr) part.tokens32_ += begin;
    part.size_ = end - begin;
    return part;
  }

  // Copies tokens begin .. begin + count - 1 to `out`.
  void copy(std::int64_t begin, std::int64_t count, std::int32_t* out) const {
    check_range(begin, begin + count);
    if (tokens16_ != nullptr) {
      std::copy_n(tokens16_ + begin, count, out);
    } else if (count > 0) {
      std::copy_n(tokens32_ + begin, count, out);
    }
  }

 private:
  void check_range(std::int64_t begin, std::int64_t end) const {
    if (0 <= begin && begin <= end && end <= size_) return;
    fail("tokens " + std::to_string(begin) + " to " + std::to_string(end) + " of " +
         std::to_string(size_) + " are out of range");
  }

  std::shared_ptr<const void> owner_;
  // One of the two is set; neither if the tokens are empty.
  const std::uint16_t* tokens16_ = nullptr;
  const std::int32_t* tokens32_ = nullptr;
  std::int64_t size_ = 0;
};

// ---- token files -----------------------------------------------------------------------------

// Throws an error that names the file unless `bytes` are a complete token file.
inline void check_token_file(std::span<const std::byte> bytes, const std::string& path) {
  const std::string hint = "give a token file of llm.c: a header of 1024 bytes, then 16-bit tokens";
  require(!bytes.empty(), path + " is empty", hint);
  TokenFileHeader header{};
  const bool has_header = bytes.size() >= sizeof header;
  std::memcpy(header.data(), bytes.data(), std::min(bytes.size(), sizeof header));
  if (bytes.size() >= sizeof(std::int32_t) && header[0] != kTokenFileMagic) {
    fail(path + " is not a token file: it begins with " + std::to_string(header[0]) + ", not " +
             std::to_string(kTokenFileMagic),
         hint + "; give a text a name that does not end in .bin");
  }
  if (!has_header) {
    fail(path + " is truncated: its " + byte_text(static_cast<std::int64_t>(bytes.size())) +
             " are less than the header",
         hint);
  }
  if (header[1] != kTokenFileVersion) {
    fail(path + " is a token file of version " + std::to_string(header[1]),
         "supported version: 1 (16-bit tokens)");
  }
  require(header[2] != 0, path + " has no tokens");
  const auto data_bytes = static_cast<std::int64_t>(bytes.size() - sizeof header);
  if (header[2] < 0 || data_bytes != std::int64_t{header[2]} * 2) {
    const bool is_short = data_bytes < std::int64_t{header[2]} * 2;
    fail(path + (is_short ? " is truncated" : " is damaged") + ": its header announces " +
         std::to_string(header[2]) + " tokens of 2 bytes, but " + std::to_string(data_bytes) +
         " bytes follow");
  }
}

// Returns the tokens of a token file, mapped: they are read from disk at first use. The file may be
// replaced while it is mapped, but must not be written in place.
inline TokenData read_token_file(const std::filesystem::path& path) {
  MappedFile file(path);
  check_token_file(file.bytes(), path.string());
  return TokenData(std::move(file), sizeof(TokenFileHeader));
}

// Throws unless the tokens of a vocabulary of this size fit into a token file.
inline void check_token_file_vocabulary(std::int64_t vocabulary_size, const std::string& path) {
  if (vocabulary_size <= kTokenFileVocabulary) return;
  fail("the tokens of a vocabulary of " + std::to_string(vocabulary_size) +
           " do not fit into the 16 bits per token of " + path,
       "use a vocabulary of at most " + std::to_string(kTokenFileVocabulary) +
           " tokens, or give the text itself, which is tokenized in memory");
}

// Throws if a token is not in 0 .. vocabulary_size - 1; the error names the position of the first
// one. `offset` is the position of tokens[0] in `path`.
inline void check_tokens(std::span<const std::int32_t> tokens, std::int64_t vocabulary_size,
                         const std::string& path, std::int64_t offset = 0) {
  const auto bad = std::find_if(tokens.begin(), tokens.end(), [&](std::int32_t token) {
    return token < 0 || token >= vocabulary_size;
  });
  if (bad == tokens.end()) return;
  fail(path + ": token " + std::to_string(offset + (bad - tokens.begin())) + " is " +
           std::to_string(*bad) + ", outside the vocabulary of " + std::to_string(vocabulary_size),
       "give the tokenizer that the tokens were made with");
}

// Writes a token file piece by piece under a temporary name. `finish` gives the file its name and
// replaces an older file of that name.
class TokenFileWriter {
 public:
  // `count` is the number of tokens that will be written; their disk space is reserved immediately.
  // `note` is stored in the header after the fields that every reader knows.
  TokenFileWriter(const std::filesystem::path& path, std::int64_t vocabulary_size,
                  std::int64_t count, std::span<const std::int32_t> note = {})
      : TokenFileWriter(path, vocabulary_size, count, count, note) {}

  // For a number of tokens that is not known in advance.
  TokenFileWriter(const std::filesystem::path& path, std::int64_t vocabulary_size)
      : TokenFileWriter(path, vocabulary_size, 1, kTokenFileMaxTokens, {}) {}

  // Throws if a token is outside the vocabulary, or if there are more tokens than announced.
  void append(std::span<const std::int32_t> tokens) {
    const std::string path = file_.path().string();
    check_tokens(tokens, vocabulary_size_, path, num_written_);
    const auto n = static_cast<std::int64_t>(tokens.size());
    if (n > max_count_ - num_written_)
      fail(path + ": more tokens than " + std::to_string(max_count_));
    constexpr std::size_t kPiece = std::size_t{1} << 16;
    for (; !tokens.empty(); tokens = tokens.subspan(std::min(kPiece, tokens.size()))) {
      const std::span piece = tokens.first(std::min(kPiece, tokens.size()));
      buffer_.resize(piece.size());
      std::transform(piece.begin(), piece.end(), buffer_.begin(),
                     [](std::int32_t token) { return static_cast<std::uint16_t>(token); });
      file_.write(std::as_bytes(std::span(buffer_)));
    }
    num_written_ += n;
  }

  // Changes the name that `finish` gives the file. The directory must be the same.
  void rename(const std::filesystem::path& path) { file_.rename(path); }

  std::int64_t num_written() const { return num_written_; }  // tokens

  // Throws if fewer tokens were written than announced, or none; then nothing is replaced.
  void finish() {
    if (num_written_ < min_count_) {
      fail(file_.path().string() + ": " + std::to_string(num_written_) + " tokens of " +
           std::to_string(min_count_) + " were written");
    }
    if (min_count_ != num_written_) write_header(num_written_);
    file_.commit();
  }

 private:
  TokenFileWriter(const std::filesystem::path& path, std::int64_t vocabulary_size,
                  std::int64_t min_count, std::int64_t max_count,
                  std::span<const std::int32_t> note)
      : vocabulary_size_(vocabulary_size),
        min_count_(min_count),
        max_count_(max_count),
        note_(note.begin(), note.end()),
        file_(check_arguments(path, vocabulary_size, min_count)) {
    if (min_count == max_count) file_.reserve(kHeaderBytes + 2 * max_count);
    write_header(min_count);
  }

  static constexpr auto kHeaderBytes = static_cast<std::int64_t>(sizeof(TokenFileHeader));

  // Writes the header; a second call overwrites it.
  void write_header(std::int64_t count) {
    TokenFileHeader header{};
    header[0] = kTokenFileMagic;
    header[1] = kTokenFileVersion;
    header[2] = static_cast<std::int32_t>(count);
    std::copy(note_.begin(), note_.end(), header.begin() + kTokenFileNote);
    const std::span bytes = std::as_bytes(std::span(header));
    if (file_.size() == 0) {
      file_.write(bytes);
    } else {
      file_.rewrite_start(bytes);
    }
  }

  // Checks the arguments before the file is created.
  static const std::filesystem::path& check_arguments(const std::filesystem::path& path,
                                                      std::int64_t vocabulary_size,
                                                      std::int64_t count) {
    check_token_file_vocabulary(vocabulary_size, path.string());
    if (count < 1 || count > kTokenFileMaxTokens) {
      fail(path.string() + ": " + std::to_string(count) + " tokens cannot be in one token file",
           "write 1 to " + std::to_string(kTokenFileMaxTokens) + " tokens");
    }
    return path;
  }

  std::int64_t vocabulary_size_, min_count_, max_count_;
  std::vector<std::int32_t> note_;
  std::int64_t num_written_ = 0;
  std::vector<std::uint16_t> buffer_;
  AtomicFile file_;
};

inline void write_token_file(const std::filesystem::path& path,
                             std::span<const std::int32_t> tokens, std::int64_t vocabulary_size) {
  TokenFileWriter writer(path, vocabulary_size, static_cast<std::int64_t>(tokens.size()));
  writer.append(tokens);
  writer.finish();
}

// Runs check_tokens on all tokens of a TokenData.
inline void check_tokens(const TokenData& tokens, std::int64_t vocabulary_size,
                         const std::string& path) {
  constexpr std::int64_t kPiece = 1 << 16;
  std::vector<std::int32_t> piece(static_cast<std::size_t>(std::min(kPiece, tokens.size())));
  for (std::int64_t at = 0; at < tokens.size(); at += kPiece) {
    const std::int64_t n = std::min(kPiece, tokens.size() - at);
    tokens.copy(at, n, piece.data());
    check_tokens(std::span(piece).first(static_cast<std::size_t>(n)), vocabulary_size, path, at);
  }
}

}  // namespace llmc
