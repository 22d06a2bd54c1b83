// How GPT-2's files write bytes: one printable character per byte. Printable characters of Latin-1
// stand for themselves. The other bytes are U+0100 and up, in the order of kByteOrder.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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
std::string name_of_bytes(std::string_view bytes);

// Returns the bytes that a name stands for, or nothing if one of its characters stands for no byte.
// Characters that stand for bytes have one or two bytes in UTF-8.
std::optional<std::string> bytes_of_name(std::string_view name);

}  // namespace llmc
