// A token for each byte, in the order in which GPT-2's encoder.json lists them, and one more for
// the end of a text. Needs no files and knows every text.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/io/tokenizer_interface.h"

namespace llmc {

// How many bytes are printable characters of Latin-1 (the soft hyphen is not). GPT-2 lets each of
// these stand for itself in its vocabulary files.
inline constexpr int kPrintableBytes = 188;

// The byte of each id 0 .. 255: the printable ones ascending ('!' is 0), then the others ascending.
inline constexpr std::array<std::uint8_t, 256> kByteOrder = [] {
  const auto printable = [](int byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xff && byte != 0xad);
  };
  std::array<std::uint8_t, 256> order{};
  std::size_t printables = 0;
  std::size_t others = kPrintableBytes;
  for (int byte = 0; byte < 256; ++byte) {
    order[printable(byte) ? printables++ : others++] = static_cast<std::uint8_t>(byte);
  }
  return order;
}();

// The inverse of kByteOrder: the place of each byte.
inline constexpr std::array<std::int32_t, 256> kPlaceOfByte = [] {
  std::array<std::int32_t, 256> place{};
  for (std::size_t id = 0; id < 256; ++id) place[kByteOrder[id]] = static_cast<std::int32_t>(id);
  return place;
}();

class ByteTokenizer : public Tokenizer {
 public:
  std::int64_t vocabulary_size() const override { return 257; }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> tokens;
    tokens.reserve(text.size());
    for (const char c : text) tokens.push_back(kPlaceOfByte[static_cast<std::uint8_t>(c)]);
    return tokens;
  }

  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::string text;
    text.reserve(tokens.size());
    for (const std::int32_t token : tokens) {
      const std::size_t id = checked(token);
      if (id < kByteOrder.size()) {
        text += static_cast<char>(kByteOrder[id]);
      } else {
        text += kEndOfText;
      }
    }
    return text;
  }

  std::optional<std::int32_t> end_of_text() const override { return 256; }
  std::string name() const override { return "bytes"; }
};

}  // namespace llmc
