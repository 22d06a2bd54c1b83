// Functions that all fuzz targets share. A target is a function of any bytes. It passes them to a
// reader, which may reject them with an `Error`; any other failure is a fault. A target that
// detects a fault throws another exception. An exception that leaves the target stops the fuzzer,
// which reports the input.
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"

namespace llmc_fuzz {

// Throws unless `condition` is true; `property` names what must be true of every input.
inline void expect(bool condition, const std::string& property) {
  if (!condition) throw std::logic_error("violated property: " + property);
}

// Returns the message of the Error with which `read` rejects its input, or "" if it accepts it. The
// message must contain `place` (the file, or its stand-in).
template <class Read>
std::string error_message(const std::string& place, Read&& read) {
  try {
    read();
    return {};
  } catch (const llmc::Error& error) {
    const std::string text = error.what();
    expect(text.find(place) != text.npos, "the error names " + place + ": " + text);
    return text;
  }
}

// The same for input from files: the message must also be short and safe to print on a terminal.
// Returns whether `read` rejected its input.
template <class Read>
bool is_rejected(const std::string& place, Read&& read) {
  const std::string text = error_message(place, read);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    expect((byte >= 0x20 && byte != 0x7f) || byte == '\n',
           "the error has no control characters: " + text);
  }
  expect(text.size() < 4000, "the error is short: " + text);
  return !text.empty();
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Removes the first `bytes` bytes from the input and returns them, padded with zeros if it has
// fewer.
inline std::string take(std::string_view& input, std::size_t bytes) {
  std::string result(input.substr(0, bytes));
  input.remove_prefix(result.size());
  result.resize(bytes);
  return result;
}

// Removes one byte from the input and maps it to 0 .. choices - 1, for settings outside the file.
inline std::size_t take_choice(std::string_view& input, std::size_t choices) {
  return static_cast<unsigned char>(take(input, 1)[0]) % choices;
}

// Splits the input into `count` files at lines "---". Missing files are empty.
inline std::vector<std::string_view> parts(std::string_view input, std::size_t count) {
  constexpr std::string_view kEnd = "\n---\n";
  std::vector<std::string_view> result;
  while (result.size() + 1 < count) {
    const std::size_t end = std::min(input.find(kEnd), input.size());
    result.push_back(input.substr(0, end));
    input.remove_prefix(std::min(end + kEnd.size(), input.size()));
  }
  result.push_back(input);
  return result;
}

// A temporary folder, in memory if possible, for readers that expect file names.
class Folder {
 public:
  Folder() {
    namespace fs = std::filesystem;
    std::error_code ignored;
    const fs::path memory = "/dev/shm";
    const fs::path parent = fs::is_directory(memory, ignored) ? memory : fs::temp_directory_path();
    std::string name = (parent / "llmc-fuzz-XXXXXX").string();
    llmc::require(mkdtemp(name.data()) != nullptr, "cannot create a temporary folder: " + name);
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  // Writes these bytes to the file and returns its path.
  std::string write(const std::string& name, std::string_view bytes) const {
    const std::string path = file(name);
    const llmc::FileDescriptor fd(
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!fd) llmc::fail_file("write", path, errno);
    llmc::write_all(fd, bytes_of(bytes), path);
    return path;
  }
  void remove(const std::string& name) const { ::unlink(file(name).c_str()); }

  std::string file(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace llmc_fuzz
