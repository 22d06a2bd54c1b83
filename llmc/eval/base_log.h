// A file with the predictions of a base model for a text, so that models can be compared with it
// (comparison.h) without running it again.
//
// The file has a header (BaseLogHeader), then one record per scored token. A record has 20 + 2 V
// bytes, 100 kB with GPT-2's vocabulary:
//
//   int32   the token
//   int32   the most likely token
//   float32 log-probability of the token, exact
//   float32 smallest log-probability
//   float32 largest log-probability
//   uint16  (V) codes; code c is smallest + c (largest - smallest) / 65535
//
// All numbers are little-endian. With a step of s = (largest - smallest) / 65535, a log-probability
// is wrong by at most s / 2 (and the rounding of fp32): 2.3e-4 if the range is 30 nats. A model
// compared with its own log has a difference of the nll of exactly 0, an agreement of exactly 1 and
// a KL of at most s^2 / 8, below 3e-8. The error of another model's KL is at most s / 2 times
// the mean of |ln p - ln q|, the mean being over p.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <type_traits>
#include <vector>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/eval/log_probs.h"
#include "llmc/eval/perplexity.h"

namespace llmc {

static_assert(std::endian::native == std::endian::little, "base logs are little-endian");

// Identifies the predictions: logs of equal content predict the same tokens, each after the same
// context.
struct BaseLogContent {
  std::int64_t vocabulary = 0;  // V
  std::int64_t tokens = 0;      // scored tokens
  std::int64_t T = 0;           // window, tokens
  std::int64_t stride = 0;      // tokens between the starts of windows
  std::uint64_t checksum = 0;   // of the ids of all tokens of the text

  bool operator==(const BaseLogContent&) const = default;
};

BaseLogContent base_log_content(const PerplexityTask& task, std::int64_t vocabulary);

namespace base_log_detail {

inline constexpr std::array<char, 8> kMagic = {'l', 'l', 'm', 'c', 'b', 'a', 's', 'e'};
inline constexpr std::int64_t kVersion = 1;

struct Header {
  std::array<char, 8> magic = kMagic;
  std::int64_t version = kVersion;
  BaseLogContent content;
  std::uint64_t records = 0;  // checksum of all records
};
static_assert(sizeof(Header) == 64 && std::is_trivially_copyable_v<Header>);

// The part of a record before its codes.
struct Record {
  std::int32_t token = 0, likeliest = 0;
  float log_prob = 0, smallest = 0, largest = 0;
};
static_assert(sizeof(Record) == 20);

}  // namespace base_log_detail

class BaseLogWriter {
 public:
  // Reserves the whole file, so that a full disk is detected now. Without commit() no file is left.
  BaseLogWriter(const std::filesystem::path& path, const BaseLogContent& content);

  // Throws if a log-probability is not finite.
  void add(const TokenLogProbs& prediction);

  // Throws unless all tokens were added.
  void commit();

 private:
  AtomicFile file_;
  base_log_detail::Header header_;
  Checksum records_;
  std::int64_t count_ = 0;
  std::vector<std::byte> bytes_;  // of one record
};

// Reads a log, record by record.
class BaseLogReader : public LogProbSource {
 public:
  // Throws unless the file is a complete log of `expected`.
  BaseLogReader(const std::filesystem::path& path, const BaseLogContent& expected);

  std::int64_t vocabulary_size() const override { return header_.content.vocabulary; }

  // Throws at the last record if the records are damaged.
  const TokenLogProbs* next() override;

 private:
  void check_content(const BaseLogContent& expected) const;

  [[noreturn]] void fail_damaged() const {
    fail(path_.string() + " is damaged: its checksum is wrong", "write the log again");
  }

  // Returns false if the file ends before all bytes.
  bool read(std::span<std::byte> bytes) const;

  std::filesystem::path path_;
  FileDescriptor fd_;
  base_log_detail::Header header_;
  Checksum records_;
  std::int64_t count_ = 0;
  std::vector<std::byte> bytes_;  // of one record
  std::vector<float> log_probs_;  // (V)
  TokenLogProbs current_;
};

}  // namespace llmc
