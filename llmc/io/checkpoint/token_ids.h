// Token ids in the JSON files of transformers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/base/json.h"

namespace llmc {

// The tokens of a key such as eos_token_id: a number, a list of them, null or absent. Errors call
// the file `file`.
std::vector<std::int64_t> token_ids(const Json& json, const char* key, const std::string& file);

// Their form in files: null for none, a number for one, or a list.
Json token_ids_json(const std::vector<std::int64_t>& ids);

}  // namespace llmc
