#include "llmc/io/tokenizer/byte_names.h"

#include "llmc/base/utf8.h"

namespace llmc {

std::string name_of_bytes(std::string_view bytes) {
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

std::optional<std::string> bytes_of_name(std::string_view name) {
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
