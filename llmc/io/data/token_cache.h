// Each text is tokenized once. Its tokens are stored next to it as a token file (token_file.h),
// which may also be trained on by its own name.
//
//     INPUT.V-0123456789abcdef.cache.bin
//
// V is the number of tokens in the vocabulary. The digits are a hash of the tokenizer's content
// (not of its name or folder), of how the text was read and of this format; in a shared cache
// directory also of the path of the text. A compressed text is unpacked to be tokenized, but its
// checksum is that of the compressed file. The unused integers of the header hold the same hash, a
// checksum of the input's bytes and a checksum of the tokens. Each use reads both files completely
// and compares: a cache is used only if nothing has changed since it was written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llmc/io/data/documents.h"
#include "llmc/io/data/token_file.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

struct CacheOptions {
  bool enabled = true;
  std::string directory{};  // directory of the caches; empty: next to their input
};

inline constexpr std::string_view kCacheEnding = ".cache.bin";

// Checksum of everything a tokenizer shows about how it encodes text: the files it can be created
// from, the bytes of every token, and the tokens of a sample. Independent of the tokenizer's name
// and location.
std::uint64_t tokenizer_checksum(const Tokenizer& tokenizer);

namespace token_cache_detail {

inline constexpr std::uint64_t kVersion = 1;

// The identity of a cache, stored in the unused integers of its header.
struct Note {
  std::uint64_t version = kVersion;
  std::uint64_t key = 0;     // hash of the tokenizer and of how the text was read
  std::uint64_t input = 0;   // checksum of the text
  std::uint64_t tokens = 0;  // checksum of the tokens as stored
  SkippedLines skipped{};    // lines of the text that have no tokens
};

// Returns the tokens of a cache if it matches `expected` and is intact, and sets
// `expected.skipped`. Otherwise returns nothing and sets `reason`.
std::optional<TokenData> read_cache(const std::filesystem::path& path, Note& expected,
                                    std::string& reason);

}  // namespace token_cache_detail

class TokenCache {
 public:
  // Returns the tokens of a text.
  using Tokenize = std::function<std::vector<std::int32_t>(std::string_view text)>;

  // Keeps a reference to `tokenizer`.
  TokenCache(const Tokenizer& tokenizer, CacheOptions options)
      : tokenizer_(tokenizer), options_(std::move(options)) {}

  // Returns the tokens of the file `path`, from its cache or newly tokenized and then cached.
  // `read_mode` is how the text is read (plain, or as documents under which key). `tokenize` adds
  // the lines that it skips to `skipped`; those of a cache are added too. If the tokens cannot be
  // cached, the reason is reported on stderr; this is not an error.
  TokenData tokens(const std::filesystem::path& path, const std::string& read_mode,
                   const Tokenize& tokenize, SkippedLines& skipped);

 private:
  using Note = token_cache_detail::Note;

  std::uint64_t key_of(const std::filesystem::path& path, const std::string& read_mode);

  // The path of the cache of a text. A cache with the same key and other text before it counts too:
  // older programs wrote the name of the tokenizer there.
  std::filesystem::path cache_path(const std::filesystem::path& path, std::uint64_t key) const;

  TokenData tokenize_and_store(const std::filesystem::path& path,
                               const std::filesystem::path& cache, Note note,
                               const Tokenize& tokenize, const SkippedLines& skipped) const;

  const Tokenizer& tokenizer_;
  CacheOptions options_;
  std::optional<std::uint64_t> tokenizer_checksum_;  // computed at first use
};

}  // namespace llmc
