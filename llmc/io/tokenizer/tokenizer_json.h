// Reads tokenizer.json, the file in which Hugging Face's `tokenizers` stores a whole tokenizer.
// Supports GPT-2's byte pair encoding, and word lists as tokenizer_files.h writes them. Any
// unsupported setting that would change the tokens is an error that names the key.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

// `name` is the argument of make_tokenizer. Throws an error that names the file and the key.
std::unique_ptr<Tokenizer> read_tokenizer_json(const std::filesystem::path& path,
                                               const std::string& name);

// Checks tokenizer_config.json, if it exists. Throws if it makes AutoTokenizer add a space before
// the text, or a token before or after it.
void check_tokenizer_config(const std::filesystem::path& directory);

}  // namespace llmc
