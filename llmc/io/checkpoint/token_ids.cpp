#include "llmc/io/checkpoint/token_ids.h"

namespace llmc {

std::vector<std::int64_t> token_ids(const Json& json, const char* key, const std::string& file) {
  const Json* value = json_member(json, key);
  if (value == nullptr || value->is_null()) return {};
  const std::string what = file + ": " + key;
  if (!value->is_array()) return {json_size(*value, what)};
  return json_sizes(*value, what);
}

Json token_ids_json(const std::vector<std::int64_t>& ids) {
  if (ids.empty()) return nullptr;
  return ids.size() == 1 ? Json(ids.front()) : Json(ids);
}

}  // namespace llmc
