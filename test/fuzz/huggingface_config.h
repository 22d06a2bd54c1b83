// Fuzz target for transformers' config.json. A config that is read and written again stays the
// same, with and without quantization_config.
#pragma once

#include <optional>
#include <string>

#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/io/checkpoint/quantized_config.h"
#include "test/fuzz/fuzz.h"

namespace llmc_fuzz {

inline void huggingface_config(std::string_view input) {
  constexpr const char* kName = "config.json";
  is_rejected(kName, [&] {
    const llmc::HuggingFaceConfig config = llmc::parse_huggingface_config(input, kName);
    const std::string text = llmc::huggingface_config_text(config, llmc::TensorDtype::f32);
    expect(llmc::parse_huggingface_config(text, kName) == config,
           "reading a config and writing it again changes nothing");
  });
  is_rejected(kName, [&] {
    const std::optional<llmc::QuantizedFormat> format = llmc::parse_quantized_format(input, kName);
    if (!format) return;
    const std::string text = llmc::quantized_config_text(input, *format);
    expect(llmc::parse_quantized_format(text, kName) == format,
           "reading a quantization_config and writing it again changes nothing");
  });
}

}  // namespace llmc_fuzz
