// Fuzz target that encodes any bytes and decodes the tokens again, with byte, byte-pair and word
// tokenizers. It also decodes any token ids.
#pragma once

#include "llmc/io/tokenizer/bpe_tokenizer.h"
#include "llmc/io/tokenizer/byte_tokenizer.h"
#include "llmc/io/tokenizer/tokenizer.h"
#include "llmc/io/tokenizer/word_tokenizer.h"
#include "test/fuzz/fuzz.h"
#include "test/fuzz/tokenizer_json.h"

namespace llmc_fuzz {

inline const llmc::Tokenizer& small_bpe_tokenizer() {
  static const auto tokenizer = [] {
    const Folder folder;
    folder.write("vocab.json",
                 with_byte_tokens(R"({@BYTES,"he":256,"ll":257,"hell":258,"Ġw":259,"hello":260,)"
                                  R"("aa":261,"aaaa":262,"Ã©":263,"<|endoftext|>":264})"));
    folder.write("merges.txt", "h e\nl l\nhe ll\nĠ w\nhell o\na a\naa aa\nÃ ©\n");
    return std::make_unique<llmc::BpeTokenizer>(std::filesystem::path(folder.path()));
  }();
  return *tokenizer;
}

inline void encode(std::string_view input) {
  static const llmc::ByteTokenizer bytes;
  static const llmc::WordTokenizer words({"a", "b", "ab", "\xc3\xa9"}, "words");
  for (const llmc::Tokenizer* tokenizer :
       {static_cast<const llmc::Tokenizer*>(&bytes), &small_bpe_tokenizer()}) {
    const std::vector<std::int32_t> tokens = tokenizer->encode(input);
    expect(tokenizer->decode(tokens) == input, "decoding tokens returns the text");
    expect(tokenizer->decode(tokenizer->encode_with_special(input)) == input,
           "decoding tokens and special tokens returns the text");
    for (const std::int32_t token : tokens) {
      expect(token >= 0 && token < tokenizer->vocabulary_size() - 1,
             "tokens are in the vocabulary and not special");
    }
  }
  is_rejected("word list words", [&] {
    const std::vector<std::int32_t> tokens = words.encode(input);
    expect(words.encode(words.decode(tokens)) == tokens,
           "decoding and encoding words returns the same tokens");
  });
  std::vector<std::int32_t> ids(input.size() / sizeof(std::int32_t));
  if (!ids.empty()) std::memcpy(ids.data(), input.data(), ids.size() * sizeof(std::int32_t));
  for (std::int32_t& id : ids) id %= 300;
  is_rejected("vocabulary", [&] { small_bpe_tokenizer().decode(ids); });
}

}  // namespace llmc_fuzz
