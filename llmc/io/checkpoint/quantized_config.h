// quantization_config in config.json, in the terms of compressed-tensors: how the weights of a
// directory are INT8. The key `llmc` in it has what those terms do not express.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace llmc {

inline constexpr const char* kQuantizationKey = "quantization_config";

// How a model in files is INT8: symmetric codes per output of each matrix and, in the mode w8a8,
// activations with a scale per token, in w8a8-static with the scales in the files.
struct QuantizedFormat {
  bool quantizes_activations = false;
  bool is_static = false;
  bool zero_points = true;    // of the activations; only if they are quantized
  bool smooths_gelu = false;  // the files have factors for the results of GELU
  std::string dtype = {};     // engine's name of the dtype to which the weights were rounded before
  std::string source = {};    // ContentChecksum of the float tensors; 32 hexadecimal digits
  std::string calibration = {};  // ContentChecksum of the calibration text's tokens; empty: none

  const char* mode() const;
  // The modes in which the model can run.
  const char* modes() const;

  bool operator==(const QuantizedFormat&) const = default;
};

// Reads quantization_config in the text of a config.json, which errors call `file`. Returns nothing
// if there is none. Throws unless it describes weights that this engine reads.
std::optional<QuantizedFormat> parse_quantized_format(std::string_view text,
                                                      const std::string& file);

// The same for config.json of a directory; a directory without that file has no such config.
std::optional<QuantizedFormat> read_quantized_format(const std::filesystem::path& directory);

// Adds quantization_config to the text of a float model's config.json, and changes its dtype to
// that of the tensors that stay floats.
std::string quantized_config_text(std::string_view config, const QuantizedFormat& format);

}  // namespace llmc
