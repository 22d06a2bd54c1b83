// How GPT-2's files write bytes: one printable character per byte. Printable characters of Latin-1
// stand for themselves. The other bytes are U+0100 and up, in the order of kByteOrder.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "llmc/base/utf8.h"

namespace llmc {

// Number of bytes that are printable characters of Latin-1 (the soft hyphen is not).
inline constexpr int kPrintableBytes = 188;

// The byte of each GPT-2 id 0 .. 255: first the printable bytes in ascending order ('!' is 0), then
// the others in ascending order.
inline constexpr std::array<std::uint8_t, 256> kByteOrder = [] {
  const auto printable = [](int byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xff && byte != 0xad);
  };
  std::array<std::uint8_t, 256> order{};
  std::size_t num_printable = 0;
  std::size_t next_other = kPrintableBytes;
  for (int byte = 0; byte < 256; ++byte) {
    order[printable(byte) ? num_printable++ : next_other++] = static_cast<std::uint8_t>(byte);
  }
  return order;
}();

// The inverse of kByteOrder: the id of each byte.
inline constexpr std::array<std::int32_t, 256> kIdOfByte = [] {
  std::array<std::int32_t, 256> ids{};
  for (std::size_t id = 0; id < 256; ++id) ids[kByteOrder[id]] = static_cast<std::int32_t>(id);
  return ids;
}();

// Returns the name of these bytes in the files: one character per byte.
inline std::string name_of_bytes(std::string_view bytes) {
  std::string name;
  for (const char c : bytes) {
    const int byte = static_cast<std::uint8_t>(c);
    const int id = kIdOfByte[static_cast<std::size_t>(byte)];
    const int character = id < kPrintableBytes ? byte : 256 + id - kPrintableBytes;
    if (character >= 0x80) name += static_cast<char>(0xc0 | character >> 6);
    name += static_cast<char>(character < 0x80 ? character : 0x80 | (character & 0x3f));
  }
  return name;
}

// Returns the bytes that a name stands for, or nothing if one of its characters stands for no byte.
// Characters that stand for bytes have one or two bytes in UTF-8.
inline std::optional<std::string> bytes_of_name(std::string_view name) {
  std::string bytes;
  while (!name.empty()) {
    const std::size_t length = utf8_length(name);
    if (length != 1 && length != 2) return std::nullopt;
    std::size_t character = static_cast<std::uint8_t>(name[0]);
    if (length == 2) {
      character = (character & 0x1f) << 6 | (static_cast<std::uint8_t>(name[1]) & 0x3f);
    }
    const std::size_t id = character < 256 ? static_cast<std::size_t>(kIdOfByte[character])
                                           : character - 256 + kPrintableBytes;
    const bool is_valid = character < 256 ? id < kPrintableBytes : id < kByteOrder.size();
    if (!is_valid) return std::nullopt;
    bytes += static_cast<char>(kByteOrder[id]);
    name.remove_prefix(length);
  }
  return bytes;
}

}  // namespace llmc
