// The tokenizers there are, by name.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include "llmc/device/error.h"
#include "llmc/io/bpe_tokenizer.h"
#include "llmc/io/byte_tokenizer.h"
#include "llmc/io/tokenizer_interface.h"
#include "llmc/io/word_tokenizer.h"

namespace llmc {

// "bytes": a token for each byte, and one for the end of a text.
// "words:FILE": a token for each line of the file.
// A directory: GPT-2's byte pair encoding, from the encoder.json and vocab.bpe in it.
// Throws an error that says which of these there are, or what is wrong with the files.
inline std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec) {
  constexpr std::string_view kWords = "words:";
  if (spec == "bytes") return std::make_unique<ByteTokenizer>();
  if (spec.starts_with(kWords)) return std::make_unique<WordTokenizer>(spec.substr(kWords.size()));
  std::error_code ignored;
  if (std::filesystem::is_directory(spec, ignored)) return std::make_unique<BpeTokenizer>(spec);
  const bool exists = std::filesystem::exists(spec, ignored);
  fail(exists ? spec + " is a file, not a tokenizer's directory"
              : "there is no tokenizer \"" + spec + "\"",
       "bytes, words:FILE, or a directory with encoder.json and vocab.bpe");
}

}  // namespace llmc
