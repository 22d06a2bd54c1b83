// Fuzz target for a directory of transformers' weights. The input is the index and two safetensors
// files (see safetensors_of). If the index is empty, the first file is model.safetensors.
#pragma once

#include "llmc/io/checkpoint/huggingface.h"
#include "test/fuzz/fuzz.h"
#include "test/fuzz/safetensors.h"

namespace llmc_fuzz {

inline void huggingface_weights(std::string_view input) {
  static const Folder folder;
  const auto files = parts(input, 3);
  if (files[0].empty()) {
    folder.write(llmc::kWeightsName, safetensors_of(files[1]));
  } else {
    folder.remove(llmc::kWeightsName);
    folder.write(llmc::kWeightsIndexName, files[0]);
    folder.write("a", safetensors_of(files[1]));
    folder.write("b", safetensors_of(files[2]));
  }
  is_rejected(folder.path(), [&] {
    const llmc::HuggingFaceWeights weights(folder.path());
    const std::vector<std::string> names = weights.names();
    weights.require_exactly(names);
    for (const std::string& name : names) weights.dtype(name);
    float value = 0;
    is_rejected(folder.path(), [&] { weights.load("ln_f.bias", {1}, &value); });
    is_rejected(folder.path(), [&] { weights.require_exactly({"ln_f.bias", "wte.weight"}); });
  });
}

}  // namespace llmc_fuzz
