// A list of texts in one text: for messages between processes. A text may have any bytes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace llmc {

// Each text follows its size, a 64-bit integer.
std::string pack_texts(const std::vector<std::string>& texts);

// The texts that pack_texts() packed. Throws if `packed` is something else.
std::vector<std::string> unpack_texts(std::string_view packed);

}  // namespace llmc
