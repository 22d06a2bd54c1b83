// One stream of tokens in files of a bounded size, written so that an interrupted run can resume.
//
// Up to N tokens are one file, OUT.bin. More tokens are OUT_000000.bin, OUT_000001.bin, ..., each
// of exactly N tokens except the last. A document may continue in the next file.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/io/data/token_file.h"

namespace llmc {

// A finished file of a stream, and the position of the stream at its end.
struct Shard {
  std::string file;  // name without directory
  std::int64_t tokens = 0;
  std::string checksum;              // xxHash64 of the file, as checksum_text returns it
  std::int64_t document = 0;         // first document that this and earlier files do not complete
  std::int64_t document_tokens = 0;  // number of its tokens in these files
};

// "DIR/OUT.bin", number 3: "DIR/OUT_000003.bin".
inline std::filesystem::path shard_path(const std::filesystem::path& output, std::int64_t number) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "_%06lld", static_cast<long long>(number));
  return parent_of(output) / (output.stem().string() + digits + output.extension().string());
}

// Whether `name` (without directory) is a file name that a stream to `output` can use.
inline bool is_shard_of(const std::filesystem::path& output, std::string_view name) {
  if (name == output.filename().string()) return true;
  const std::string begin = output.stem().string() + "_", end = output.extension().string();
  if (name.size() < begin.size() + 6 + end.size()) return false;
  if (!name.starts_with(begin) || !name.ends_with(end)) return false;
  name.remove_prefix(begin.size());
  name.remove_suffix(end.size());
  return name.find_first_not_of("0123456789") == name.npos;
}

// The existing files with names that a stream to `output` can use, sorted.
inline std::vector<std::filesystem::path> existing_shards(const std::filesystem::path& output) {
  std::vector<std::filesystem::path> shards;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(parent_of(output), ignored)) {
    if (is_shard_of(output, entry.path().filename().string())) shards.push_back(entry.path());
  }
  std::sort(shards.begin(), shards.end());
  return shards;
}

class TokenShards {
 public:
  // `max_tokens`: maximum number of tokens per file. `finished_shards`: the files that an earlier
  // run finished. `on_finish` is called for each file once it is on disk under its name.
  TokenShards(std::filesystem::path output, std::int64_t vocabulary_size, std::int64_t max_tokens,
              std::vector<Shard> finished_shards, std::function<void(const Shard&)> on_finish)
      : output_(std::move(output)),
        vocabulary_size_(vocabulary_size),
        max_tokens_(max_tokens),
        shards_(std::move(finished_shards)),
        on_finish_(std::move(on_finish)) {
    if (shards_.empty()) return;
    resume_document_ = shards_.back().document;
    resume_tokens_ = shards_.back().document_tokens;
  }

  // Whether this document has tokens that no finished file has. Only such documents must be
  // appended.
  bool needs(std::int64_t document) const { return document >= resume_document_; }

  // Appends the next tokens of a document. Documents come in ascending order of their numbers. A
  // document that is needed must be appended from its first token on: tokens that finished files
  // have are skipped here.
  void append(std::int64_t document, std::span<const std::int32_t> tokens) {
    if (document != document_) {
      document_ = document;
      document_tokens_ = 0;
    }
    if (document == resume_document_ && document_tokens_ < resume_tokens_) {
      const auto num_known = std::min(std::ssize(tokens), resume_tokens_ - document_tokens_);
      document_tokens_ += num_known;
      tokens = tokens.subspan(static_cast<std::size_t>(num_known));
    }
    while (!tokens.empty()) {
      if (writer_ && writer_->num_written() == max_tokens_)
        finish_file(shard_path(output_, next_number()));
      if (!writer_) open();
      const auto n = std::min(std::ssize(tokens), max_tokens_ - writer_->num_written());
      writer_->append(tokens.first(static_cast<std::size_t>(n)));
      document_tokens_ += n;
      tokens = tokens.subspan(static_cast<std::size_t>(n));
    }
  }

  // Ends the stream after the last document; `documents` is the number of all documents.
  void finish(std::int64_t documents) {
    document_ = documents;
    document_tokens_ = 0;
    if (writer_) finish_file(shards_.empty() ? output_ : shard_path(output_, next_number()));
  }

  const std::vector<Shard>& shards() const { return shards_; }  // finished files
  std::int64_t tokens() const {
    std::int64_t sum = writer_ ? writer_->num_written() : 0;
    for (const Shard& shard : shards_) sum += shard.tokens;
    return sum;
  }

 private:
  std::int64_t next_number() const { return std::ssize(shards_); }

  void open() { writer_ = std::make_unique<TokenFileWriter>(output_, vocabulary_size_); }

  void finish_file(const std::filesystem::path& path) {
    writer_->rename(path);
    writer_->finish();
    shards_.push_back({path.filename().string(), writer_->num_written(),
                       checksum_text(checksum_of_file(path)), document_, document_tokens_});
    writer_.reset();
    on_finish_(shards_.back());
  }

  std::filesystem::path output_;
  std::int64_t vocabulary_size_, max_tokens_;
  std::vector<Shard> shards_;
  std::function<void(const Shard&)> on_finish_;
  std::unique_ptr<TokenFileWriter> writer_;
  std::int64_t document_ = -1, document_tokens_ = 0;  // the document being appended
  std::int64_t resume_document_ = 0, resume_tokens_ = 0;
};

}  // namespace llmc
