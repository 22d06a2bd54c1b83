// Fuzz target for gzip and zstd data. The first byte selects the format, whose magic number the
// target inserts if the rest does not begin with it.
#pragma once

#include "llmc/io/data/compressed_file.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void compressed_file(std::string_view input) {
  constexpr const char* kName = "a.txt.gz";
  const bool is_gzip = take_choice(input, 2) == 0;
  const auto format = is_gzip ? llmc::Compression::gzip : llmc::Compression::zstd;
  std::string bytes(input);
  if (llmc::compression_of(bytes_of(bytes)) != format) {
    bytes.insert(0, is_gzip ? std::string("\x1f\x8b\x08\0\0\0\0\0\0\3", 10) : "\x28\xb5\x2f\xfd");
  }
  const auto unpacked_size = [&](const std::string& packed) {
    std::size_t size = 0;
    llmc::decompress(bytes_of(packed), kName, [&](std::span<const std::byte> piece) {
      expect(!piece.empty() && piece.size() <= (std::size_t{1} << 18), "pieces are bounded");
      size += piece.size();
      return true;
    });
    return size;
  };
  std::size_t size = 0;
  if (is_rejected(kName, [&] { size = unpacked_size(bytes); })) return;
  expect(
      !is_rejected(kName, [&] { expect(unpacked_size(bytes + bytes) == 2 * size, "two are one"); }),
      "several members or frames are accepted");
  std::size_t pieces = 0;
  llmc::decompress(bytes_of(bytes), kName, [&](std::span<const std::byte>) {
    ++pieces;
    return false;
  });
  expect(pieces <= 1, "nothing is unpacked after a piece that returns false");
}

}  // namespace llmc_fuzz
