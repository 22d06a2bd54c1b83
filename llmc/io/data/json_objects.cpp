#include "llmc/io/data/json_objects.h"

#include <string_view>

#include "llmc/base/error.h"
#include "llmc/base/lines.h"
#include "llmc/base/utf8.h"
#include "llmc/io/data/compressed_file.h"
#include "llmc/io/data/text_encoding.h"

namespace llmc {

void for_each_json_object(
    const std::string& path, std::int64_t limit,
    const std::function<void(const Json&, std::int64_t, const std::string&)>& read) {
  const TextInput file(path);
  const std::string_view text = file.text();
  warn_about_encoding(text, path, true);
  std::int64_t objects = 0;
  for (Lines lines(text); (limit == 0 || objects < limit) && lines.next_filled(); ++objects) {
    const std::string location = path + ":" + std::to_string(lines.number());
    require(is_utf8(lines.line()), location + " is not UTF-8", "convert the file with iconv");
    const Json object = parse_json(lines.line(), location);
    require(object.is_object(), location + " is not a JSON object",
            "put one JSON object on each line");
    read(object, lines.number(), location);
  }
  if (objects == 0) fail(path + " contains no examples", "give one JSON object per line");
}

const std::string& json_text_field(const Json& object, const std::string& key,
                                   const std::string& location, const std::string& hint) {
  const Json* value = json_member(object, key);
  if (value == nullptr) fail(location + " has no \"" + key + "\"", hint);
  if (!value->is_string()) fail(location + ": \"" + key + "\" is not a string", hint);
  return value->text();
}

}  // namespace llmc
