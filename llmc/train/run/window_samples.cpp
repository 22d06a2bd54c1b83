#include "llmc/train/run/window_samples.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <span>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/base/terminal.h"
#include "llmc/io/data/token_hash.h"
#include "llmc/io/data/token_source.h"
#include "llmc/train/run/input_agreement.h"

namespace llmc {

namespace {

// The file names of the sources, with their fractions if they have weights.
std::string training_text(const ShuffledWindows& train) {
  std::string text;
  const std::vector<TokenSource>& sources = train.windows_by_source().sources();
  for (std::size_t s = 0; s < sources.size(); ++s) {
    if (s > 0) text += ',';
    text += std::filesystem::path(sources[s].name()).filename().string();
    if (!train.weights()) continue;
    char fraction[32];
    const auto end = std::to_chars(fraction, fraction + sizeof fraction,
                                   train.weights()->fraction(static_cast<std::int64_t>(s)));
    text += ':' + std::string(fraction, end.ptr);
  }
  return readable_text(text);  // stored as JSON, which cannot hold other bytes
}

SourceHashes source_hashes(const Windows& windows) {
  SourceHashes result;
  for (const TokenSource& source : windows.sources()) {
    result.names.push_back(source.name());
    result.hashes += (result.hashes.empty() ? "" : ",") + source_hash(source);
  }
  return result;
}

NamedValues source_values(const std::string& flag, const Windows& windows) {
  NamedValues values;
  for (const TokenSource& source : windows.sources()) {
    const std::string name = " of " + flag + " " + source.name();
    values.push_back({"the number of tokens" + name, std::to_string(source.size())});
    if (const std::string types = source.file_types(); !types.empty()) {
      values.push_back({"the type of the tokens" + name, types});
    }
    values.push_back({"the checksum of blocks of tokens" + name,
                      input_agreement_detail::sampled_checksum(source)});
  }
  return values;
}

std::int64_t token_count(const Windows& windows) {
  std::int64_t tokens = 0;
  for (const TokenSource& source : windows.sources()) tokens += source.size();
  return tokens;
}

}  // namespace

DataRecord TrainingWindows::record() const {
  const Windows& windows = windows_.windows_by_source();
  return {training_text(windows_), token_count(windows), source_hashes(windows)};
}

NamedValues TrainingWindows::compared_values(const std::string& flag) const {
  return source_values(flag, windows_.windows_by_source());
}

void TrainingWindows::describe() const {
  const Windows& windows = windows_.windows_by_source();
  for (std::size_t s = 0; s < windows.sources().size(); ++s) {
    const TokenSource& source = windows.sources()[s];
    const auto index = static_cast<std::int64_t>(s);
    const std::int64_t count = windows.count(index);
    const double fraction = windows_.weights()
                                ? windows_.weights()->fraction(index)
                                : static_cast<double>(count) / static_cast<double>(windows.count());
    char percent[32];
    std::snprintf(percent, sizeof percent, "%.4g%%", 100 * fraction);
    std::string text = "data: " + source.name() + ": " + std::to_string(source.size()) + " tokens";
    if (source.files() > 1) text += " in " + std::to_string(source.files()) + " files";
    text += ", " + std::to_string(count) + " windows";
    if (windows.sources().size() > 1) text += std::string(", ") + percent + " of the samples";
    Notice::print(text);
  }
}

DataRecord ValidationWindows::record() const {
  const Windows& windows = windows_.windows_by_source();
  return {{}, token_count(windows), source_hashes(windows)};
}

NamedValues ValidationWindows::compared_values(const std::string& flag) const {
  return source_values(flag, windows_.windows_by_source());
}

void ValidationWindows::describe() const {
  const Windows& windows = windows_.windows_by_source();
  for (std::size_t s = 0; s < windows.sources().size(); ++s) {
    const TokenSource& source = windows.sources()[s];
    const std::int64_t count = windows.count(static_cast<std::int64_t>(s));
    const std::int64_t rest = source.size() - 1 - count * T_;
    std::string text = "data: --val " + source.name() + ": " + std::to_string(source.size()) +
                       " tokens, " + std::to_string(count) + " windows";
    if (rest > 0) text += "; the last " + std::to_string(rest) + " tokens fill no window";
    Notice::print(text);
  }
}

namespace {

constexpr std::int64_t kMaxCountedTokens = std::int64_t{1} << 22;

// The number of bytes that each token stands for; 0 for end-of-text and for tokens without text.
std::vector<std::int64_t> bytes_of_tokens(const Tokenizer& tokenizer) {
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(tokenizer.vocabulary_size()));
  for (std::size_t id = 0; id < bytes.size(); ++id) {
    const auto token = static_cast<std::int32_t>(id);
    if (token == tokenizer.end_of_text()) continue;
    try {
      bytes[id] = std::ssize(tokenizer.decode(std::span(&token, 1)));
    } catch (const Error&) {  // no text: 0 bytes
    }
  }
  return bytes;
}

}  // namespace

std::optional<double> ValidationWindows::bytes_per_token(const Tokenizer& tokenizer) const {
  if (!tokenizer.has_text()) return std::nullopt;
  const std::vector<std::int64_t> bytes = bytes_of_tokens(tokenizer);
  std::int64_t num_tokens = 0, num_bytes = 0;
  for (const TokenSource& source : windows_.windows_by_source().sources()) {
    std::vector<std::int32_t> tokens(
        static_cast<std::size_t>(std::min(source.size(), kMaxCountedTokens)));
    source.copy(0, std::ssize(tokens), tokens.data());
    num_tokens += std::ssize(tokens);
    for (const std::int32_t token : tokens) num_bytes += bytes[static_cast<std::size_t>(token)];
  }
  if (num_tokens == 0 || num_bytes == 0) return std::nullopt;
  return static_cast<double>(num_bytes) / static_cast<double>(num_tokens);
}

}  // namespace llmc
