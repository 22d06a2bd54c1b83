// Fuzz target for the log of a run, from which resuming removes the steps after the checkpoint.
#pragma once

#include "llmc/io/run_log.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void run_log(std::string_view input) {
  static const Folder folder;
  const std::string path = folder.write("log.jsonl", input);
  is_rejected(path, [&] { llmc::read_log(path); });
  constexpr std::int64_t kLast = 2;
  const llmc::LogTrimResult first = llmc::trim_log(path, kLast);
  const auto records = llmc::read_log(path);
  expect(std::ssize(records) == first.num_kept, "the kept lines can be read");
  for (const llmc::LogRecord& record : records) {
    const llmc::Scalar step = llmc::log_value(record, "step");
    expect(!step.is_number() || step.number("step") <= kLast,
           "no kept line has a step after the last one");
    const auto reparsed = llmc::parse_log_line(llmc::log_line(record), path);
    expect(llmc::log_line(reparsed) == llmc::log_line(record),
           "reading a line and writing it again changes nothing");
  }
  const llmc::LogTrimResult second = llmc::trim_log(path, kLast);
  expect(second.num_kept == first.num_kept && second.num_dropped + second.num_damaged == 0,
         "a second call removes nothing");
}

}  // namespace llmc_fuzz
