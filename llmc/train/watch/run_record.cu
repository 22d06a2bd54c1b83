#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/io/data/batches.h"
#include "llmc/io/data/token_source.h"
#include "llmc/io/tokenizer/tokenizer_interface.h"
#include "llmc/train/watch/rank_log.h"
#include "llmc/train/watch/run_record.h"

namespace llmc {

namespace {

constexpr std::int64_t kMaxCountedTokens = std::int64_t{1} << 22;

// The number of bytes that each token stands for; 0 for end-of-text and for tokens without text.
std::vector<std::int64_t> bytes_of_tokens(const Tokenizer& tokenizer) {
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(tokenizer.vocabulary_size()));
  for (std::size_t id = 0; id < bytes.size(); ++id) {
    const auto token = static_cast<std::int32_t>(id);
    if (token == tokenizer.end_of_text()) continue;
    try {
      bytes[id] = std::ssize(tokenizer.decode(std::span(&token, 1)));
    } catch (const Error&) {  // no text: 0 bytes
    }
  }
  return bytes;
}

// Mean number of bytes per token of a text, from at most the first 4 Mi tokens of each source.
// Empty if the tokens have no text. A loss in nats per token, divided by this number and by ln 2,
// is in bits per byte, which can be compared between tokenizers.
std::optional<double> bytes_per_token(const Windows& text, const Tokenizer& tokenizer) {
  if (!tokenizer.has_text()) return std::nullopt;
  const std::vector<std::int64_t> bytes = bytes_of_tokens(tokenizer);
  std::int64_t num_tokens = 0, num_bytes = 0;
  for (const TokenSource& source : text.sources()) {
    std::vector<std::int32_t> tokens(
        static_cast<std::size_t>(std::min(source.size(), kMaxCountedTokens)));
    source.copy(0, std::ssize(tokens), tokens.data());
    num_tokens += std::ssize(tokens);
    for (const std::int32_t token : tokens) num_bytes += bytes[static_cast<std::size_t>(token)];
  }
  if (num_tokens == 0 || num_bytes == 0) return std::nullopt;
  return static_cast<double>(num_bytes) / static_cast<double>(num_tokens);
}

}  // namespace

LogRecord run_record(const RunPosition& position, const RunData& data,
                     const std::optional<RecordedRun>& resumed,
                     const std::vector<std::int64_t>& planned_memory) {
  LogRecord record = {{"step", position.step}, {"run", resumed ? "resumed" : "started"}};
  if (resumed) record.emplace_back("checkpoint", resumed->checkpoint.string());
  record.emplace_back("tokenizer_xxh64", position.vocabulary);
  if (data.validation) {
    const auto ratio = bytes_per_token(data.validation->windows_by_source(), *data.tokenizer);
    if (ratio) record.emplace_back("bytes_per_token", *ratio);
  }
  record.emplace_back("planned_mem_mb_ranks",
                      mebibytes_of_ranks({planned_memory.begin(), planned_memory.end()}));
  for (const auto& [flag, value] : position.flags) record.emplace_back(flag, value);
  return record;
}

}  // namespace llmc
