// A store in a scratch file of a directory. Bytes pass through pinned host memory in pieces:
// several threads transfer pieces between the disk and host memory, while others are copied to or
// from the device. A call returns when its bytes are on the disk, or their last copy is in the
// stream.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "llmc/base/notice.h"
#include "llmc/base/scratch_file.h"
#include "llmc/device/device.h"
#include "llmc/offload/disk_pieces.h"
#include "llmc/offload/store.h"
#include "llmc/offload/transfers.h"

namespace llmc {

class DiskStore final : public Store {
 public:
  // `transfers` must outlive the store.
  DiskStore(std::string directory, Transfers& transfers)
      : directory_(std::move(directory)), transfers_(transfers) {}

  void allocate(std::int64_t bytes) override {
    file_ = std::make_unique<ScratchFile>(directory_, bytes);
    const std::string notice = file_->notice();
    if (!notice.empty()) Notice::print("offload: " + notice);
  }

  void read(void* device, std::int64_t offset, std::int64_t bytes, Stream& transfers) override {
    for_each_piece(
        offset, bytes,
        [&](DiskPiece& piece, const Window& window) {
          piece.transfer =
              queue().submit_read(*file_, window.begin, {piece.aligned(), window.size()});
        },
        [&](DiskPiece& piece, const Window& window) {
          queue().wait(piece.transfer);
          copy_to_device(static_cast<std::byte*>(device) + (window.first - offset),
                         static_cast<const std::byte*>(piece.aligned()) + window.skipped(),
                         window.last - window.first, transfers);
          piece.copied.record(transfers);
        });
  }

  void write(std::int64_t offset, const void* device, std::int64_t bytes,
             Stream& transfers) override {
    for_each_piece(
        offset, bytes,
        [&](DiskPiece& piece, const Window& window) {
          read_edges(piece, window);
          copy_to_host(piece.aligned() + window.skipped(),
                       static_cast<const std::byte*>(device) + (window.first - offset),
                       window.last - window.first, transfers);
          piece.copied.record(transfers);
          piece.copied.synchronize();
          piece.transfer =
              queue().submit_write(*file_, window.begin, {piece.aligned(), window.size()});
        },
        [&](DiskPiece& piece, const Window&) { queue().wait(piece.transfer); });
  }

 private:
  static constexpr std::int64_t kAlignment = ScratchFile::kAlignment;

  // The aligned bytes [begin, end) of the file, of which [first, last) are wanted.
  struct Window {
    std::int64_t begin, end, first, last;

    std::size_t size() const { return static_cast<std::size_t>(end - begin); }
    std::int64_t skipped() const { return first - begin; }
  };

  // Calls start(piece, window) and then finish(piece, window) for the windows of a range, in their
  // order; up to DiskPieces::kCount are between the two. If a transfer fails, it throws when no
  // other one is in progress: the file is closed then.
  template <class Start, class Finish>
  void for_each_piece(std::int64_t offset, std::int64_t bytes, const Start& start,
                      const Finish& finish) {
    try {
      run_pieces(offset, bytes, start, finish);
    } catch (...) {
      settle();
      throw;
    }
  }
  template <class Start, class Finish>
  void run_pieces(std::int64_t offset, std::int64_t bytes, const Start& start,
                  const Finish& finish) {
    const std::int64_t begin = offset / kAlignment * kAlignment;
    const std::int64_t end = round_up(offset + bytes, kAlignment);
    const std::int64_t count = ceil_div(end - begin, DiskPieces::kBytes);
    const auto window = [&](std::int64_t i) {
      const std::int64_t first = begin + i * DiskPieces::kBytes,
                         last = std::min(end, first + DiskPieces::kBytes);
      return Window{first, last, std::max(first, offset), std::min(last, offset + bytes)};
    };
    const auto piece = [&](std::int64_t i) -> DiskPiece& {
      return transfers_.disk_pieces().piece(i);
    };
    constexpr auto kAhead = static_cast<std::int64_t>(DiskPieces::kCount);
    for (std::int64_t i = 0; i < count + kAhead; ++i) {
      if (i >= kAhead) finish(piece(i - kAhead), window(i - kAhead));
      if (i >= count) continue;
      piece(i).copied.synchronize();  // its last copy may still read the memory
      start(piece(i), window(i));
    }
  }

  // Waits for all transfers; the caller throws the error of the first one that failed.
  void settle() {
    try {
      queue().finish();
    } catch (const Error&) {
    }
  }

  IoQueue& queue() { return transfers_.disk_pieces().queue(); }

  // Bytes of the first and the last page that a write does not change.
  void read_edges(DiskPiece& piece, const Window& window) {
    const auto read_page = [&](std::int64_t page) {
      file_->read(page,
                  {piece.aligned() + (page - window.begin), static_cast<std::size_t>(kAlignment)});
    };
    if (window.first > window.begin) read_page(window.begin);
    if (window.last < window.end) read_page(window.end - kAlignment);
  }

  std::string directory_;
  Transfers& transfers_;
  std::unique_ptr<ScratchFile> file_;
};

}  // namespace llmc
