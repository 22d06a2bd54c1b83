#include "llmc/tokenize/tokenize_progress.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <span>

#include "llmc/base/error.h"
#include "llmc/base/json.h"
#include "llmc/base/unfinished_files.h"

namespace llmc {

TokenizeProgress::TokenizeProgress(const std::filesystem::path& output)
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
  if (lines_.empty()) mark_unfinished();
}

std::string TokenizeProgress::job() const {
  const auto json = parse_json(lines_.front(), line_name(0), KeyOrder::as_written);
  const Json* version = json_member(json, "version");
  const Json* job = json_member(json, "job");
  if (version == nullptr || job == nullptr || *version != 1) {
    fail(path_.string() + " is not a progress file of version 1");
  }
  return job->dump();
}

std::vector<Shard> TokenizeProgress::shards(std::int64_t output) const {
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
                      json_text(member("xxh64"), location), json_size(member("document"), location),
                      json_size(member("document_tokens"), location)});
  }
  return shards;
}

void TokenizeProgress::begin(const std::string& job) {
  UnfinishedFiles::finish(path_, [] {});
  lines_.clear();
  truncate(0);
  append(R"({"format":"llmc tokenize progress","version":1,"job":)" + job + "}");
  sync_directory(parent_of(path_));
}

void TokenizeProgress::record(std::int64_t output, const Shard& shard) {
  const Json json = {{"output", output},           {"file", shard.file},
                     {"tokens", shard.tokens},     {"xxh64", shard.checksum},
                     {"document", shard.document}, {"document_tokens", shard.document_tokens}};
  append(json.dump());
}

void TokenizeProgress::remove() {
  if (unlink_file() != 0) fail_file("remove", path_, errno);
  fd_ = FileDescriptor();
}

void TokenizeProgress::mark_unfinished() {
  UnfinishedFiles::create(path_, [] { return true; });
}

int TokenizeProgress::unlink_file() {
  int result = 0;
  UnfinishedFiles::finish(path_, [&] { result = ::unlink(path_.c_str()); });
  return result;
}

void TokenizeProgress::truncate(std::size_t bytes) {
  if (::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) fail_file("write", path_, errno);
}

void TokenizeProgress::append(std::string line) {
  lines_.push_back(line);
  line += '\n';
  write_all(fd_, std::as_bytes(std::span(line)), path_);
  sync_file(fd_, path_);
}

}  // namespace llmc
