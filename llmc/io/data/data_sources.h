// Reads the tokens of sources that are given by name. The file name decides the kind of a file:
//
//   X, X.bin or X.idx, if X.bin and X.idx exist     Megatron-LM's tokens, documents by their index
//   X.bin                                           llm.c's tokens, or nanoGPT's (SourceOptions)
//   X.jsonl                                         documents, each after an end-of-text token
//   any other                                       a plain text
//
// The text of the last two may be compressed and then also have the ending .gz or .zst.
// SourceOptions can set how texts are read, whatever their name. End-of-text separates consecutive
// plain texts of one source, if the tokenizer has such a token.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "llmc/io/data/documents.h"
#include "llmc/io/data/source_list.h"
#include "llmc/io/data/text_notices.h"
#include "llmc/io/data/token_cache.h"
#include "llmc/io/data/token_file.h"
#include "llmc/io/data/token_source.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

// Whether a file has tokens, so that no text needs to be tokenized.
bool is_token_file(const std::string& file);

struct SourceOptions {
  // How texts are read. Parts between lines that are the separator are documents.
  DocumentFormat text{};
  BinFormat bin = BinFormat::llmc;
  bool skip_bad_lines = false;  // of JSON lines
  CacheOptions cache{};
  TextAdvice advice{};
};

class SourceReader {
 public:
  // Keeps a reference to `tokenizer`.
  SourceReader(const Tokenizer& tokenizer, SourceOptions options)
      : tokenizer_(tokenizer),
        options_(std::move(options)),
        cache_(tokenizer, options_.cache),
        notices_(options_.advice) {}

  // Reads all sources of a list; errors call the list `flag`. Token files are mapped: their headers
  // are checked, and only the tokens at both ends are read. Throws an error that names the file.
  std::vector<TokenSource> read(const SourceList& list, const std::string& flag);

  // Prints one warning per kind of problem in the texts so far (text_notices.h), and one about
  // skipped lines.
  void print_notices();

 private:
  // Number of tokens checked at each end of a file before a run begins. The rest is checked when it
  // is read.
  static constexpr std::int64_t kCheckedTokens = std::int64_t{1} << 22;

  TokenSource read_source(const std::string& name, const std::string& flag);

  void add_megatron(TokenSource& source, const std::string& prefix) const;

  TokenData token_file(const std::string& file) const;

  // How the text of a file is read; its kind is not by_name.
  DocumentFormat format_of(const std::string& file) const;

  TokenData text_tokens(const std::string& file, const DocumentFormat& format);

  const Tokenizer& tokenizer_;
  SourceOptions options_;
  TokenCache cache_;
  std::set<std::string> examined_;  // files: problems of each are reported once
  TextNotices notices_;
  SkippedLines skipped_;
  std::string first_skipped_;  // FILE:LINE
};

}  // namespace llmc
