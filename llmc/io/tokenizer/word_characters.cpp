#include "llmc/io/tokenizer/word_characters.h"

#include <cstddef>

#include "llmc/base/error.h"
#include "llmc/base/utf8.h"

namespace llmc {

namespace {

// The property Alphabetic is newer than some PCRE2 libraries. It has, in addition to letters, Nl
// and marks, only the symbols listed here (Other_Alphabetic of PropList.txt).
constexpr std::string_view kPattern =
    R"([\p{L}\p{Nl}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149})"
    R"(\x{1f150}-\x{1f169}\x{1f170}-\x{1f189}])";

}  // namespace

WordCharacters::WordCharacters() {
  int error = 0;
  PCRE2_SIZE at = 0;
  code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kPattern.data()), kPattern.size(),
                            PCRE2_UTF | PCRE2_ANCHORED, &error, &at, nullptr));
  require(code_ != nullptr, "PCRE2 cannot compile the pattern of word characters",
          "install a PCRE2 library with Unicode (libpcre2-8)");
}

bool WordCharacters::begins(std::string_view text) const {
  const std::size_t length = utf8_length(text);
  if (length == 0) return false;
  const std::unique_ptr<pcre2_match_data, Free> match(pcre2_match_data_create(1, nullptr));
  require(match != nullptr, "out of memory");
  return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), length, 0,
                     PCRE2_NO_UTF_CHECK, match.get(), nullptr) > 0;
}

bool WordCharacters::ends(std::string_view text) const {
  for (std::size_t length = 1; length <= 4 && length <= text.size(); ++length) {
    const std::string_view last = text.substr(text.size() - length);
    if (utf8_length(last) == length) return begins(last);
  }
  return false;
}

}  // namespace llmc
