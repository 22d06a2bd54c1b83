// Finds GPT-2's vocabulary on this machine, for --tokenizer gpt2.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

namespace llmc {

// The directories that may have it, in the order of the search: data/gpt2 and models/gpt2-124M (of
// scripts/get_gpt2.sh) in the current directory and in that of the program or its repository,
// $LLMC_DATA/gpt2, and the snapshots of gpt2 in the cache of Hugging Face.
std::vector<std::filesystem::path> gpt2_directories();

// The first of them with the files of a tokenizer; empty if there is none.
std::optional<std::filesystem::path> find_gpt2_vocabulary();

}  // namespace llmc
