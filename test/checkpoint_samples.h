// Small checkpoints for tests. The bytes of a tensor depend only on its name and the step.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "llmc/io/checkpoint/checkpoint_reader.h"
#include "llmc/io/checkpoint/checkpoint_search.h"
#include "llmc/io/checkpoint/checkpoint_writer.h"
#include "test/support.h"

namespace llmc_test {

namespace fs = std::filesystem;
using llmc::CheckpointReader;
using llmc::CheckpointState;
using llmc::CheckpointWriter;
using llmc::TensorDtype;
using llmc::TensorHeader;

inline std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline const std::vector<TensorHeader> kModel = {
    {"transformer.wte.weight", TensorDtype::bf16, {5, 3}},
    {"transformer.ln_f.bias", TensorDtype::bf16, {3}}};
inline const std::vector<TensorHeader> kOptimizer = {
    {"master.wte.weight", TensorDtype::f32, {5, 3}},
    {"moment1.wte.weight", TensorDtype::f32, {5, 3}}};

// The bytes of a tensor in the checkpoint of this step.
inline std::string content(const TensorHeader& tensor, std::int64_t step) {
  std::string bytes(static_cast<std::size_t>(llmc::tensor_bytes(tensor)), '\0');
  std::mt19937_64 random(llmc::checksum_of(tensor.name + std::to_string(step)));
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

inline void write_tensors(llmc::SafetensorsWriter& writer, std::int64_t step) {
  for (const TensorHeader& tensor : writer.tensors()) {
    const std::string bytes = content(tensor, step);
    writer.write(tensor.name, bytes.data(), static_cast<std::int64_t>(bytes.size()));
  }
}

inline CheckpointState state_of(std::int64_t step) {
  return {{"seed", 42}, {"position", step * 1024}, {"loss", 2.5f}};
}

inline fs::path save(const fs::path& root, std::int64_t step) {
  CheckpointWriter writer(root, llmc::checkpoint_name(step));
  write_tensors(writer.tensor_file("model.safetensors", kModel), step);
  write_tensors(writer.tensor_file("optimizer.safetensors", kOptimizer), step);
  writer.text_file("config.json", "{\"model_type\": \"gpt2\"}\n");
  writer.commit(step, state_of(step));
  return writer.path();
}

// Reads the whole checkpoint. Returns the error message, or "" if the checkpoint is valid.
inline std::string fault(const fs::path& path) {
  return complaint([&] {
    CheckpointReader reader(path);
    reader.verify();
    for (const TensorHeader& tensor : kModel) {
      std::string bytes(static_cast<std::size_t>(llmc::tensor_bytes(tensor)), '\0');
      reader.load_bytes(tensor, bytes.data());
      REQUIRE(bytes == content(tensor, reader.step()));
    }
  });
}

// Writes a new file: ext4 waits for the disk if a truncated file is written again.
inline void overwrite(const fs::path& path, const std::string& bytes) {
  fs::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace llmc_test
