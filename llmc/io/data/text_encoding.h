// Detects texts that are probably not meant as UTF-8, from samples of their bytes.
//
// Tokenizers accept any bytes, so a text in another encoding trains without an error, on useless
// tokens. A program therefore warns.
#pragma once

#include <string>
#include <string_view>

namespace llmc {

// Describes a text that is mostly NUL bytes or not UTF-8, with the way to convert it, such as
// "looks like Latin-1 (ISO 8859-1): ...". Empty for UTF-8.
std::string encoding_problem(std::string_view text);

// Prints one warning if the text of the file `path` is probably not meant as UTF-8. Throws if it is
// of a kind that is no text (packed_kind.h). JSON has no bytes that are not UTF-8, so for
// `is_json` the warning does not say that they are used.
void warn_about_encoding(std::string_view text, const std::string& path, bool is_json = false);

}  // namespace llmc
