#include "llmc/io/tokenizer/text_cuts.h"

#include <algorithm>

#include "llmc/io/tokenizer/bpe_tokenizer.h"
#include "llmc/io/tokenizer/byte_tokenizer.h"

namespace llmc {

bool cuts_are_exact(const Tokenizer& tokenizer) {
  const auto* bpe = dynamic_cast<const BpeTokenizer*>(&tokenizer);
  // A plain added token may contain the place of a cut.
  if (bpe != nullptr) return !bpe->has_plain_added_tokens();
  return dynamic_cast<const ByteTokenizer*>(&tokenizer) != nullptr;
}

std::vector<std::string_view> cut_text(std::string_view text, std::size_t min_bytes) {
  const auto letter = [&](std::size_t i) {
    const char lower = static_cast<char>(text[i] | 0x20);
    return lower >= 'a' && lower <= 'z';
  };
  std::vector<std::string_view> parts;
  while (true) {
    std::size_t at = text.find(' ', std::max<std::size_t>(min_bytes, 1));
    while (at < text.size() && !(at + 1 < text.size() && letter(at - 1) && letter(at + 1))) {
      at = text.find(' ', at + 1);
    }
    if (at >= text.size()) break;
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at);
  }
  parts.push_back(text);
  return parts;
}

}  // namespace llmc
