#include "llmc/io/checkpoint/generation_config.h"

#include <string>
#include <system_error>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/io/checkpoint/token_ids.h"

namespace llmc {

std::vector<std::int64_t> read_generation_end_tokens(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kGenerationConfigName;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  const Json json = parse_json(read_file(path), path.string());
  if (!json.is_object()) fail(path.string() + " is not a JSON object");
  return token_ids(json, "eos_token_id", path.string());
}

}  // namespace llmc
