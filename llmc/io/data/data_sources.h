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
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/io/data/megatron_file.h"
#include "llmc/io/data/source_list.h"
#include "llmc/io/data/text_encoding.h"
#include "llmc/io/data/token_cache.h"
#include "llmc/io/data/token_file.h"
#include "llmc/io/data/token_source.h"
#include "llmc/io/data/tokenize_text.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"

namespace llmc {

// Returns the common prefix of Megatron's X.bin and X.idx if `file` names one of them or X, else
// nothing.
inline std::optional<std::string> megatron_prefix(const std::string& file) {
  using source_list_detail::exists;
  const std::filesystem::path path(file);
  const bool has_extension = path.extension() == ".bin" || path.extension() == ".idx";
  const std::string prefix = has_extension ? file.substr(0, file.size() - 4) : file;
  if (path.extension() == ".idx") return prefix;
  if (exists(prefix + ".idx") && (has_extension || !exists(file))) return prefix;
  return std::nullopt;
}

// Whether a file has tokens, so that no text needs to be tokenized.
inline bool is_token_file(const std::string& file) {
  return std::filesystem::path(file).extension() == ".bin" || megatron_prefix(file).has_value();
}

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
  std::vector<TokenSource> read(const SourceList& list, const std::string& flag) {
    std::vector<TokenSource> sources;
    for (const std::string& name : list.names) {
      sources.push_back(read_source(name, flag));
      sources.back().check_ends(kCheckedTokens);
    }
    return sources;
  }

 private:
  // Number of tokens checked at each end of a file before a run begins. The rest is checked when it
  // is read.
  static constexpr std::int64_t kCheckedTokens = std::int64_t{1} << 22;

  TokenSource read_source(const std::string& name, const std::string& flag) {
    TokenSource source(name, tokenizer_.vocabulary_size(), tokenizer_.end_of_text());
    std::set<std::string> prefixes;  // Megatron's: a pattern may match both .bin and .idx
    bool previous_is_text = false;
    for (const std::string& file : files_of_source(name, flag)) {
      if (const auto prefix = megatron_prefix(file)) {
        if (prefixes.insert(*prefix).second) add_megatron(source, *prefix);
        previous_is_text = false;
        continue;
      }
      const std::string kind = std::filesystem::path(file).extension().string();
      const bool text = kind != ".bin" && kind != ".jsonl";
      if (text && previous_is_text && tokenizer_.end_of_text()) {
        source.add(file, TokenData({*tokenizer_.end_of_text()}));
      }
      source.add(file, kind == ".bin" ? token_file(file) : text_tokens(file, kind == ".jsonl"));
      previous_is_text = text;
    }
    return source;
  }

  void add_megatron(TokenSource& source, const std::string& prefix) const {
    MegatronTokens megatron = read_megatron_file(prefix);
    if (megatron.width == TokenWidth::bits16) {
      check_token_file_vocabulary(tokenizer_.vocabulary_size(), prefix + ".bin");
    }
    source.add(
        prefix + ".bin", std::move(megatron.tokens),
        std::make_shared<const std::vector<std::int64_t>>(std::move(megatron.document_starts)));
  }

  TokenData token_file(const std::string& file) const {
    check_token_file_vocabulary(tokenizer_.vocabulary_size(), file);
    return read_token_file(file);
  }

  DocumentFormat json_lines_format() const {
    return {.kind = DocumentFormat::Kind::json_lines, .field = text_field_, .separator = {}};
  }

  TokenData text_tokens(const std::string& file, bool documents) {
    if (checked_encodings_.insert(file).second) warn_about_encoding_of_file(file);
    const std::string read_mode = documents ? "documents under " + text_field_ : "text";
    TokenData tokens = cache_.tokens(file, read_mode, [&](std::string_view text) {
      const std::string hint = "give a text, JSON lines (.jsonl) or tokens (.bin)";
      require(!text.empty(), file + " is empty", hint);
      auto ids = documents ? tokenize_documents(text, file, json_lines_format(), tokenizer_)
                           : tokenize_text(text, file, tokenizer_);
      require(!ids.empty(), file + " has no tokens", hint);
      return ids;
    });
    return tokens;
  }

  const Tokenizer& tokenizer_;
  std::string text_field_;
  TokenCache cache_;
  std::set<std::string> checked_encodings_;  // files: a warning about each is printed once
};

}  // namespace llmc
