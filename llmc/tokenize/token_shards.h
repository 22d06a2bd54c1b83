// One stream of tokens in files of a bounded size, written so that an interrupted run can resume.
//
// Up to N tokens are one file, OUT.bin. More tokens are OUT_000000.bin, OUT_000001.bin, ..., each
// of exactly N tokens except the last. A document may continue in the next file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

// Whether `name` (without directory) is a file name that a stream to `output` can use.
bool is_shard_of(const std::filesystem::path& output, std::string_view name);

// The existing files with names that a stream to `output` can use, sorted.
std::vector<std::filesystem::path> existing_shards(const std::filesystem::path& output);

class TokenShards {
 public:
  // `max_tokens`: maximum number of tokens per file. `finished_shards`: the files that an earlier
  // run finished. `on_finish` is called for each file once it is on disk under its name.
  TokenShards(std::filesystem::path output, std::int64_t vocabulary_size, std::int64_t max_tokens,
              std::vector<Shard> finished_shards, std::function<void(const Shard&)> on_finish);

  // Whether this document has tokens that no finished file has. Only such documents must be
  // appended.
  bool needs(std::int64_t document) const { return document >= resume_document_; }

  // Appends the next tokens of a document. Documents come in ascending order of their numbers. A
  // document that is needed must be appended from its first token on: tokens that finished files
  // have are skipped here.
  void append(std::int64_t document, std::span<const std::int32_t> tokens);

  // Ends the stream after the last document; `documents` is the number of all documents.
  void finish(std::int64_t documents);

  const std::vector<Shard>& shards() const { return shards_; }  // finished files
  std::int64_t tokens() const;

 private:
  std::int64_t next_number() const;

  void open() { writer_ = std::make_unique<TokenFileWriter>(output_, vocabulary_size_); }

  void finish_file(const std::filesystem::path& path);

  std::filesystem::path output_;
  std::int64_t vocabulary_size_, max_tokens_;
  std::vector<Shard> shards_;
  std::function<void(const Shard&)> on_finish_;
  std::unique_ptr<TokenFileWriter> writer_;
  std::int64_t document_ = -1, document_tokens_ = 0;  // the document being appended
  std::int64_t resume_document_ = 0, resume_tokens_ = 0;
};

}  // namespace llmc
