// The progress of a run of `tokenize`, so that another run can resume it: OUT.bin.progress, JSON
// lines. The first line describes the job; each further line names a finished file.
//
//     {"format":"llmc tokenize progress","version":1,"job":{...}}
//     {"output":0,"file":"OUT_000000.bin","tokens":100000000,"xxh64":"...","document":812,
//      "document_tokens":13}
//
// A line is on disk before the run continues; an incomplete last line is removed. A process that
// writes the file holds a lock on it, which ends with the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/tokenize/token_shards.h"

namespace llmc {

class TokenizeProgress {
 public:
  // Creates the file if it does not exist. Throws if it cannot be written, and if another process
  // holds its lock.
  explicit TokenizeProgress(const std::filesystem::path& output);

  // Removes the file if it names no finished file, because there is nothing to resume. A run that
  // is ended by a signal leaves it: a file may be finished that it does not name yet.
  ~TokenizeProgress() {
    if (fd_ && !has_finished_files()) unlink_file();
  }
  TokenizeProgress(const TokenizeProgress&) = delete;
  TokenizeProgress& operator=(const TokenizeProgress&) = delete;

  // Whether no earlier run has left the file.
  bool is_new() const { return lines_.empty(); }
  // Whether there is a finished file to resume after.
  bool has_finished_files() const { return lines_.size() > 1; }
  // Whether an earlier run of this job ended before it could record a file: results are its own.
  bool begins(const std::string& job) const { return lines_.size() == 1 && this->job() == job; }

  // The job of the earlier run, as JSON, and the files that it finished for an output. Both throw
  // if the progress file is damaged.
  std::string job() const;

  std::vector<Shard> shards(std::int64_t output) const;

  // Discards the old content and starts a job; `job` is JSON in one line.
  void begin(const std::string& job);

  void record(std::int64_t output, const Shard& shard);

  // Removes the file once the job is complete.
  void remove();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::string line_name(std::size_t i) const {
    return path_.string() + ":" + std::to_string(i + 1);
  }

  // Until begin(), a signal that ends the process removes the file, as the destructor does.
  void mark_unfinished();

  int unlink_file();

  void truncate(std::size_t bytes);

  void append(std::string line);

  std::filesystem::path path_;
  FileDescriptor fd_;
  std::vector<std::string> lines_;  // complete lines only
};

}  // namespace llmc
