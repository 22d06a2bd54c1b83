// Reads the tokens of sources that are given by name. The file name decides the kind of a file:
//
//   X, X.bin or X.idx, if X.bin and X.idx exist     Megatron-LM's tokens, documents by their index
//   X.bin                                           llm.c's tokens
//   X.jsonl                                         documents, each after an end-of-text token
//   any other                                       a plain text
//
// End-of-text separates consecutive plain texts of one source, if the tokenizer has such a token.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "llmc/io/data/documents.h"
#include "llmc/io/data/source_list.h"
#include "llmc/io/data/token_cache.h"
#include "llmc/io/data/token_file.h"
#include "llmc/io/data/token_source.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

// Whether a file has tokens, so that no text needs to be tokenized.
bool is_token_file(const std::string& file);

struct SourceOptions {
  std::string text_field = "text";  // the key of the text in JSON lines
  CacheOptions cache{};
};

class SourceReader {
 public:
  // Keeps a reference to `tokenizer`.
  SourceReader(const Tokenizer& tokenizer, SourceOptions options)
      : tokenizer_(tokenizer),
        text_field_(std::move(options.text_field)),
        cache_(tokenizer, std::move(options.cache)) {}

  // Reads all sources of a list; errors call the list `flag`. Token files are mapped: their headers
  // are checked, and only the tokens at both ends are read. Throws an error that names the file.
  std::vector<TokenSource> read(const SourceList& list, const std::string& flag);

 private:
  // Number of tokens checked at each end of a file before a run begins. The rest is checked when it
  // is read.
  static constexpr std::int64_t kCheckedTokens = std::int64_t{1} << 22;

  TokenSource read_source(const std::string& name, const std::string& flag);

  void add_megatron(TokenSource& source, const std::string& prefix) const;

  TokenData token_file(const std::string& file) const;

  DocumentFormat json_lines_format() const {
    return {.kind = DocumentFormat::Kind::json_lines, .field = text_field_, .separator = {}};
  }

  TokenData text_tokens(const std::string& file, bool documents);

  const Tokenizer& tokenizer_;
  std::string text_field_;
  TokenCache cache_;
  std::set<std::string> checked_encodings_;  // files: a warning about each is printed once
};

}  // namespace llmc
