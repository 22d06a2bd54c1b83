// The characters of words, \w of Unicode Technical Standard 18, annex C: letters, marks, digits and
// connectors. An added token with single_word must not be next to one of them.
#pragma once

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>
#include <string_view>

namespace llmc {

// Immutable. A byte that is not UTF-8 belongs to no word.
class WordCharacters {
 public:
  WordCharacters();

  // Return whether the first, or the last, character of a text belongs to a word.
  bool begins(std::string_view text) const;
  bool ends(std::string_view text) const;

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
  };

  std::unique_ptr<pcre2_code, Free> code_;
};

}  // namespace llmc
