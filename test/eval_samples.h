// Helpers of the tests of evaluation files: a file with a text, and checks of rows, metrics and
// messages.
#pragma once

#include <doctest/doctest.h>

#include <limits>
#include <span>
#include <string>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/eval/task.h"
#include "llmc/io/tokenizer/byte_tokenizer.h"
#include "test/support.h"

namespace llmc_test {

// A file with the given text in its own directory.
class Sample {
 public:
  explicit Sample(const std::string& text) { llmc::write_file(folder_.path() / "data", text); }
  std::string path() const { return folder_.file("data"); }

 private:
  TemporaryDirectory folder_;
};

inline std::string text_of(const llmc::EvalRow& row) {
  return llmc::ByteTokenizer().decode(row.tokens);
}

inline std::string scored_text_of(const llmc::EvalRow& row) {
  return llmc::ByteTokenizer().decode(std::span(row.tokens).last(row.num_scored));
}

inline double metric(const std::vector<llmc::EvalMetric>& metrics, const std::string& name) {
  for (const llmc::EvalMetric& metric : metrics) {
    if (metric.name == name) return metric.value;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

inline void check_message(const std::string& message, const std::vector<std::string>& phrases) {
  for (const std::string& phrase : phrases) CHECK_MESSAGE(contains(message, phrase), message);
}

}  // namespace llmc_test
