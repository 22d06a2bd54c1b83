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

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/unfinished_files.h"
#include "llmc/tokenize/token_shards.h"

namespace llmc {

class TokenizeProgress {
 public:
  // Creates the file if it does not exist. Throws if it cannot be written, and if another process
  // holds its lock.
  explicit TokenizeProgress(const std::filesystem::path& output)
      : path_(output.string() + ".progress") {
    // Between this open and the lock, another process may have finished and removed the file.
    for (bool is_removed = true; is_removed;) {
      fd_ = FileDescriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
      if (!fd_) fail_file("write", path_, errno);
      if (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) fail_file("lock", path_, errno);
        fail("another process is writing " + output.string(),
             "wait until it ends; it has locked " + path_.string());
      }
      struct stat status {};
      if (::fstat(fd_.get(), &status) != 0) fail_file("examine", path_, errno);
      is_removed = status.st_nlink == 0;
    }
    const std::string text = read_file(path_);
    for (std::size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1) {
      lines_.push_back(text.substr(at, end - at));
    }
    truncate(lines_.empty() ? 0 : text.rfind('\n') + 1);
    if (!has_finished_files()) mark_unfinished();
  }

  // Removes the file if it names no finished file, because there is nothing to resume.
  ~TokenizeProgress() {
    if (fd_ && !has_finished_files()) unlink_file();
  }
  TokenizeProgress(const TokenizeProgress&) = delete;
  TokenizeProgress& operator=(const TokenizeProgress&) = delete;

  // Whether there is a finished file to resume after.
  bool has_finished_files() const { return lines_.size() > 1; }

  // The job of the earlier run, as JSON, and the files that it finished for an output. Both throw
  // if the progress file is damaged.
  std::string job() const {
    const auto json = parse_json<OrderedJson>(lines_.front(), line_name(0));
    const OrderedJson* version = json_member(json, "version");
    const OrderedJson* job = json_member(json, "job");
    if (version == nullptr || job == nullptr || *version != 1) {
      fail(path_.string() + " is not a progress file of version 1");
    }
    return job->dump();
  }

  std::vector<Shard> shards(std::int64_t output) const {
    std::vector<Shard> shards;
    for (std::size_t i = 1; i < lines_.size(); ++i) {
      const std::string location = line_name(i);
      const Json json = parse_json(lines_[i], location);
      const auto member = [&](const char* key) -> const Json& {
        const Json* value = json.is_object() ? json_member(json, key) : nullptr;
        if (value == nullptr) fail(location + " has no \"" + key + "\"");
        return *value;
      };
      if (json_size(member("output"), location) != output) continue;
      const std::string file = json_text(member("file"), location);
      if (!is_plain_file_name(file)) fail(location + ": invalid file name " + printable(file));
      shards.push_back({file, json_size(member("tokens"), location),
                        json_text(member("xxh64"), location),
                        json_size(member("document"), location),
                        json_size(member("document_tokens"), location)});
    }
    return shards;
  }

  // Discards the old content and starts a job; `job` is JSON in one line.
  void begin(const std::string& job) {
    mark_unfinished();
    lines_.clear();
    truncate(0);
    append(R"({"format":"llmc tokenize progress","version":1,"job":)" + job + "}");
    sync_directory(parent_of(path_));
  }

  void record(std::int64_t output, const Shard& shard) {
    UnfinishedFiles::finish(path_, [] {});  // from now on there is something to resume
    const OrderedJson json = {
        {"output", output},           {"file", shard.file},
        {"tokens", shard.tokens},     {"xxh64", shard.checksum},
        {"document", shard.document}, {"document_tokens", shard.document_tokens}};
    append(json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
  }

  // Removes the file once the job is complete.
  void remove() {
    if (unlink_file() != 0) fail_file("remove", path_, errno);
    fd_ = FileDescriptor();
  }

  const std::filesystem::path& path() const { return path_; }

 private:
  std::string line_name(std::size_t i) const {
    return path_.string() + ":" + std::to_string(i + 1);
  }

  // A signal that ends the process removes the file, as the destructor does.
  void mark_unfinished() {
    UnfinishedFiles::create(path_, [] { return true; });
  }

  int unlink_file() {
    int result = 0;
    UnfinishedFiles::finish(path_, [&] { result = ::unlink(path_.c_str()); });
    return result;
  }

  void truncate(std::size_t bytes) {
    if (::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) fail_file("write", path_, errno);
  }

  void append(std::string line) {
    lines_.push_back(line);
    line += '\n';
    write_all(fd_, std::as_bytes(std::span(line)), path_);
    sync_file(fd_, path_);
  }

  std::filesystem::path path_;
  FileDescriptor fd_;
  std::vector<std::string> lines_;  // complete lines only
};

}  // namespace llmc
