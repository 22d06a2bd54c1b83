// A file of fixed size for values that only this process needs, such as offloaded training state.
// It has no name, or loses it as soon as it is open, so a killed process leaves nothing. Its space
// is reserved at the start. Transfers bypass the page cache (O_DIRECT) if the file system supports
// that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "llmc/base/aligned_buffer.h"
#include "llmc/base/file.h"

namespace llmc {

class ScratchFile {
 public:
  // Offsets and sizes of transfers are multiples of this, and so are the addresses of their memory.
  static constexpr std::int64_t kAlignment = AlignedBuffer::kAlignment;

  // How the file disappears. `automatic`: without a name from the start, else unlinked while it is
  // open, else `at_end`. `at_end`: unlinked by the destructor or a stop signal, for file systems
  // that cannot unlink an open file. A killed process then leaves the file, which the next
  // ScratchFile in this directory removes. Only tests choose `at_end`.
  enum class Removal { automatic, at_end };

  // Reserves `bytes` bytes, rounded up to kAlignment, whose values are 0. Creates the directory if
  // it does not exist. Throws an Error that names the directory, the bytes needed and the bytes
  // free if there is no room.
  //
  // A file system without fallocate is filled with zeros instead. One that compresses zeros or
  // copies on write can still be full later.
  ScratchFile(const std::filesystem::path& directory, std::int64_t bytes,
              Removal removal = Removal::automatic);
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile();

  std::int64_t size() const { return size_; }

  // Whether transfers bypass the page cache. False in a tmpfs, which is itself in the page cache.
  bool is_direct() const { return is_direct_; }

  // One line for a user whose file is not direct; empty if it is.
  std::string notice() const;

  // Transfer all bytes of the span from or to the file. Any number of threads may call these. The
  // values are undefined where a write and another transfer overlap at the same time.
  void read(std::int64_t offset, std::span<std::byte> bytes) const;
  void write(std::int64_t offset, std::span<const std::byte> bytes) const;

  // Throws unless the file has these bytes and the transfer is aligned.
  void check_transfer(std::int64_t offset, std::span<const std::byte> bytes) const;

 private:
  void create(Removal removal);
  void create_named(Removal removal);
  void remove_name() noexcept;
  void reserve();
  int fill_with_zeros() const;
  void use_direct_transfers();

  // Positions at which a transfer can begin are multiples of this.
  std::int64_t unit() const { return is_direct_ ? kAlignment : 1; }

  // These return 0 or the system's error, and set `position` to where it occurred.
  int try_read(std::int64_t& position, std::span<std::byte> bytes) const;
  int try_write(std::int64_t& position, std::span<const std::byte> bytes) const;

  [[noreturn]] void fail_reservation(int error) const;
  [[noreturn]] void fail_transfer(const char* verb, std::int64_t position, int error) const;

  std::filesystem::path directory_, path_;  // path_: empty unless the file has a name
  std::int64_t size_;
  FileDescriptor fd_;
  bool is_direct_ = false;
};

}  // namespace llmc
