#include "llmc/io/data/texts.h"

#include <string_view>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/json.h"
#include "llmc/base/lines.h"
#include "llmc/base/utf8.h"
#include "llmc/io/data/compressed_file.h"
#include "llmc/io/data/input_file.h"
#include "llmc/io/data/json_objects.h"
#include "llmc/io/data/text_encoding.h"

namespace llmc {

namespace {

void add_text(std::vector<NumberedText>& texts, std::string text, std::int64_t line,
              const std::string& location) {
  if (text.find_first_not_of(" \t\r\n\v\f") == text.npos) {
    fail(location + ": the text is empty", "remove the line, or write a text");
  }
  texts.push_back({std::move(text), line});
}

std::vector<NumberedText> read_lines(const std::string& path) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  const TextInput file(path);
  std::string_view content = file.text();
  warn_about_encoding(content, path, true);
  if (content.starts_with(kByteOrderMark)) content.remove_prefix(kByteOrderMark.size());
  if (content.empty()) fail(path + " is empty", "write one text on each line");
  std::vector<NumberedText> texts;
  for (Lines lines(content); lines.next();) {
    std::string_view line = lines.line();
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::string location = path + ":" + std::to_string(lines.number());
    require(is_utf8(line), location + " is not UTF-8", "convert the file with iconv");
    add_text(texts, std::string(line), lines.number(), location);
  }
  return texts;
}

}  // namespace

std::vector<NumberedText> read_texts(const std::string& name) {
  const std::string path = input_path(name);
  if (!uncompressed_name(path).ends_with(".jsonl")) return read_lines(path);
  std::vector<NumberedText> texts;
  for_each_json_object(
      path, 0, [&](const Json& object, std::int64_t line, const std::string& location) {
        const std::string& text =
            json_text_field(object, "text", location, R"(write {"text": "..."} on each line)");
        add_text(texts, text, line, location);
      });
  return texts;
}

}  // namespace llmc
