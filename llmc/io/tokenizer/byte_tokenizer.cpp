#include "llmc/io/tokenizer/byte_tokenizer.h"

#include <cstddef>

#include "llmc/io/tokenizer/bpe_vocabulary.h"
#include "llmc/io/tokenizer/byte_names.h"
#include "llmc/io/tokenizer/tokenizer_files.h"

namespace llmc {

std::vector<std::int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) tokens.push_back(kIdOfByte[static_cast<std::uint8_t>(c)]);
  return tokens;
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  text.reserve(tokens.size());
  for (const std::int32_t token : tokens) {
    const std::size_t id = checked_index(token);
    if (id < kByteOrder.size()) {
      text += static_cast<char>(kByteOrder[id]);
    } else {
      text += kEndOfText;
    }
  }
  return text;
}

std::vector<TextFile> ByteTokenizer::files() const {
  BpeVocabulary vocabulary{
      .bytes = {}, .merges = {}, .added = added_tokens(), .byte_ids = kIdOfByte};
  for (const std::uint8_t byte : kByteOrder) {
    vocabulary.bytes.emplace_back(1, static_cast<char>(byte));
  }
  vocabulary.bytes.emplace_back(kEndOfText);
  return bpe_files(vocabulary);
}

}  // namespace llmc
