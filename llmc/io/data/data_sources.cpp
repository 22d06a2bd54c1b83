#include "llmc/io/data/data_sources.h"

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "llmc/base/error.h"
#include "llmc/io/data/megatron_file.h"
#include "llmc/io/data/text_encoding.h"
#include "llmc/io/data/tokenize_text.h"

namespace llmc {

namespace {

// Returns the common prefix of Megatron's X.bin and X.idx if `file` names one of them or X, else
// nothing.
std::optional<std::string> megatron_prefix(const std::string& file) {
  using source_list_detail::exists;
  const std::filesystem::path path(file);
  const bool has_extension = path.extension() == ".bin" || path.extension() == ".idx";
  const std::string prefix = has_extension ? file.substr(0, file.size() - 4) : file;
  if (path.extension() == ".idx") return prefix;
  if (exists(prefix + ".idx") && (has_extension || !exists(file))) return prefix;
  return std::nullopt;
}

}  // namespace

bool is_token_file(const std::string& file) {
  return std::filesystem::path(file).extension() == ".bin" || megatron_prefix(file).has_value();
}

std::vector<TokenSource> SourceReader::read(const SourceList& list, const std::string& flag) {
  std::vector<TokenSource> sources;
  for (const std::string& name : list.names) {
    sources.push_back(read_source(name, flag));
    sources.back().check_ends(kCheckedTokens);
  }
  return sources;
}

TokenSource SourceReader::read_source(const std::string& name, const std::string& flag) {
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

void SourceReader::add_megatron(TokenSource& source, const std::string& prefix) const {
  MegatronTokens megatron = read_megatron_file(prefix);
  if (megatron.width == TokenWidth::bits16) {
    check_token_file_vocabulary(tokenizer_.vocabulary_size(), prefix + ".bin");
  }
  source.add(
      prefix + ".bin", std::move(megatron.tokens),
      std::make_shared<const std::vector<std::int64_t>>(std::move(megatron.document_starts)));
}

TokenData SourceReader::token_file(const std::string& file) const {
  check_token_file_vocabulary(tokenizer_.vocabulary_size(), file);
  return read_token_file(file);
}

TokenData SourceReader::text_tokens(const std::string& file, bool documents) {
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

}  // namespace llmc
