// Fuzz target for documents of JSON lines, as training tokenizes them.
#pragma once

#include <algorithm>
#include <iterator>

#include "llmc/io/data/tokenize_text.h"
#include "llmc/io/tokenizer/byte_tokenizer.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void json_lines(std::string_view input) {
  constexpr const char* kName = "data.jsonl";
  static const llmc::ByteTokenizer bytes;
  is_rejected(kName, [&] {
    const auto tokens = llmc::tokenize_documents(
        input, kName, {.kind = llmc::DocumentFormat::Kind::json_lines, .separator = {}}, bytes);
    const auto documents = std::count(tokens.begin(), tokens.end(), *bytes.end_of_text());
    expect(std::ssize(tokens) <= std::ssize(input), "no document is longer than its line");
    expect(documents <= 1 + std::count(input.begin(), input.end(), '\n'),
           "each line has at most one document");
    expect(tokens.empty() || tokens.front() == *bytes.end_of_text(),
           "the first document begins with end-of-text");
  });
}

}  // namespace llmc_fuzz
