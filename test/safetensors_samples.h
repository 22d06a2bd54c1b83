// Small safetensors files for tests.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "llmc/io/checkpoint/safetensors.h"

namespace llmc_test {

// Writes tensors whose byte i is (i * 7 + index of the tensor) mod 256. Returns their bytes.
inline std::vector<std::vector<unsigned char>> write_pattern(
    const std::filesystem::path& path, const std::vector<llmc::TensorHeader>& tensors) {
  std::vector<std::vector<unsigned char>> contents;
  llmc::SafetensorsWriter writer(path, tensors);
  for (const llmc::TensorHeader& tensor : tensors) {
    std::vector<unsigned char> bytes(static_cast<std::size_t>(llmc::tensor_bytes(tensor)));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<unsigned char>(i * 7 + contents.size());
    }
    writer.write(tensor.name, std::as_bytes(std::span(bytes)));
    contents.push_back(std::move(bytes));
  }
  writer.finish();
  return contents;
}

}  // namespace llmc_test
