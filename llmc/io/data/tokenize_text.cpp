#include "llmc/io/data/tokenize_text.h"

#include <optional>

#include "llmc/base/byte_progress.h"
#include "llmc/base/error.h"
#include "llmc/base/lines.h"
#include "llmc/io/tokenizer/text_cuts.h"

namespace llmc {

std::vector<std::int32_t> tokenize_text(std::string_view text, const std::string& path,
                                        const Tokenizer& tokenizer, std::size_t piece) {
  std::vector<std::int32_t> tokens;
  ByteProgress progress(static_cast<std::int64_t>(text.size()));
  std::size_t bytes_done = 0;
  const std::size_t min_bytes = cuts_are_exact(tokenizer) ? piece : text.size();
  for (const std::string_view part : cut_text(text, min_bytes)) {
    try {
      const auto ids = tokenizer.encode(part);
      tokens.insert(tokens.end(), ids.begin(), ids.end());
    } catch (const Error& error) {
      const std::string position =
          bytes_done == 0 ? "" : ", in the part from byte " + std::to_string(bytes_done);
      fail(path + position + ": " + error.marked_text());
    }
    bytes_done += part.size();
    progress.show(static_cast<std::int64_t>(bytes_done), "tokenizing " + path);
  }
  return tokens;
}

namespace {

// The document of a JSON line, or nothing if the line is skipped.
std::optional<std::string> document_of_line(const Lines& lines, const std::string& path,
                                            const DocumentFormat& format, SkippedLines* skipped) {
  const std::string location = path + ":" + std::to_string(lines.number());
  if (skipped == nullptr) return json_document(lines.line(), location, format);
  try {
    return json_document(lines.line(), location, format);
  } catch (const Error&) {
    skipped->add(lines.number());
    return std::nullopt;
  }
}

// Calls add(document) for the parts of a text between lines that are `separator`, without those
// that are empty.
template <class Add>
void for_each_part(std::string_view text, const std::string& separator, const Add& add) {
  std::size_t begin = 0, line_begin = 0;
  const auto add_part = [&](std::size_t end) {
    if (end > begin) add(text.substr(begin, end - begin));
  };
  for (Lines lines(text); lines.next(); line_begin = lines.end()) {
    std::string_view line = lines.line();
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line != separator) continue;
    add_part(line_begin);
    begin = lines.end();
  }
  add_part(text.size());
}

}  // namespace

std::vector<std::int32_t> tokenize_documents(std::string_view text, const std::string& path,
                                             const DocumentFormat& format,
                                             const Tokenizer& tokenizer, SkippedLines* skipped) {
  const std::optional<std::int32_t> end_of_text = tokenizer.end_of_text();
  if (!end_of_text) {
    fail(path + ": the tokenizer " + tokenizer.name() +
             " has no end-of-text token to separate documents",
         "use another " + quantity("tokenizer") + ", or give one text (.txt)");
  }
  std::vector<std::int32_t> tokens;
  ByteProgress progress(static_cast<std::int64_t>(text.size()));
  if (format.kind == DocumentFormat::Kind::text) {
    for_each_part(text, format.separator.value_or(""), [&](std::string_view document) {
      tokens.push_back(*end_of_text);
      const auto ids = tokenize_text(document, path, tokenizer);
      tokens.insert(tokens.end(), ids.begin(), ids.end());
      progress.show(document.data() + document.size() - text.data(), "tokenizing " + path);
    });
    return tokens;
  }
  for (Lines lines(text); lines.next_filled();) {
    const std::optional<std::string> document = document_of_line(lines, path, format, skipped);
    if (!document) continue;
    const auto ids = tokenizer.encode(*document);
    tokens.push_back(*end_of_text);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    progress.show(static_cast<std::int64_t>(lines.end()), "tokenizing " + path);
  }
  return tokens;
}

}  // namespace llmc
