// The shape of a GPT-2.
#pragma once

#include <cstdint>
#include <string>

namespace llmc {

// Rows of the token embedding are padded to a multiple of this, which the GEMMs of the head are
// tuned for. The rows beyond V are zero and stay zero.
inline constexpr std::int64_t kVocabularyMultiple = 128;

struct ModelConfig {
  std::int64_t vocabulary = 50257;  // V
  std::int64_t context = 1024;      // number of position embeddings; T may be smaller
  std::int64_t layers = 12;         // L
  std::int64_t heads = 12;          // NH
  std::int64_t channels = 768;      // C

  std::int64_t head_size() const { return channels / heads; }  // HS
};

void check_config(const ModelConfig& config);

// Returns the sizes of "dN", a model of N layers. The published sizes are d12 (124M), d24 (350M),
// d36 (774M) and d48 (1558M). Other depths have 8 + N/3 heads of 64 channels, the line on which the
// published sizes lie (d48, with 25 heads, is just above).
ModelConfig config_from_name(const std::string& name);

}  // namespace llmc
