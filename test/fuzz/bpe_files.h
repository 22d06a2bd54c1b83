// Fuzz target for vocab.json, merges.txt and added_tokens.json, which the input holds in this order
// ("@BYTES" as in tokenizer_json.h).
#pragma once

#include "llmc/io/tokenizer/bpe_tokenizer.h"
#include "llmc/io/tokenizer/tokenizer_files.h"
#include "test/fuzz/fuzz.h"
#include "test/fuzz/tokenizer_json.h"

namespace llmc_fuzz {

inline void bpe_files(std::string_view input) {
  static const Folder folder;
  const auto files = parts(input, 3);
  folder.write("vocab.json", with_byte_tokens(files[0]));
  folder.write("merges.txt", files[1]);
  if (files[2].empty()) {
    folder.remove("added_tokens.json");
  } else {
    folder.write("added_tokens.json", files[2]);
  }
  is_rejected(folder.path(), [&] {
    llmc::BpeVocabulary vocabulary = llmc::read_bpe_pair(folder.path());
    const auto size = vocabulary.bytes.size();
    for (const llmc::BpeMerge& merge : vocabulary.merges) {
      const auto text = [&](std::int32_t id) -> const std::string& {
        expect(id >= 0 && static_cast<std::size_t>(id) < size,
               "merges use tokens of the vocabulary");
        return vocabulary.bytes[static_cast<std::size_t>(id)];
      };
      text(merge.merged), text(merge.left), text(merge.right);
    }
    const llmc::BpeTokenizer tokenizer(std::move(vocabulary), "fuzz");
    const std::string_view text = files[1];
    // The text of an added token can be the name of another token's bytes.
    expect(tokenizer.has_plain_added_tokens() || tokenizer.decode(tokenizer.encode(text)) == text,
           "decoding tokens returns the text");
    use_tokenizer(tokenizer, text);
  });
}

}  // namespace llmc_fuzz
