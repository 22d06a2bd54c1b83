#include "llmc/io/data/compressed_file.h"

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <array>
#include <memory>
#include <system_error>
#include <utility>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/work_progress.h"
#include "llmc/io/data/input_file.h"

namespace llmc {

namespace {

constexpr std::size_t kUnpackPiece = std::size_t{1} << 18;

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

[[noreturn]] void fail_compressed(const std::string& path, const std::string& problem) {
  fail(path + " " + problem, "copy the file again, or test it with gzip -t or zstd -t");
}

[[noreturn]] void fail_truncated(const std::string& path, const char* format, std::size_t size) {
  fail_compressed(path, "is truncated: its " + std::string(format) +
                            " data do not end within its " + std::to_string(size) + " bytes");
}

[[noreturn]] void fail_damaged(const std::string& path, const char* format, std::size_t position,
                               const std::string& reason) {
  fail_compressed(path, "is damaged: " + std::string(format) + " data at byte " +
                            std::to_string(position) + ": " + reason);
}

// Throws if bytes follow a member or frame that are not the next one.
void check_next(std::span<const std::byte> rest, Compression compression, const char* format,
                const std::string& path, std::size_t position) {
  if (rest.empty() || compression_of(rest) == compression) return;
  fail_compressed(path, "has " + std::to_string(rest.size()) + " bytes after its " + format +
                            " data, from byte " + std::to_string(position) +
                            " on, that are no such data");
}

struct InflateEnd {
  void operator()(z_stream* stream) const {
    ::inflateEnd(stream);
    delete stream;
  }
};

void gunzip(std::span<const std::byte> bytes, const std::string& path, const TextPieces& piece) {
  std::unique_ptr<z_stream, InflateEnd> stream(new z_stream{});
  constexpr int kGzipWindow = 15 + 16;  // the largest window; a gzip header is required
  require(::inflateInit2(stream.get(), kGzipWindow) == Z_OK, "zlib cannot be initialised");
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(kUnpackPiece);
  std::size_t position = 0;
  WorkProgress progress("unpacking " + path, std::ssize(bytes));
  for (;;) {
    const std::size_t count = std::min(kUnpackPiece, bytes.size() - position);
    auto* input = const_cast<std::byte*>(bytes.data() + position);
    stream->next_in = reinterpret_cast<Bytef*>(input);
    stream->avail_in = static_cast<uInt>(count);
    stream->next_out = reinterpret_cast<Bytef*>(buffer.get());
    stream->avail_out = static_cast<uInt>(kUnpackPiece);
    const int status = ::inflate(stream.get(), Z_NO_FLUSH);
    position += count - stream->avail_in;
    const std::size_t unpacked = kUnpackPiece - stream->avail_out;
    if (unpacked > 0 && !piece({buffer.get(), unpacked})) return;
    progress.show(static_cast<std::int64_t>(position));
    if (status == Z_STREAM_END) {
      if (position == bytes.size()) return;
      check_next(bytes.subspan(position), Compression::gzip, "gzip", path, position);
      ::inflateReset(stream.get());
    } else if (status == Z_BUF_ERROR || (status == Z_OK && unpacked == 0 && count == 0)) {
      fail_truncated(path, "gzip", bytes.size());
    } else if (status != Z_OK) {
      fail_damaged(path, "gzip", position, stream->msg == nullptr ? "not gzip" : stream->msg);
    }
  }
}

struct FreeZstd {
  void operator()(ZSTD_DStream* stream) const { ::ZSTD_freeDStream(stream); }
};

void unzstd(std::span<const std::byte> bytes, const std::string& path, const TextPieces& piece) {
  const std::unique_ptr<ZSTD_DStream, FreeZstd> stream(::ZSTD_createDStream());
  require(stream != nullptr, "zstd cannot be initialised");
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(kUnpackPiece);
  ZSTD_inBuffer input{bytes.data(), bytes.size(), 0};
  WorkProgress progress("unpacking " + path, std::ssize(bytes));
  for (;;) {
    ZSTD_outBuffer output{buffer.get(), kUnpackPiece, 0};
    const std::size_t before = input.pos;
    const std::size_t status = ::ZSTD_decompressStream(stream.get(), &output, &input);
    if (::ZSTD_getErrorCode(status) == ZSTD_error_frameParameter_windowTooLarge) {
      fail(path + " needs a zstd window of more than 128 MiB",
           "compress it again: zstd -dc -M2048MB FILE | zstd > NEW");
    }
    if (::ZSTD_isError(status) != 0) {
      fail_damaged(path, "zstd", input.pos, ::ZSTD_getErrorName(status));
    }
    if (output.pos > 0 && !piece({buffer.get(), output.pos})) return;
    progress.show(static_cast<std::int64_t>(input.pos));
    if (status == 0) {  // the end of a frame
      if (input.pos == input.size) return;
      check_next(bytes.subspan(input.pos), Compression::zstd, "zstd", path, input.pos);
    } else if (input.pos == input.size && input.pos == before && output.pos == 0) {
      fail_truncated(path, "zstd", bytes.size());
    }
  }
}

}  // namespace

Compression compression_of(std::span<const std::byte> bytes) {
  using namespace std::string_view_literals;
  const std::string_view start = as_text(bytes.first(std::min<std::size_t>(bytes.size(), 4)));
  if (start.starts_with("\x1f\x8b\x08")) return Compression::gzip;
  if (start == "\x28\xb5\x2f\xfd") return Compression::zstd;
  // A skippable frame of zstd, with which files of pzstd begin: 0x184d2a50 to 0x184d2a5f.
  const bool is_skippable =
      start.size() == 4 && (start[0] & 0xf0) == 0x50 && start.substr(1) == "\x2a\x4d\x18"sv;
  return is_skippable ? Compression::zstd : Compression::none;
}

std::string uncompressed_name(const std::string& path) {
  for (const std::string_view ending : {".gz", ".gzip", ".zst", ".zstd"}) {
    if (path.ends_with(ending)) return path.substr(0, path.size() - ending.size());
  }
  return path;
}

void decompress(std::span<const std::byte> bytes, const std::string& path,
                const TextPieces& piece) {
  compression_of(bytes) == Compression::gzip ? gunzip(bytes, path, piece)
                                             : unzstd(bytes, path, piece);
}

namespace {

MappedFile decompress_into(const FileDescriptor& copy, std::span<const std::byte> bytes,
                           const std::string& path, const std::filesystem::path& directory) {
  const std::string name = "the unpacked text of " + path + " in " + directory.string();
  decompress(bytes, path, [&](std::span<const std::byte> piece) {
    write_all(copy, piece, name);
    return true;
  });
  return MappedFile(copy, name);
}

}  // namespace

MappedFile decompressed_map(std::span<const std::byte> bytes, const std::string& path,
                            const std::filesystem::path& directory) {
  return decompress_into(unnamed_file(directory), bytes, path, directory);
}

TextInput::TextInput(const std::filesystem::path& path, std::filesystem::path directory)
    : plain_(read_file(path)), checksum_(checksum_of(plain_)) {
  const auto bytes = std::as_bytes(std::span(plain_));
  is_compressed_ = compression_of(bytes) != Compression::none;
  if (!is_compressed_) return;
  if (directory.empty()) directory = parent_of(path);
  FileDescriptor copy;
  try {
    copy = unnamed_file(directory);
  } catch (const Error&) {
    std::error_code ignored;
    directory = std::filesystem::temp_directory_path(ignored);
    copy = unnamed_file(directory);
  }
  unpacked_ = decompress_into(copy, bytes, path.string(), directory);
  plain_ = std::string();
}

std::string_view TextInput::text() const {
  return is_compressed_ ? as_text(unpacked_.bytes()) : std::string_view(plain_);
}

}  // namespace llmc
