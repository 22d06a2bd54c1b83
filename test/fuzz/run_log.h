// Fuzz target for the log of a run, from which resuming removes the steps after the checkpoint.
#pragma once

#include "llmc/io/run_log.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void run_log(std::string_view input) {
  static const Folder folder;
  const std::string path = folder.write("log.jsonl", input);
  refused(path, [&] { llmc::read_log(path); });
  constexpr std::int64_t kLast = 2;
  const llmc::TrimmedLog trimmed = llmc::trim_log(path, kLast);
  const auto records = llmc::read_log(path);
  expect(std::ssize(records) == trimmed.kept, "what stays can be read");
  for (const llmc::LogRecord& record : records) {
    const llmc::Scalar step = llmc::log_value(record, "step");
    expect(!step.is_number() || step.number("step") <= kLast, "no step after the last stays");
    const auto again = llmc::parse_log_line(llmc::log_line(record), path);
    expect(llmc::log_line(again) == llmc::log_line(record), "a line is read as it was written");
  }
  const llmc::TrimmedLog twice = llmc::trim_log(path, kLast);
  expect(twice.kept == trimmed.kept && twice.dropped + twice.damaged == 0,
         "the second time nothing goes");
}

}  // namespace llmc_fuzz
