// Texts and documents to tokens, with a word on stderr now and then about how far that is.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/device/error.h"
#include "llmc/io/file.h"
#include "llmc/io/jsonl_file.h"
#include "llmc/io/tokenizer_interface.h"

namespace llmc {

// Says on stderr how much of a file is tokenized, every few seconds and only where it takes so
// long.
class TokenizeProgress {
 public:
  TokenizeProgress(std::string path, std::size_t bytes) : path_(std::move(path)), bytes_(bytes) {}
  ~TokenizeProgress() {
    if (said_ && terminal_) std::cerr << "\n";
  }
  TokenizeProgress(const TokenizeProgress&) = delete;
  TokenizeProgress& operator=(const TokenizeProgress&) = delete;

  void at(std::size_t done) {
    const auto now = Clock::now();
    if (now - last_ < std::chrono::seconds(terminal_ ? 1 : 5)) return;
    last_ = now;
    said_ = true;
    const auto percent = static_cast<int>(100.0 * static_cast<double>(done) /
                                          static_cast<double>(std::max<std::size_t>(1, bytes_)));
    std::cerr << (terminal_ ? "\r" : "") << "tokenizing " << path_ << ": " << percent << "% of "
              << byte_text(static_cast<std::int64_t>(bytes_)) << (terminal_ ? "" : "\n")
              << std::flush;
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::string path_;
  std::size_t bytes_;
  bool terminal_ = isatty(STDERR_FILENO) != 0;
  bool said_ = false;
  Clock::time_point last_ = Clock::now();
};

// The first place at or after `least` where a text can be cut and both parts be tokenized alone:
// before a line break that follows an ASCII letter or digit. No word of a list holds a line break,
// and no splitting pattern of the GPT family joins one to a letter or digit before it.
inline std::size_t next_cut(std::string_view text, std::size_t least) {
  const auto alphanumeric = [](char c) {
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
  };
  for (std::size_t at = std::max<std::size_t>(least, 1); at < text.size(); ++at) {
    at = std::min(text.find('\n', at), text.size());
    if (at < text.size() && alphanumeric(text[at - 1])) return at;
  }
  return text.size();
}

// The tokens of a text, as encode(text) gives them, in pieces of at least `piece` bytes. `path` is
// what errors and progress call it.
inline std::vector<std::int32_t> tokenize_text(std::string_view text, const std::string& path,
                                               const Tokenizer& tokenizer,
                                               std::size_t piece = std::size_t{1} << 24) {
  std::vector<std::int32_t> tokens;
  TokenizeProgress progress(path, text.size());
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = next_cut(text, std::min(text.size(), begin + piece));
    try {
      const auto more = tokenizer.encode(text.substr(begin, end - begin));
      tokens.insert(tokens.end(), more.begin(), more.end());
    } catch (const Error& error) {
      const std::string from = begin == 0 ? "" : ", from byte " + std::to_string(begin) + " on";
      fail(path + from + ": " + error.what());
    }
    progress.at(end);
    begin = end;
  }
  return tokens;
}

// The tokens of a file of JSON lines: end-of-text, then the document, for each. Throws where the
// tokenizer has no end-of-text.
inline std::vector<std::int32_t> tokenize_documents(std::string_view lines, const std::string& path,
                                                    const std::string& field,
                                                    const Tokenizer& tokenizer) {
  const std::optional<std::int32_t> between = tokenizer.end_of_text();
  if (!between) {
    fail(path + ": the tokenizer " + tokenizer.name() +
             " has no end-of-text token to set documents apart",
         "another --tokenizer, or one text (.txt)");
  }
  std::vector<std::int32_t> tokens;
  TokenizeProgress progress(path, lines.size());
  for_each_document(lines, path, field, [&](const std::string& text, std::size_t done) {
    const auto more = tokenizer.encode(text);
    tokens.push_back(*between);
    tokens.insert(tokens.end(), more.begin(), more.end());
    progress.at(done);
  });
  return tokens;
}

}  // namespace llmc
