#include "llmc/base/text_list.h"

#include <cstdint>
#include <cstring>

#include "llmc/base/error.h"

namespace llmc {

std::string pack_texts(const std::vector<std::string>& texts) {
  std::string packed;
  for (const std::string& text : texts) {
    const std::uint64_t size = text.size();
    packed.append(reinterpret_cast<const char*>(&size), sizeof size);
    packed += text;
  }
  return packed;
}

std::vector<std::string> unpack_texts(std::string_view packed) {
  std::vector<std::string> texts;
  while (!packed.empty()) {
    std::uint64_t size = 0;
    require(packed.size() >= sizeof size, "a list of texts is truncated");
    std::memcpy(&size, packed.data(), sizeof size);
    packed.remove_prefix(sizeof size);
    require(packed.size() >= size, "a list of texts is truncated");
    texts.emplace_back(packed.substr(0, size));
    packed.remove_prefix(size);
  }
  return texts;
}

}  // namespace llmc
