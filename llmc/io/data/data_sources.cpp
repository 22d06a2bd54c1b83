#include "llmc/io/data/data_sources.h"

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/io/data/compressed_file.h"
#include "llmc/io/data/input_file.h"
#include "llmc/io/data/megatron_file.h"
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
  return std::filesystem::path(uncompressed_name(file)).extension() == ".bin" ||
         megatron_prefix(file).has_value();
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
    if (is_token_file(file)) {
      source.add(file, token_file(file));
      previous_is_text = false;
      continue;
    }
    const DocumentFormat format = format_of(file);
    const bool is_text = format.kind == DocumentFormat::Kind::text && !format.separator;
    if (is_text && previous_is_text && tokenizer_.end_of_text()) {
      source.add(file, TokenData({*tokenizer_.end_of_text()}));
    }
    source.add(file, text_tokens(file, format));
    previous_is_text = is_text;
  }
  return source;
}

void SourceReader::add_megatron(TokenSource& source, const std::string& prefix) const {
  MegatronTokens megatron = read_megatron_file(prefix);
  if (megatron.type == TokenType::uint16) {
    check_token_file_vocabulary(tokenizer_.vocabulary_size(), prefix + ".bin");
  }
  source.add(
      prefix + ".bin", std::move(megatron.tokens),
      std::make_shared<const std::vector<std::int64_t>>(std::move(megatron.document_starts)));
}

TokenData SourceReader::token_file(const std::string& file) const {
  TokenData tokens = read_token_file(file, options_.bin);
  if (tokens.type() == TokenType::uint16) {
    check_token_file_vocabulary(tokenizer_.vocabulary_size(), file);
  }
  return tokens;
}

DocumentFormat SourceReader::format_of(const std::string& file) const {
  DocumentFormat format = options_.text;
  if (format.kind != DocumentFormat::Kind::by_name) return format;
  const bool is_json = std::filesystem::path(uncompressed_name(file)).extension() == ".jsonl";
  format.kind = is_json ? DocumentFormat::Kind::json_lines : DocumentFormat::Kind::text;
  return format;
}

TokenData SourceReader::text_tokens(const std::string& file, const DocumentFormat& format) {
  const bool is_json = format.kind == DocumentFormat::Kind::json_lines;
  const bool is_first_time = examined_.insert(file).second;
  if (is_first_time) notices_.examine_file(file, format);
  std::string read_mode = is_json            ? "documents under " + format.field
                          : format.separator ? "documents between lines " + *format.separator
                                             : "text";
  const bool skips = is_json && options_.skip_bad_lines;
  if (skips) read_mode += ", without bad lines";
  SkippedLines skipped;
  TokenData tokens = cache_.tokens(
      file, read_mode,
      [&](std::string_view text) {
        const std::string hint = "give a text, JSON lines (.jsonl) or tokens (.bin)";
        require(!text.empty(), file + " is empty", hint);
        if (is_first_time && is_pipe(file)) notices_.examine(text, file, format);
        auto ids = is_json || format.separator ? tokenize_documents(text, file, format, tokenizer_,
                                                                    skips ? &skipped : nullptr)
                                               : tokenize_text(text, file, tokenizer_);
        require(!ids.empty(),
                skipped.count > 0 ? file + " has no tokens: no line is a document"
                                  : file + " has no tokens",
                hint);
        return ids;
      },
      skipped);
  if (is_first_time && skipped.count > 0) {
    if (skipped_.count == 0) first_skipped_ = file + ":" + std::to_string(skipped.first);
    skipped_.count += skipped.count;
  }
  return tokens;
}

void SourceReader::print_notices() {
  notices_.print();
  if (skipped_.count > 0) Notice::warn(skipped_lines_text(skipped_.count, first_skipped_));
  skipped_ = {};
}

}  // namespace llmc
