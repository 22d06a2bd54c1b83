#include "llmc/eval/base_log.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <string>

namespace llmc {

BaseLogContent base_log_content(const PerplexityTask& task, std::int64_t vocabulary) {
  Checksum sum;
  sum.add(std::as_bytes(task.tokens()));
  return {vocabulary, task.examples(), task.window(), task.stride(), sum.value()};
}

namespace base_log_detail {

namespace {

std::int64_t record_bytes(std::int64_t vocabulary) {
  return static_cast<std::int64_t>(sizeof(Record)) + 2 * vocabulary;
}

std::int64_t file_bytes(const BaseLogContent& content) {
  return static_cast<std::int64_t>(sizeof(Header)) +
         content.tokens * record_bytes(content.vocabulary);
}

double step(const Record& record) {
  return (static_cast<double>(record.largest) - static_cast<double>(record.smallest)) / 65535;
}

}  // namespace

}  // namespace base_log_detail

BaseLogWriter::BaseLogWriter(const std::filesystem::path& path, const BaseLogContent& content)
    : file_(path), header_{.content = content} {
  file_.reserve(base_log_detail::file_bytes(content));
  file_.write(std::as_bytes(std::span(&header_, 1)));
}

void BaseLogWriter::add(const TokenLogProbs& prediction) {
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

void BaseLogWriter::commit() {
  require(count_ == header_.content.tokens, "the log has " + std::to_string(count_) + " of " +
                                                std::to_string(header_.content.tokens) + " tokens");
  header_.records = records_.value();
  file_.rewrite_start(std::as_bytes(std::span(&header_, 1)));
  file_.commit();
}

BaseLogReader::BaseLogReader(const std::filesystem::path& path, const BaseLogContent& expected)
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

const TokenLogProbs* BaseLogReader::next() {
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

void BaseLogReader::check_content(const BaseLogContent& expected) const {
  const BaseLogContent& content = header_.content;
  const auto check = [&](std::int64_t found_value, std::int64_t value, const char* name) {
    if (found_value == value) return;
    fail(path_.string() + " is a log with " + name + " " + std::to_string(found_value) + ", not " +
             std::to_string(value),
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

bool BaseLogReader::read(std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const std::size_t n = read_some(fd_, bytes, path_);
    if (n == 0) return false;
    bytes = bytes.subspan(n);
  }
  return true;
}

}  // namespace llmc
