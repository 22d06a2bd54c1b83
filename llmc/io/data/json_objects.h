// The objects of JSON lines, for the code that reads examples from such files. Interfaces of
// readers have no JSON type.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "llmc/base/json.h"

namespace llmc {

// Calls read(object, line number, "FILE:LINE") for each line that is not blank, up to `limit`
// objects (0: all). The file may be compressed. Throws an error that names the file and the line if
// a line is not UTF-8 or not a JSON object, and if the file has no object.
void for_each_json_object(
    const std::string& path, std::int64_t limit,
    const std::function<void(const Json&, std::int64_t, const std::string&)>& read);

// The member `key` of an object, a text. Throws an error with this hint if it is missing or not a
// string; the error calls the object `location`.
const std::string& json_text_field(const Json& object, const std::string& key,
                                   const std::string& location, const std::string& hint = {});

}  // namespace llmc
