#include "llmc/tokenize/token_shards.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <system_error>
#include <utility>

#include "llmc/base/checksum.h"
#include "llmc/base/file.h"

namespace llmc {

namespace {

// "DIR/OUT.bin", number 3: "DIR/OUT_000003.bin".
std::filesystem::path shard_path(const std::filesystem::path& output, std::int64_t number) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "_%06lld", static_cast<long long>(number));
  return parent_of(output) / (output.stem().string() + digits + output.extension().string());
}

}  // namespace

bool is_shard_of(const std::filesystem::path& output, std::string_view name) {
  if (name == output.filename().string()) return true;
  const std::string begin = output.stem().string() + "_", end = output.extension().string();
  if (name.size() < begin.size() + 6 + end.size()) return false;
  if (!name.starts_with(begin) || !name.ends_with(end)) return false;
  name.remove_prefix(begin.size());
  name.remove_suffix(end.size());
  return name.find_first_not_of("0123456789") == name.npos;
}

std::vector<std::filesystem::path> existing_shards(const std::filesystem::path& output) {
  std::vector<std::filesystem::path> shards;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(parent_of(output), ignored)) {
    if (is_shard_of(output, entry.path().filename().string())) shards.push_back(entry.path());
  }
  std::sort(shards.begin(), shards.end());
  return shards;
}

TokenShards::TokenShards(std::filesystem::path output, std::int64_t vocabulary_size,
                         std::int64_t max_tokens, std::vector<Shard> finished_shards,
                         std::function<void(const Shard&)> on_finish)
    : output_(std::move(output)),
      vocabulary_size_(vocabulary_size),
      max_tokens_(max_tokens),
      shards_(std::move(finished_shards)),
      on_finish_(std::move(on_finish)) {
  if (shards_.empty()) return;
  resume_document_ = shards_.back().document;
  resume_tokens_ = shards_.back().document_tokens;
}

void TokenShards::append(std::int64_t document, std::span<const std::int32_t> tokens) {
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

void TokenShards::finish(std::int64_t documents) {
  document_ = documents;
  document_tokens_ = 0;
  if (writer_) finish_file(shards_.empty() ? output_ : shard_path(output_, next_number()));
}

std::int64_t TokenShards::tokens() const {
  std::int64_t sum = writer_ ? writer_->num_written() : 0;
  for (const Shard& shard : shards_) sum += shard.tokens;
  return sum;
}

std::int64_t TokenShards::next_number() const {
  return std::ssize(shards_);
}

void TokenShards::finish_file(const std::filesystem::path& path) {
  writer_->rename(path);
  writer_->finish();
  shards_.push_back({path.filename().string(), writer_->num_written(),
                     checksum_text(checksum_of_file(path)), document_, document_tokens_});
  writer_.reset();
  on_finish_(shards_.back());
}

}  // namespace llmc
