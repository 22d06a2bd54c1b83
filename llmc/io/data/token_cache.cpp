#include "llmc/io/data/token_cache.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <span>
#include <system_error>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/hash.h"
#include "llmc/base/notice.h"
#include "llmc/base/work_progress.h"
#include "llmc/io/data/compressed_file.h"

namespace llmc {

std::uint64_t tokenizer_checksum(const Tokenizer& tokenizer) {
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

namespace {

using NoteIntegers = std::array<std::int32_t, sizeof(Note) / sizeof(std::int32_t)>;

// Checksum of tokens as 16-bit integers. The vocabulary must fit into 16 bits.
std::uint64_t checksum_of_tokens(std::span<const std::int32_t> tokens) {
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
std::uint64_t checksum_of_text(const std::filesystem::path& path) {
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
std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

}  // namespace

std::optional<TokenData> read_cache(const std::filesystem::path& path, Note& expected,
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
      expected.skipped = actual.skipped;
      return TokenData(std::move(file), sizeof(TokenFileHeader));
    }
  } catch (const Error& error) {
    reason = "cannot be used (" + first_line(error.what()) + ")";
  }
  return std::nullopt;
}

}  // namespace token_cache_detail

TokenData TokenCache::tokens(const std::filesystem::path& path, const std::string& read_mode,
                             const Tokenize& tokenize, SkippedLines& skipped) {
  std::error_code ignored;
  if (!options_.enabled || !std::filesystem::is_regular_file(path, ignored)) {
    return TokenData(tokenize(TextInput(path).text()));
  }
  if (tokenizer_.vocabulary_size() > kTokenFileVocabulary) {
    Notice::print(path.string() + " is tokenized in memory: a vocabulary of " +
                  std::to_string(tokenizer_.vocabulary_size()) +
                  " does not fit into the 16 bits of a cache");
    return TokenData(tokenize(TextInput(path).text()));
  }
  const std::uint64_t key = key_of(path, read_mode);
  const std::filesystem::path cache = cache_path(path, key);
  Note note{.key = key, .input = token_cache_detail::checksum_of_text(path)};
  if (std::filesystem::exists(cache, ignored)) {
    std::string reason;
    if (auto cached = token_cache_detail::read_cache(cache, note, reason)) {
      skipped = note.skipped;
      return *cached;
    }
    Notice::warn("the cache " + cache.string() + " " + reason + ": tokenizing " + path.string() +
                 " again");
  }
  return tokenize_and_store(path, cache, note, tokenize, skipped);
}

std::uint64_t TokenCache::key_of(const std::filesystem::path& path, const std::string& read_mode) {
  if (!tokenizer_checksum_) tokenizer_checksum_ = tokenizer_checksum(tokenizer_);
  std::string key = std::to_string(token_cache_detail::kVersion) + ' ' +
                    checksum_text(*tokenizer_checksum_) + ' ' + read_mode;
  // In a shared cache directory, texts of the same name must not replace each other's cache.
  if (!options_.directory.empty()) key += ' ' + std::filesystem::absolute(path).string();
  return checksum_of(key);
}

std::filesystem::path TokenCache::cache_path(const std::filesystem::path& path,
                                             std::uint64_t key) const {
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

TokenData TokenCache::tokenize_and_store(const std::filesystem::path& path,
                                         const std::filesystem::path& cache, Note note,
                                         const Tokenize& tokenize,
                                         const SkippedLines& skipped) const {
  const TextInput text(path, options_.directory);
  std::vector<std::int32_t> tokens = tokenize(text.text());
  if (tokens.empty()) return TokenData();
  check_tokens(tokens, tokenizer_.vocabulary_size(), path.string());
  // Checksum of the tokenized text: the file may have changed since it was first read.
  note.input = text.checksum();
  note.skipped = skipped;
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

}  // namespace llmc
