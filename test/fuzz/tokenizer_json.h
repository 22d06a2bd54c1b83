// Fuzz target for tokenizer.json. In the input "@BYTES" stands for the tokens of all bytes,
// "NAME":ID,... with the ids 0 to 255. Decoding tokens and encoding the text again must return the
// same tokens. The file that a tokenizer writes must read as the same tokenizer.
#pragma once

#include <algorithm>

#include "llmc/base/json.h"
#include "llmc/io/tokenizer/byte_names.h"
#include "llmc/io/tokenizer/tokenizer.h"
#include "llmc/io/tokenizer/tokenizer_files.h"
#include "llmc/io/tokenizer/tokenizer_json.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

// The tokens of the 256 bytes as members of a JSON object, without its braces.
inline std::string byte_tokens() {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) {
    text += (byte == 0 ? "" : ",") +
            llmc::json_quoted(llmc::name_of_bytes(std::string(1, static_cast<char>(byte)))) + ":" +
            std::to_string(byte);
  }
  return text;
}

inline std::string with_byte_tokens(std::string_view text) {
  static const std::string tokens = byte_tokens();
  constexpr std::string_view kMark = "@BYTES";
  const std::size_t at = text.find(kMark);
  std::string result(text);
  if (at != text.npos) result.replace(at, kMark.size(), tokens);
  return result;
}

// Encodes `text`, which the tokenizer may reject, and decodes the tokens.
inline void use_tokenizer(const llmc::Tokenizer& tokenizer, std::string_view text) {
  is_rejected("", [&] {
    const std::vector<std::int32_t> tokens = tokenizer.encode(text);
    const std::string decoded = tokenizer.decode(tokens);
    // An added token that is not special can take white space, without which the text may spell out
    // another one.
    const auto added = tokenizer.added_tokens();
    const bool has_plain = !std::ranges::all_of(added, &llmc::AddedToken::special);
    expect(has_plain || tokenizer.encode(decoded) == tokens,
           "encoding the text of tokens returns these tokens");
    const auto special = tokenizer.encode_with_special(text);
    expect(tokenizer.decode(special) == decoded || tokenizer.end_of_text().has_value() ||
               !added.empty(),
           "without special tokens both encodings decode to the same text");
  });
}

inline void tokenizer_json(std::string_view input) {
  static const Folder folder;
  const std::string path = folder.write("tokenizer.json", with_byte_tokens(input));
  is_rejected(path, [&] {
    const auto tokenizer = llmc::read_tokenizer_json(path, path);
    constexpr std::string_view kText = "hello  world he\xff\xc3\xa9 <|endoftext|>";
    use_tokenizer(*tokenizer, kText);
    const std::string rewritten = folder.write("tokenizer.json", tokenizer->files()[0].text);
    const auto second = llmc::read_tokenizer_json(rewritten, rewritten);
    expect(second->files()[0].text == tokenizer->files()[0].text,
           "reading a tokenizer and writing it again changes nothing");
  });
}

}  // namespace llmc_fuzz
