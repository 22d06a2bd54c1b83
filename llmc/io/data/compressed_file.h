// Texts in files that gzip or zstd compressed. The first bytes decide whether a file is compressed;
// its name, without .gz or .zst, decides how the text is read.
//
// The text is unpacked piece by piece to an unnamed file, which is mapped: the memory does not
// depend on the length of the text, and the disk needs room for it. Several members (gzip) or
// frames (zstd) are one text, as the programs of these formats read them. A zstd window of up to
// 128 MiB is accepted, which is what zstd writes without --ultra --long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "llmc/base/file.h"

namespace llmc {

enum class Compression { none, gzip, zstd };

// The compression of a file that begins with `bytes`.
Compression compression_of(std::span<const std::byte> bytes);

// The name of a file without .gz, .gzip, .zst or .zstd.
std::string uncompressed_name(const std::string& path);

// Called with consecutive pieces of a text; returns false to stop.
using TextPieces = std::function<bool(std::span<const std::byte> piece)>;

// Unpacks the content of the compressed file `path`. Throws an error that names the file and the
// byte if the content is truncated or damaged, or if something else follows it.
void decompress(std::span<const std::byte> bytes, const std::string& path, const TextPieces& piece);

// Unpacks the content of the compressed file `path` to an unnamed file in `directory` and maps it.
MappedFile decompressed_map(std::span<const std::byte> bytes, const std::string& path,
                            const std::filesystem::path& directory);

// The text of a file, which may be compressed, or of a pipe.
class TextInput {
 public:
  // Unpacks a compressed file in `directory` (by default that of the file) or, if that cannot be
  // written, in the directory of temporary files.
  explicit TextInput(const std::filesystem::path& path, std::filesystem::path directory = {});

  std::string_view text() const;

  // Checksum of the bytes of the file itself, compressed or not.
  std::uint64_t checksum() const { return checksum_; }

 private:
  std::string plain_;
  MappedFile unpacked_;
  bool is_compressed_ = false;
  std::uint64_t checksum_ = 0;
};

}  // namespace llmc
