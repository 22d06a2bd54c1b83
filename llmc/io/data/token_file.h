// Tokens in llm.c's token files or in memory, and slices of both.
//
// A token file (".bin") begins with a header of 256 32-bit integers. The first three are a magic
// number, the version and the number of tokens. The others are 0, except in token caches
// (token_cache.h). The tokens follow as unsigned integers: of 16 bits for magic number 20240520 and
// version 1, of 32 bits for 20240801 and 7 (llm.c's files for Llama 3). nanoGPT's files have no
// header, only 16-bit tokens. All integers are little-endian. Files written here have 16-bit
// tokens, so vocabularies of up to 65536 tokens fit.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "llmc/base/file.h"

namespace llmc {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

inline constexpr std::int32_t kTokenFileMagic = 20240520;
inline constexpr std::int32_t kTokenFileVersion = 1;
inline constexpr std::int32_t kWideTokenFileMagic = 20240801;
inline constexpr std::int32_t kWideTokenFileVersion = 7;
inline constexpr std::int64_t kTokenFileVocabulary = std::int64_t{1} << 16;
inline constexpr std::int64_t kTokenFileMaxTokens = std::numeric_limits<std::int32_t>::max();

using TokenFileHeader = std::array<std::int32_t, 256>;
inline constexpr std::size_t kTokenFileNote = 3;  // index of the first unused header integer

// ---- tokens in memory or in a file -----------------------------------------------------------

enum class TokenType { uint8, int8, uint16, int16, uint32, int32, int64 };

std::int64_t token_bytes(TokenType type);

// "16-bit", "16-bit signed", "32-bit unsigned": the usual types, uint16 and int32, need no sign.
const char* type_text(TokenType type);

// An immutable sequence of tokens, in memory or in a mapped file. Copies and slices share the
// tokens and keep them alive. Positions must be in range; only `slice` and `copy` check this.
class TokenData {
 public:
  TokenData() = default;

  explicit TokenData(std::vector<std::int32_t> tokens);

  // The tokens of a mapped file, from byte `begin` to its end.
  TokenData(MappedFile file, std::size_t begin, TokenType type = TokenType::uint16);

  std::int64_t size() const { return size_; }
  TokenType type() const { return type_; }

  // A token as it is in the file. Tokens of a damaged file can be negative or exceed 32 bits.
  std::int64_t stored(std::int64_t i) const;

  // A token as `copy` returns it.
  std::int32_t operator[](std::int64_t i) const;

  // Returns tokens begin .. end - 1 without copying them.
  TokenData slice(std::int64_t begin, std::int64_t end) const;

  // Copies tokens begin .. begin + count - 1 to `out`. A token that does not fit into 32 bits
  // becomes -1, which is outside every vocabulary.
  void copy(std::int64_t begin, std::int64_t count, std::int32_t* out) const;

 private:
  void check_range(std::int64_t begin, std::int64_t end) const;

  std::shared_ptr<const void> owner_;
  const std::byte* data_ = nullptr;  // the first token
  TokenType type_ = TokenType::int32;
  std::int64_t size_ = 0;
};

// ---- token files -----------------------------------------------------------------------------

// Format of a .bin file. `nanogpt`: a file without a header is 16-bit tokens; one that begins with
// a header is still llm.c's.
enum class BinFormat { llmc, nanogpt };

// Returns the type of the tokens of a file with a header. Throws an error that names the file
// unless `bytes` are a complete token file.
TokenType check_token_file(std::span<const std::byte> bytes, const std::string& path);

// Returns the tokens of a token file, mapped: they are read from disk at first use. The file may be
// replaced while it is mapped, but must not be written in place.
TokenData read_token_file(const std::filesystem::path& path, BinFormat format = BinFormat::llmc);

// Throws unless the tokens of a vocabulary of this size fit into a token file.
void check_token_file_vocabulary(std::int64_t vocabulary_size, const std::string& path);

// Throws if a token is not in 0 .. vocabulary_size - 1; the error names the position of the first
// one. `offset` is the position of tokens[0] in `path`.
void check_tokens(std::span<const std::int32_t> tokens, std::int64_t vocabulary_size,
                  const std::string& path, std::int64_t offset = 0);

// Throws the error of check_tokens for one token.
[[noreturn]] void fail_token(std::int64_t token, std::int64_t vocabulary_size,
                             const std::string& path, std::int64_t position);

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
  void append(std::span<const std::int32_t> tokens);

  // Changes the name that `finish` gives the file. The directory must be the same.
  void rename(const std::filesystem::path& path) { file_.rename(path); }

  std::int64_t num_written() const { return num_written_; }  // tokens

  // Throws if fewer tokens were written than announced, or none; then nothing is replaced.
  void finish();

 private:
  TokenFileWriter(const std::filesystem::path& path, std::int64_t vocabulary_size,
                  std::int64_t min_count, std::int64_t max_count,
                  std::span<const std::int32_t> note);

  static constexpr auto kHeaderBytes = static_cast<std::int64_t>(sizeof(TokenFileHeader));

  // Writes the header; a second call overwrites it.
  void write_header(std::int64_t count);

  // Checks the arguments before the file is created.
  static const std::filesystem::path& check_arguments(const std::filesystem::path& path,
                                                      std::int64_t vocabulary_size,
                                                      std::int64_t count);

  std::int64_t vocabulary_size_, min_count_, max_count_;
  std::vector<std::int32_t> note_;
  std::int64_t num_written_ = 0;
  std::vector<std::uint16_t> buffer_;
  AtomicFile file_;
};

void write_token_file(const std::filesystem::path& path, std::span<const std::int32_t> tokens,
                      std::int64_t vocabulary_size);

// Runs check_tokens on all tokens of a TokenData.
void check_tokens(const TokenData& tokens, std::int64_t vocabulary_size, const std::string& path);

}  // namespace llmc
