// Splits a text into pieces; no token of GPT-2 crosses the border of a piece. A piece is a
// contraction ('s), a run of white space, or a word, a number or a run of other characters, each
// with at most one space before it. Radford et al., "Language models are unsupervised multitask
// learners" (2019), section 2.2, give the reason; the pattern is in their published code.
//
// Unicode defines which characters are letters and numbers, and newer versions define more of them:
// PCRE2 10.42 has Unicode 14. About 9400 rare characters were added later (Han extension H, Kawi,
// Garay). Next to one of them, an apostrophe may be in another piece than in a program with newer
// tables.
#pragma once

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "llmc/base/error.h"

namespace llmc {

// Immutable: any number of threads may use one instance at the same time.
class Gpt2Splitter {
 public:
  Gpt2Splitter();

  // Calls `each(std::string_view)` for the pieces in order. The pieces are views into `text` and
  // together cover it. A byte that is not UTF-8 counts as a character that is neither letter, digit
  // nor white space. U+FFFD, which other readers put in its place, is in the same class.
  template <class Each>
  void split(std::string_view text, Each&& each) const {
    const std::string repaired = valid_utf8(text);
    const std::string_view subject = repaired.empty() ? text : std::string_view(repaired);
    const std::unique_ptr<pcre2_match_data, Free> match(pcre2_match_data_create(1, nullptr));
    require(match != nullptr, "out of memory");
    const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(match.get());
    for (std::size_t at = 0; at < text.size(); at = ends[1]) {
      const int status = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(subject.data()),
                                     subject.size(), at, PCRE2_NO_UTF_CHECK, match.get(), nullptr);
      if (status < 0) fail_pcre2(status, "byte " + std::to_string(at) + " of the text");
      each(text.substr(at, ends[1] - at));
    }
  }

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  };

  // Every character is in one of the four classes, so the pattern matches at every position. White
  // space is listed explicitly: it is Unicode's White_Space, as in the `regex` packages of Python
  // and Rust, while \s in PCRE2 also includes U+180E. A run of white space before a word leaves its
  // last character to the next match, so that a space can join the word.
  static std::string gpt2_pattern();

  // Returns a copy of `text` with '!' for each byte that is not UTF-8, or an empty string if there
  // is no such byte.
  static std::string valid_utf8(std::string_view text);

  [[noreturn]] static void fail_pcre2(int error, const std::string& hint);

  std::unique_ptr<pcre2_code, Free> code_;
};

}  // namespace llmc
