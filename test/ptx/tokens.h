// Splits PTX into tokens: words such as "ld.global.v4.f32", "%r1" or "0f3F800000", and single
// signs.
#pragma once

#include <string>
#include <string_view>

#include "llmc/base/error.h"

namespace llmc_ptx {

class Tokens {
 public:
  Tokens(std::string_view text, std::size_t begin, int line, std::string file)
      : text_(text), at_(begin), line_(line), file_(std::move(file)) {
    advance();
  }

  // The next token; empty at the end of the text.
  std::string_view peek() const { return token_; }
  bool is(std::string_view token) const { return token_ == token; }
  bool at_end() const { return token_.empty(); }
  int line() const { return token_line_; }
  std::size_t offset() const { return begin_; }

  std::string_view take() {
    const std::string_view token = token_;
    advance();
    return token;
  }
  // Whether the next token is this one, which is then taken.
  bool take_if(std::string_view token) {
    if (token_ != token) return false;
    advance();
    return true;
  }
  void expect(std::string_view token) {
    if (!take_if(token))
      error("'" + std::string(token) + "' is missing before '" + std::string(token_) + "'");
  }
  std::int64_t take_number() {
    const bool negative = take_if("-");
    const std::string digits(take());
    std::size_t used = 0;
    std::int64_t value = 0;
    try {
      value = static_cast<std::int64_t>(std::stoull(digits, &used, 0));
    } catch (const std::exception&) {
      used = 0;
    }
    if (used == 0 || used != digits.size()) error("'" + digits + "' is no number");
    return negative ? -value : value;
  }
  // Skips a block in braces, of which the next token is the first brace.
  void skip_block() {
    if (!is("{")) error("a block is missing");
    int depth = 1;
    for (; depth > 0 && at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\n') ++line_;
      if (c == '/' && text_.substr(at_, 2) == "//") at_ = text_.find('\n', at_) - 1;
      if (c == '"') at_ = text_.find('"', at_ + 1);
      depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    }
    if (depth > 0) error("a block does not end");
    advance();
  }

  [[noreturn]] void error(const std::string& what) const {
    llmc::fail(file_ + ", line " + std::to_string(token_line_) + ": " + what);
  }

 private:
  static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$' || c == '%' || c == '.';
  }

  void skip_blanks() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') ++line_;
      if (c == '/' && text_.substr(at_, 2) == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        ++at_;
      } else {
        return;
      }
    }
  }

  void advance() {
    skip_blanks();
    begin_ = at_;
    token_line_ = line_;
    if (at_ < text_.size()) {
      if (text_[at_] == '"') {
        at_ = std::min(text_.find('"', at_ + 1), text_.size() - 1) + 1;
      } else if (is_word(text_[at_])) {
        while (at_ < text_.size() && (is_word(text_[at_]) || text_.substr(at_, 2) == "::")) {
          at_ += text_[at_] == ':' ? 2 : 1;
        }
      } else {
        ++at_;
      }
    }
    token_ = text_.substr(begin_, at_ - begin_);
  }

  std::string_view text_, token_;
  std::size_t at_, begin_ = 0;
  int line_, token_line_ = 0;
  std::string file_;
};

}  // namespace llmc_ptx
