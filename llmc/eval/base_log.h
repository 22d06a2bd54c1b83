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

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
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

inline BaseLogContent base_log_content(const PerplexityTask& task, std::int64_t vocabulary) {
  Checksum sum;
  sum.add(std::as_bytes(task.tokens()));
  return {vocabulary, task.examples(), task.window(), task.stride(), sum.value()};
}

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

inline std::int64_t record_bytes(std::int64_t vocabulary) {
  return static_cast<std::int64_t>(sizeof(Record)) + 2 * vocabulary;
}

inline std::int64_t file_bytes(const BaseLogContent& content) {
  return static_cast<std::int64_t>(sizeof(Header)) +
         content.tokens * record_bytes(content.vocabulary);
}

inline double step(const Record& record) {
  return (static_cast<double>(record.largest) - static_cast<double>(record.smallest)) / 65535;
}

}  // namespace base_log_detail

class BaseLogWriter {
 public:
  // Reserves the whole file, so that a full disk is detected now. Without commit() no file is left.
  BaseLogWriter(const std::filesystem::path& path, const BaseLogContent& content)
      : file_(path), header_{.content = content} {
    file_.reserve(base_log_detail::file_bytes(content));
    file_.write(std::as_bytes(std::span(&header_, 1)));
  }

  // Throws if a log-probability is not finite.
  void add(const TokenLogProbs& prediction) {
    using base_log_detail::Record;
    const std::span<const float> values = prediction.log_probs;
    require(std::ssize(values) == header_.content.vocabulary,
            "a prediction of another vocabulary does not fit the log");
    const bool is_finite =
        std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
    if (!is_finite) fail("the base model's log-probabilities are not finite");
    const auto [smallest, largest] = std::minmax_element(values.begin(), values.end());
    const Record record{prediction.token, prediction.likeliest, prediction.log_prob, *smallest,
                        *largest};
    const double step = base_log_detail::step(record), scale = step > 0 ? 1 / step : 0;
    bytes_.resize(static_cast<std::size_t>(base_log_detail::record_bytes(std::ssize(values))));
    std::memcpy(bytes_.data(), &record, sizeof record);
    for (std::size_t v = 0; v < values.size(); ++v) {
      const double code = (static_cast<double>(values[v]) - static_cast<double>(*smallest)) * scale;
      const auto rounded = static_cast<std::uint16_t>(std::min(65535.0, std::floor(code + 0.5)));
      std::memcpy(bytes_.data() + sizeof record + 2 * v, &rounded, 2);
    }
    file_.write(bytes_);
    records_.add(bytes_);
    ++count_;
  }

  // Throws unless all tokens were added.
  void commit() {
    require(count_ == header_.content.tokens, "the log has " + std::to_string(count_) + " of " +
                                                  std::to_string(header_.content.tokens) +
                                                  " tokens");
    header_.records = records_.value();
    file_.rewrite_start(std::as_bytes(std::span(&header_, 1)));
    file_.commit();
  }

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
  BaseLogReader(const std::filesystem::path& path, const BaseLogContent& expected)
      : path_(path), fd_(open_for_reading(path)) {
    const bool has_header = read(std::as_writable_bytes(std::span(&header_, 1)));
    if (!has_header || header_.magic != base_log_detail::kMagic) {
      fail(path.string() + " is not a log of a base model");
    }
    if (header_.version != base_log_detail::kVersion) {
      fail(path.string() + " has version " + std::to_string(header_.version) +
               " of the format; this program reads version " +
               std::to_string(base_log_detail::kVersion),
           "write the log again");
    }
    check_content(expected);
    const auto size = static_cast<std::int64_t>(status_of(fd_, path).st_size);
    const std::int64_t complete = base_log_detail::file_bytes(expected);
    if (size != complete) {
      fail(path.string() + " has " + std::to_string(size) + " bytes instead of " +
               std::to_string(complete),
           "the file is incomplete or damaged: write the log again");
    }
  }

  std::int64_t vocabulary_size() const override { return header_.content.vocabulary; }

  // Throws at the last record if the records are damaged.
  const TokenLogProbs* next() override {
    if (count_ == header_.content.tokens) return nullptr;
    const auto V = static_cast<std::size_t>(vocabulary_size());
    base_log_detail::Record record;
    bytes_.resize(static_cast<std::size_t>(base_log_detail::record_bytes(vocabulary_size())));
    if (!read(bytes_)) fail_damaged();
    records_.add(bytes_);
    if (++count_ == header_.content.tokens && records_.value() != header_.records) fail_damaged();
    std::memcpy(&record, bytes_.data(), sizeof record);
    const double step = base_log_detail::step(record);
    log_probs_.resize(V);
    for (std::size_t v = 0; v < V; ++v) {
      std::uint16_t code;
      std::memcpy(&code, bytes_.data() + sizeof record + 2 * v, 2);
      log_probs_[v] = static_cast<float>(static_cast<double>(record.smallest) + code * step);
    }
    current_ = {record.token, record.likeliest, record.log_prob, log_probs_};
    return &current_;
  }

 private:
  void check_content(const BaseLogContent& expected) const {
    const BaseLogContent& content = header_.content;
    const auto check = [&](std::int64_t found_value, std::int64_t value, const char* name) {
      if (found_value == value) return;
      fail(path_.string() + " is a log with " + name + " " + std::to_string(found_value) +
               ", not " + std::to_string(value),
           "use the text, tokenizer, window and stride of the log");
    };
    check(content.vocabulary, expected.vocabulary, "a vocabulary of");
    check(content.T, expected.T, "windows of");
    check(content.stride, expected.stride, "a stride of");
    check(content.tokens, expected.tokens, "a number of tokens of");
    if (content.checksum != expected.checksum) {
      fail(path_.string() + " is a log of another text, or of another tokenizer",
           "use the text and the tokenizer of the log");
    }
  }

  [[noreturn]] void fail_damaged() const {
    fail(path_.string() + " is damaged: its checksum is wrong", "write the log again");
  }

  // Returns false if the file ends before all bytes.
  bool read(std::span<std::byte> bytes) const {
    while (!bytes.empty()) {
      const std::size_t n = read_some(fd_, bytes, path_);
      if (n == 0) return false;
      bytes = bytes.subspan(n);
    }
    return true;
  }

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
