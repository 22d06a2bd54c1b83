// Each text is tokenized once. Its tokens are stored next to it as a token file (token_file.h),
// which may also be trained on by its own name.
//
//     INPUT.V-0123456789abcdef.cache.bin
//
// V is the number of tokens in the vocabulary. The digits are a hash of the tokenizer's content
// (not of its name or folder), of how the text was read and of this format; in a shared cache
// directory also of the path of the text. The unused integers of the header hold the same hash, a
// checksum of the input's bytes and a checksum of the tokens. Each use reads both files completely
// and compares: a cache is used only if nothing has changed since it was written.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/hash.h"
#include "llmc/base/notice.h"
#include "llmc/base/work_progress.h"
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
inline std::uint64_t tokenizer_checksum(const Tokenizer& tokenizer) {
  std::uint64_t sum = 0;
  const auto add = [&](std::string_view text) { sum = mix64(sum, checksum_of(text)); };
  const auto number = [&](std::int64_t n) { add(std::to_string(n)); };
  const auto add_none_on_error = [&](const auto& action) {
    try {
      action();
    } catch (const Error&) {
      add("none");
    }
  };
  number(tokenizer.vocabulary_size());
  number(tokenizer.end_of_text().value_or(-1));
  for (const TextFile& file : tokenizer.files()) {
    add(file.name);
    add(file.text);
  }
  for (std::int64_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const auto token = static_cast<std::int32_t>(id);
    add_none_on_error([&] { add(tokenizer.decode(std::span(&token, 1))); });
  }
  add_none_on_error([&] {
    constexpr std::string_view kSample =
        "The 2nd QUICK brown-fox didn't jump  over 31415 lazy dogs; they'll \tsee.\r\n\n  It's "
        "caf\u00e9 na\u00efve \u4f60\u597d, \u043f\u0440\u0438\u0432\u0435\u0442 \U0001f642!\n";
    for (const std::int32_t token : tokenizer.encode(kSample)) number(token);
  });
  return sum;
}

namespace token_cache_detail {

inline constexpr std::uint64_t kVersion = 1;

// The identity of a cache, stored in the unused integers of its header.
struct Note {
  std::uint64_t version = kVersion;
  std::uint64_t key = 0;     // hash of the tokenizer and of how the text was read
  std::uint64_t input = 0;   // checksum of the text
  std::uint64_t tokens = 0;  // checksum of the tokens as stored
};
using NoteIntegers = std::array<std::int32_t, sizeof(Note) / sizeof(std::int32_t)>;

// Checksum of tokens as 16-bit integers. The vocabulary must fit into 16 bits.
inline std::uint64_t checksum_of_tokens(std::span<const std::int32_t> tokens) {
  Checksum sum;
  std::array<std::uint16_t, 4096> tokens16;
  for (; !tokens.empty(); tokens = tokens.subspan(std::min(tokens16.size(), tokens.size()))) {
    const std::size_t n = std::min(tokens16.size(), tokens.size());
    for (std::size_t i = 0; i < n; ++i) tokens16[i] = static_cast<std::uint16_t>(tokens[i]);
    sum.add(std::as_bytes(std::span(tokens16).first(n)));
  }
  return sum.value();
}

// Checksum of a text, which may be large: shows progress.
inline std::uint64_t checksum_of_text(const std::filesystem::path& path) {
  std::error_code ignored;
  WorkProgress progress("reading " + path.string(),
                        static_cast<std::int64_t>(std::filesystem::file_size(path, ignored)));
  Checksum sum;
  for_each_piece(path, [&](std::span<const std::byte> piece) {
    sum.add(piece);
    progress.add(std::ssize(piece));
  });
  return sum.value();
}

// Returns the first line of an error: the problem without the hint.
inline std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

// Returns the tokens of a cache if it matches `expected` and is intact. Otherwise returns nothing
// and sets `reason`.
inline std::optional<TokenData> read_cache(const std::filesystem::path& path, const Note& expected,
                                           std::string& reason) {
  try {
    MappedFile file(path);
    check_token_file(file.bytes(), path.string());
    Note actual;
    std::memcpy(&actual, file.bytes().data() + sizeof(std::int32_t) * kTokenFileNote,
                sizeof actual);
    Checksum sum;
    sum.add(file.bytes().subspan(sizeof(TokenFileHeader)));
    if (actual.version != expected.version || actual.key != expected.key) {
      reason = "belongs to another tokenizer";
    } else if (actual.input != expected.input) {
      reason = "belongs to a text that has changed since";
    } else if (actual.tokens != sum.value()) {
      reason = "is damaged (its checksum differs)";
    } else {
      return TokenData(std::move(file), sizeof(TokenFileHeader));
    }
  } catch (const Error& error) {
    reason = "cannot be used (" + first_line(error.what()) + ")";
  }
  return std::nullopt;
}

}  // namespace token_cache_detail

class TokenCache {
 public:
  // Returns the tokens of a text.
  using Tokenize = std::function<std::vector<std::int32_t>(std::string_view text)>;

  // Keeps a reference to `tokenizer`.
  TokenCache(const Tokenizer& tokenizer, CacheOptions options)
      : tokenizer_(tokenizer), options_(std::move(options)) {}

  // Returns the tokens of the file `path`, from its cache or newly tokenized and then cached.
  // `read_mode` is how the text is read (plain, or as documents under which key). If the tokens
  // cannot be cached, the reason is reported on stderr; this is not an error.
  TokenData tokens(const std::filesystem::path& path, const std::string& read_mode,
                   const Tokenize& tokenize) {
    std::error_code ignored;
    if (!options_.enabled || !std::filesystem::is_regular_file(path, ignored)) {
      return TokenData(tokenize(read_file(path)));
    }
    if (tokenizer_.vocabulary_size() > kTokenFileVocabulary) {
      Notice::print(path.string() + " is tokenized in memory: a vocabulary of " +
                    std::to_string(tokenizer_.vocabulary_size()) +
                    " does not fit into the 16 bits of a cache");
      return TokenData(tokenize(read_file(path)));
    }
    const std::uint64_t key = key_of(path, read_mode);
    const std::filesystem::path cache = cache_path(path, key);
    const Note note{.key = key, .input = token_cache_detail::checksum_of_text(path)};
    if (std::filesystem::exists(cache, ignored)) {
      std::string reason;
      if (auto cached = token_cache_detail::read_cache(cache, note, reason)) return *cached;
      Notice::warn("the cache " + cache.string() + " " + reason + ": tokenizing " + path.string() +
                   " again");
    }
    return tokenize_and_store(path, cache, note, tokenize);
  }

 private:
  using Note = token_cache_detail::Note;

  std::uint64_t key_of(const std::filesystem::path& path, const std::string& read_mode) {
    if (!tokenizer_checksum_) tokenizer_checksum_ = tokenizer_checksum(tokenizer_);
    std::string key = std::to_string(token_cache_detail::kVersion) + ' ' +
                      checksum_text(*tokenizer_checksum_) + ' ' + read_mode;
    // In a shared cache directory, texts of the same name must not replace each other's cache.
    if (!options_.directory.empty()) key += ' ' + std::filesystem::absolute(path).string();
    return checksum_of(key);
  }

  // The path of the cache of a text. A cache with the same key and other text before it counts too:
  // older programs wrote the name of the tokenizer there.
  std::filesystem::path cache_path(const std::filesystem::path& path, std::uint64_t key) const {
    const std::string begin = path.filename().string() + ".";
    const std::string end = "-" + checksum_text(key) + std::string(kCacheEnding);
    const std::filesystem::path directory =
        options_.directory.empty() ? path.parent_path() : std::filesystem::path(options_.directory);
    const std::filesystem::path named =
        directory / (begin + std::to_string(tokenizer_.vocabulary_size()) + end);
    std::error_code ignored;
    if (std::filesystem::exists(named, ignored)) return named;
    for (const auto& entry : std::filesystem::directory_iterator(parent_of(named), ignored)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(begin) && name.ends_with(end)) return directory / name;
    }
    return named;
  }

  TokenData tokenize_and_store(const std::filesystem::path& path,
                               const std::filesystem::path& cache, Note note,
                               const Tokenize& tokenize) const {
    const std::string text = read_file(path);
    std::vector<std::int32_t> tokens = tokenize(text);
    if (tokens.empty()) return TokenData();
    check_tokens(tokens, tokenizer_.vocabulary_size(), path.string());
    // Checksum of the tokenized text: the file may have changed since it was first read.
    note.input = checksum_of(text);
    note.tokens = token_cache_detail::checksum_of_tokens(tokens);
    try {
      if (!options_.directory.empty()) make_directory(options_.directory);
      TokenFileWriter writer(cache, tokenizer_.vocabulary_size(),
                             static_cast<std::int64_t>(tokens.size()),
                             std::bit_cast<token_cache_detail::NoteIntegers>(note));
      writer.append(tokens);
      writer.finish();
    } catch (const Error& error) {
      Notice::warn("the tokens of " + path.string() + " are not cached (" +
                   token_cache_detail::first_line(error.what()) +
                   "): choose another cache directory");
      return TokenData(std::move(tokens));
    }
    Notice::print("cached the tokens of " + path.string() + " in " + cache.string());
    std::string reason;
    if (auto cached = token_cache_detail::read_cache(cache, note, reason)) return *cached;
    return TokenData(std::move(tokens));  // another run has replaced the cache
  }

  const Tokenizer& tokenizer_;
  CacheOptions options_;
  std::optional<std::uint64_t> tokenizer_checksum_;  // computed at first use
};

}  // namespace llmc
