// Cuts a text into the pieces that GPT-2's tokens stay within: a word with the space before it, a
// number, a run of other characters, a run of white space. Radford et al., "Language models are
// unsupervised multitask learners" (2019), 2.2, say why; the pattern is in the code they published.
//
// What is a letter and what a number is Unicode's to say, and newer versions of it know more of
// them: PCRE2 10.42 has Unicode 14. Next to some 9400 characters that came later, all of them rare
// (Han extension H, Kawi, Garay), an apostrophe may go to another piece than in a program with
// newer tables.
#pragma once

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "llmc/base/error.h"
#include "llmc/base/utf8.h"

namespace llmc {

// Unchanging once made; any number of threads may use one at the same time.
class Gpt2Splitter {
 public:
  Gpt2Splitter() {
    int error = 0;
    PCRE2_SIZE at = 0;
    const std::string pattern = gpt2_pattern();
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                              PCRE2_UTF | PCRE2_ANCHORED, &error, &at, nullptr));
    if (!code_) fail_pcre2(error, "a PCRE2 library with Unicode (libpcre2-8) is needed");
    // Where it cannot compile to machine code, the library interprets: slower, and no error.
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
  }

  // Calls `each(std::string_view)` for the pieces in their order; together they are all of `text`,
  // and views into it. A byte that is not UTF-8 counts as a character that is neither letter, digit
  // nor white space, as does U+FFFD, which other readers put in its place.
  template <class Each>
  void split(std::string_view text, Each&& each) const {
    const std::string repaired = valid_utf8(text);
    const std::string_view subject = repaired.empty() ? text : std::string_view(repaired);
    const std::unique_ptr<pcre2_match_data, Free> match(pcre2_match_data_create(1, nullptr));
    require(match != nullptr, "out of memory");
    const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(match.get());
    for (std::size_t at = 0; at < text.size(); at = ends[1]) {
      const int found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(subject.data()),
                                    subject.size(), at, PCRE2_NO_UTF_CHECK, match.get(), nullptr);
      if (found < 0) fail_pcre2(found, "byte " + std::to_string(at) + " of the text");
      each(text.substr(at, ends[1] - at));
    }
  }

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  };

  // Every character is in one of the four classes, so there is a match wherever one is sought.
  // White space is spelled out: it is Unicode's White_Space, as in Python's `regex` and Rust's,
  // while \s in PCRE2 also takes U+180E. Of a run of white space before a word the last character
  // is left over, so that a space can go with the word.
  static std::string gpt2_pattern() {
    const std::string space =
        R"(\t-\r\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
    const std::string endings = "'(?:[stmd]|re|ve|ll)";
    const std::string words = R"( ?\p{L}+| ?\p{N}+| ?[^\p{L}\p{N})" + space + "]+";
    return endings + "|" + words + "|[" + space + "]+(?![^" + space + "])|[" + space + "]+";
  }

  // A copy of `text` with '!' for each byte that is not UTF-8; empty where there is no such byte.
  static std::string valid_utf8(std::string_view text) {
    std::string copy;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = utf8_length(text.substr(at));
      if (length == 0) {
        if (copy.empty()) copy = text;
        copy[at] = '!';
      }
      at += length == 0 ? 1 : length;
    }
    return copy;
  }

  [[noreturn]] static void fail_pcre2(int error, const std::string& hint) {
    char text[256] = "";
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
    fail("GPT-2's splitting pattern: " + std::string(text), hint);
  }

  std::unique_ptr<pcre2_code, Free> code_;
};

}  // namespace llmc
