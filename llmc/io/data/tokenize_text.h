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

// Returns the tokens of JSON lines, the content of the file `path`: for each line that is not
// blank, end-of-text and then the document. Throws as json_document does, and if the tokenizer has
// no end-of-text.
std::vector<std::int32_t> tokenize_documents(std::string_view text, const std::string& path,
                                             const DocumentFormat& format,
                                             const Tokenizer& tokenizer);

}  // namespace llmc
