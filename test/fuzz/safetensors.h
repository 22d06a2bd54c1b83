// Fuzz target for safetensors. An input that begins with a brace is the header's text, a line end
// and the data; the target adds the header's length. Any other input is the file.
#pragma once

#include "llmc/io/checkpoint/safetensors.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void read_safetensors(std::string_view file) {
  constexpr const char* kName = "weights.safetensors";
  is_rejected(kName, [&] {
    const auto content = llmc::parse_safetensors(bytes_of(file), kName);
    std::size_t sum = 0;
    for (const llmc::TensorEntry& tensor : content.tensors) {
      const std::span<const std::byte> bytes = tensor.in(bytes_of(file));
      expect(llmc::tensor_bytes(tensor) == std::ssize(bytes),
             "a tensor has the bytes of its shape");
      sum += bytes.size();
      std::vector<float> values(
          static_cast<std::size_t>(bytes.empty() ? 0 : *llmc::checked_count(tensor.shape)));
      llmc::convert_to_float(tensor.dtype, bytes, values.data());
    }
    expect(sum <= file.size(), "tensors do not overlap");
  });
}

// Makes the file from `text`: the header, a line end, and the data.
inline std::string safetensors_of(std::string_view text) {
  const std::uint64_t length = std::min(text.find('\n'), text.size());
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  file += text.substr(0, length);
  if (length < text.size()) file += text.substr(length + 1);
  return file;
}

inline void safetensors(std::string_view input) {
  read_safetensors(input.starts_with('{') ? safetensors_of(input) : std::string(input));
}

}  // namespace llmc_fuzz
