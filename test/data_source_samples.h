// Small texts and token files for tests, read as --train reads them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "llmc/io/data/data_sources.h"
#include "llmc/io/tokenizer/byte_tokenizer.h"
#include "test/support.h"
#include "test/write_file.h"

namespace llmc_test {

using llmc::ByteTokenizer;
using llmc::SourceOptions;
using llmc::SourceReader;
using llmc::Tokenizer;
using llmc::TokenSource;
using Ids = std::vector<std::int32_t>;

inline constexpr std::int32_t kEnd = 256;  // end of text of the byte tokenizer

inline Ids bytes_of(const std::string& text) {
  return ByteTokenizer().encode(text);
}

inline Ids concatenate(std::initializer_list<Ids> parts) {
  Ids all;
  for (const Ids& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

inline TokenSource source_of(const std::string& name, const Tokenizer& tokenizer = ByteTokenizer(),
                             const SourceOptions& options = {.cache = {.enabled = false}}) {
  SourceReader reader(tokenizer, options);
  return reader.read({{name}, std::nullopt}, "--train").at(0);
}

inline Ids all_tokens(const TokenSource& source) {
  Ids ids(static_cast<std::size_t>(source.size()));
  source.copy(0, source.size(), ids.data());
  return ids;
}

inline Ids document_starts_of(const TokenSource& source) {
  const Ids tokens = all_tokens(source);
  Ids starts(tokens.size());
  source.document_starts(0, tokens, starts.data());
  return starts;
}

}  // namespace llmc_test
