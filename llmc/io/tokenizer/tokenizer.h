// make_tokenizer creates a tokenizer of any kind from its name.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

// The name of GPT-2's vocabulary, wherever it is installed.
inline constexpr const char* kGpt2Name = "gpt2";

// Returns whether a directory contains tokenizer files.
bool has_tokenizer_files(const std::filesystem::path& directory);

// `spec` is one of:
// - "bytes": one token per byte, and one for the end of a text.
// - "gpt2", if no directory has that name: GPT-2's vocabulary where it is installed
//   (installed_gpt2.h). A notice names its directory.
// - "words:FILE": one token per line of the file.
// - A directory: its tokenizer.json. If it has none: GPT-2's byte pair encoding from encoder.json
//   and vocab.bpe, or from vocab.json and merges.txt.
// - A file named *.json: read as a tokenizer.json.
// Throws an error that lists these forms, or names what is wrong with the files.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec);

}  // namespace llmc
