// The prompts of --prompts FILE: one per line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace llmc {

struct PromptEntry {
  std::string id;  // the line number if the line has no id
  std::string prompt;
  std::optional<std::int64_t> tokens;  // maximum number to generate; otherwise --tokens
  std::optional<std::int64_t> seed;    // 0 or more; otherwise --seed
  std::vector<std::string> stop;       // in addition to --stop
  std::string location;                // FILE:LINE
  std::string error;                   // why the line is no prompt; otherwise empty
};

// Reads the prompts of a file in its order. Each line of a .jsonl file is an object with the key
// `prompt` and, optionally, `id`, `tokens`, `seed` and `stop`; lines of white space are skipped.
// Each line of any other file is a prompt. A line that is no prompt has an `error`, which names
// FILE:LINE. Warns if the file is not UTF-8. Throws an Error if the file cannot be read or has no
// prompts.
std::vector<PromptEntry> read_prompt_list(const std::string& path);

}  // namespace llmc
