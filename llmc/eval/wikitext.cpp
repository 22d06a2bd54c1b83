#include "llmc/eval/wikitext.h"

#include <cstddef>

namespace llmc {

std::int64_t count_words(std::string_view text) {
  std::int64_t words = 0;
  bool in_word = false;
  for (const char c : text) {
    const bool space = c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
    words += !space && !in_word ? 1 : 0;
    in_word = !space;
  }
  return words;
}

namespace {

// Reassembles one line, word by word.
class LineJoiner {
 public:
  void add(std::string_view word) {
    if (const std::string_view glue = inner_mark(word); !glue.empty()) {
      line_ += glue;
      joins_next_ = true;
      return;
    }
    const bool closes = closing(word);
    if (!line_.empty() && !joins_next_ && !closes) line_ += ' ';
    line_ += word;
    joins_next_ = opening(word, closes);
    previous_ = word;
  }

  const std::string& line() const { return line_; }

 private:
  static bool one_of(std::string_view word, std::string_view characters) {
    return word.size() == 1 && characters.find(word[0]) != std::string_view::npos;
  }

  // The mark inside a word that "@-@", "@,@" or "@.@" stands for; empty for any other word.
  static std::string_view inner_mark(std::string_view word) {
    const bool mark =
        word.size() == 3 && word[0] == '@' && word[2] == '@' && one_of(word.substr(1, 1), "-,.");
    return mark ? word.substr(1, 1) : std::string_view();
  }

  static bool closes_quote(bool& open) {
    open = !open;
    return !open;
  }

  // Whether the word attaches to the text before it. Quotes open and close in turn; a single quote
  // that follows a plural and has no partner is a possessive.
  bool closing(std::string_view word) {
    if (word == "\"") return closes_quote(double_open_);
    if (word == "'") {
      const bool possessive = !single_open_ && previous_.ends_with('s');
      return possessive || closes_quote(single_open_);
    }
    const bool heading = word == "=" && previous_ == "=";  // "= =": one mark
    return heading || one_of(word, ".,;:!?)]}%") || (word.size() > 1 && word[0] == '\'');
  }

  // Whether the word attaches to the text after it.
  static bool opening(std::string_view word, bool closes) {
    if (word == "\"" || word == "'") return !closes;
    return one_of(word, "([{$#") || word == "\xC2\xA3" || word == "\xC2\xA5";  // pound, yen
  }

  std::string line_;
  std::string_view previous_;
  bool joins_next_ = false;  // no space before the next word
  bool double_open_ = false, single_open_ = false;
};

}  // namespace

std::string detokenize_wikitext(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    LineJoiner joiner;
    while (!line.empty()) {
      const std::size_t space = line.find(' ');
      if (space != 0) joiner.add(line.substr(0, space));
      line.remove_prefix(space == std::string_view::npos ? line.size() : space + 1);
    }
    out += joiner.line();
    if (end == std::string_view::npos) break;
    out += '\n';
    text.remove_prefix(end + 1);
  }
  return out;
}

}  // namespace llmc
