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

std::vector<std::int32_t> tokenize_documents(std::string_view text, const std::string& path,
                                             const DocumentFormat& format,
                                             const Tokenizer& tokenizer) {
  const std::optional<std::int32_t> end_of_text = tokenizer.end_of_text();
  if (!end_of_text) {
    fail(path + ": the tokenizer " + tokenizer.name() +
             " has no end-of-text token to separate documents",
         "use another " + quantity("tokenizer") + ", or give one text (.txt)");
  }
  std::vector<std::int32_t> tokens;
  ByteProgress progress(static_cast<std::int64_t>(text.size()));
  for (Lines lines(text); lines.next_filled();) {
    const std::string location = path + ":" + std::to_string(lines.number());
    const auto ids = tokenizer.encode(json_document(lines.line(), location, format));
    tokens.push_back(*end_of_text);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    progress.show(static_cast<std::int64_t>(lines.end()), "tokenizing " + path);
  }
  return tokens;
}

}  // namespace llmc
