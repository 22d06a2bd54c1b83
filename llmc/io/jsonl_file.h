// Documents from a file of JSON lines: one object a line, with the text under one key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "llmc/device/error.h"
#include "llmc/io/json.h"

namespace llmc {

// each(text, bytes read so far) for the document of each line; lines of white space are passed
// over. `lines` is the content of the file `path`. Throws an error that names the file and the line
// for what is not an object with the string `field`.
inline void for_each_document(std::string_view lines, const std::string& path,
                              const std::string& field,
                              const std::function<void(const std::string&, std::size_t)>& each) {
  std::int64_t number = 0;
  for (std::size_t begin = 0; begin < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', begin), lines.size());
    const std::string_view line = lines.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const std::string where = path + ": line " + std::to_string(number);
    const Json object = parse_json(line, where);
    const Json* text = object.is_object() ? json_member(object, field) : nullptr;
    if (text == nullptr || !text->is_string()) {
      const char* why = !object.is_object() ? " is not a JSON object"
                        : text == nullptr   ? " has no \""
                                            : " has something that is not a string as \"";
      fail(where + why + (object.is_object() ? field + "\"" : ""),
           "one object a line, with the text under \"" + field + "\"; --text-field names another");
    }
    each(text->get_ref<const std::string&>(), std::min(begin, lines.size()));
  }
}

}  // namespace llmc
