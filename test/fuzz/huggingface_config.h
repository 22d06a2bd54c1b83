// Fuzz target for transformers' config.json. A config that is read and written again stays the
// same.
#pragma once

#include "llmc/io/checkpoint/huggingface.h"
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
}

}  // namespace llmc_fuzz
