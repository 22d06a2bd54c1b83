#include "llmc/io/tokenizer/gpt2_splitter.h"

#include "llmc/base/utf8.h"

namespace llmc {

Gpt2Splitter::Gpt2Splitter() {
  int error = 0;
  PCRE2_SIZE at = 0;
  const std::string pattern = gpt2_pattern();
  code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                            PCRE2_UTF | PCRE2_ANCHORED, &error, &at, nullptr));
  if (!code_) fail_pcre2(error, "install a PCRE2 library with Unicode (libpcre2-8)");
  // If the library cannot compile to machine code, it interprets the pattern: slower, but no
  // error.
  pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
}

std::string Gpt2Splitter::gpt2_pattern() {
  const std::string space =
      R"(\t-\r\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
  const std::string endings = "'(?:[stmd]|re|ve|ll)";
  const std::string words = R"( ?\p{L}+| ?\p{N}+| ?[^\p{L}\p{N})" + space + "]+";
  return endings + "|" + words + "|[" + space + "]+(?![^" + space + "])|[" + space + "]+";
}

std::string Gpt2Splitter::valid_utf8(std::string_view text) {
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

void Gpt2Splitter::fail_pcre2(int error, const std::string& hint) {
  char text[256] = "";
  pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
  fail("GPT-2's splitting pattern: " + std::string(text), hint);
}

}  // namespace llmc
