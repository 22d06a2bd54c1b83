// A file of fixed size for values that only this process needs: it has no name, or loses it as soon
// as it is open, so a killed process leaves nothing. Its space is reserved at the start. Transfers
// bypass the page cache (O_DIRECT) where the file system supports that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "llmc/base/file.h"

namespace llmc {

class ScratchFile {
 public:
  // Offsets and sizes of transfers are multiples of this, and so are the addresses of their memory.
  static constexpr std::int64_t kAlignment = 4096;

  // How a file goes away that could not be created without a name. Tests choose `at_end`, which is
  // for file systems where an open file cannot be unlinked.
  enum class Removal { automatic, at_end };

  // Reserves `bytes` bytes, which are zeros, in a directory, which is created if it does not exist.
  // Files that a killed process has left there are removed. Throws an Error that names the
  // directory if there is no room.
  ScratchFile(const std::filesystem::path& directory, std::int64_t bytes,
              Removal removal = Removal::automatic);
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile();

  // Whether transfers bypass the page cache.
  bool is_direct() const { return is_direct_; }

  // Transfer all bytes of the span from or to the file. Any number of threads may call these;
  // ranges that are written must not overlap others in use.
  void read(std::int64_t offset, std::span<std::byte> bytes) const;
  void write(std::int64_t offset, std::span<const std::byte> bytes) const;

 private:
  void create();
  bool create_nameless();
  void create_named();
  void reserve(std::int64_t bytes);
  [[noreturn]] void fail_transfer(const char* verb, std::int64_t offset, int error) const;

  std::filesystem::path directory_, name_;  // name_: empty unless the file has a name
  Removal removal_;
  FileDescriptor fd_;
  bool is_direct_ = true;
};

}  // namespace llmc
