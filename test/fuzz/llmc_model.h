// Fuzz target for llm.c's model files. The input is the first eight integers of the header, then
// the parameters. If the magic number is missing, the target adds it, makes the sizes small, and
// provides as many parameters as they require.
#pragma once

#include <array>

#include "llmc/io/checkpoint/llmc_model_file.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void read_llmc_model(const std::string& path) {
  is_rejected(path, [&] {
    const llmc::LlmcModelFile file(path);
    const llmc::HuggingFaceConfig config = file.config();
    const std::int64_t C = config.n_embd;
    const auto load = [&](const std::string& name, const llmc::Shape& shape) {
      std::vector<float> values(static_cast<std::size_t>(*llmc::checked_count(shape)));
      file.load(name, shape, values.data());
    };
    load("wte.weight", {config.vocab_size, C});
    load("wpe.weight", {config.n_positions, C});
    for (std::int64_t l = 0; l < config.n_layer; ++l) {
      const std::string layer = "h." + std::to_string(l);
      load(layer + ".attn.c_attn.weight", {C, 3 * C});
      load(layer + ".mlp.c_proj.weight", {4 * C, C});
      load(layer + ".mlp.c_proj.bias", {C});
    }
    load("ln_f.bias", {C});
    load("h." + std::to_string(config.n_layer) + ".ln_1.bias", {C});  // no such layer
    expect(false, "a layer after the last one is rejected");
  });
}

// The bytes of all parameters of a model of these sizes.
inline std::size_t llmc_model_bytes(const std::array<std::int32_t, 8>& header) {
  const auto [T, L, C, Vp] = std::array<std::size_t, 4>{
      static_cast<std::size_t>(header[2]), static_cast<std::size_t>(header[4]),
      static_cast<std::size_t>(header[6]), static_cast<std::size_t>(header[7])};
  const std::size_t count = (Vp + T + 2) * C + L * (12 * C * C + 13 * C);
  return count * (header[1] == llmc::kLlmcModelFp32 ? 4 : 2);
}

inline void llmc_model(std::string_view input) {
  static const Folder folder;
  std::array<std::int32_t, 8> header{};
  const std::string start = take(input, sizeof header);
  std::memcpy(header.data(), start.data(), sizeof header);
  std::string data(input);
  if (header[0] != llmc::kLlmcModelMagic) {
    header[0] = llmc::kLlmcModelMagic;
    for (std::size_t i = 2; i < header.size(); ++i) header[i] = header[i] & 7;
    data.resize(llmc_model_bytes(header));
  }
  std::string file_header(256 * sizeof(std::int32_t), '\0');
  std::memcpy(file_header.data(), header.data(), sizeof header);
  read_llmc_model(folder.write("model.bin", file_header + data));
}

}  // namespace llmc_fuzz
