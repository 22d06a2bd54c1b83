// Reads the texts of a file, without labels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace llmc {

struct NumberedText {
  std::string text;       // not empty, and not only white space
  std::int64_t line = 0;  // its line in the file; the first is 1
};

// The texts of a file, in order. FILE.jsonl has one object per line, {"text": "..."}, whose other
// fields are ignored; any other file has one text per line. The file may be compressed; "-" is
// stdin. Throws an error that names the file and the line of a text that is empty or missing.
std::vector<NumberedText> read_texts(const std::string& name);

}  // namespace llmc
