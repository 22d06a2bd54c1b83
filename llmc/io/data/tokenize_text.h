// Tokenizes texts and documents in memory and reports progress on stderr.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/io/data/documents.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

// Returns the same tokens as encode(text). Encodes in pieces of at least `piece` bytes if the
// tokenizer allows exact cuts. Errors and progress call the text `path`.
std::vector<std::int32_t> tokenize_text(std::string_view text, const std::string& path,
                                        const Tokenizer& tokenizer,
                                        std::size_t piece = std::size_t{1} << 24);

// Returns the tokens of documents, the content of the file `path`: for each line that is not blank
// (JSON lines), or for each part between two lines `format.separator` (texts), end-of-text and then
// the document. Lines for which json_document throws are skipped and added to `skipped`; without
// `skipped` their error is thrown. Throws if the tokenizer has no end-of-text.
std::vector<std::int32_t> tokenize_documents(std::string_view text, const std::string& path,
                                             const DocumentFormat& format,
                                             const Tokenizer& tokenizer,
                                             SkippedLines* skipped = nullptr);

}  // namespace llmc
