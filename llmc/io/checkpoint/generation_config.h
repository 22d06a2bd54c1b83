// generation_config.json of transformers: the defaults of its generate(). The engine reads the
// tokens that end a text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace llmc {

inline constexpr const char* kGenerationConfigName = "generation_config.json";

// Returns eos_token_id of the directory's generation_config.json, and nothing without such a file.
// Throws if the file is no JSON object.
std::vector<std::int64_t> read_generation_end_tokens(const std::filesystem::path& directory);

}  // namespace llmc
