// Fixtures of GPT-2s with other properties than those of OpenAI's models: family_fixtures.py.
//
// For tests of the engine: each case has a config, weights, a batch and PyTorch's logits, and the
// cases of one property and of all properties have gradients.
//
//   for (const std::string& name : family_cases()) {
//     const Fixture fixture = load_family_fixture(name);
//     // ... set the engine up from fixture.config(), fixture.parameters(), fixture.batch() ...
//     compare_logits(fixture, logits, dtype);  // fp32 or bf16
//     if (has_gradients(fixture)) compare_gradients(fixture, gradients, dtype);
//   }
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "test/oracle/fixture.h"

namespace llmc::oracle {

inline std::string family_dir() {
  return fixtures_dir() + "/family";
}

// The names of all cases: "epsilon", "inner", "epsilon-inner", ..., "all", in alphabetical order.
inline std::vector<std::string> family_cases() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(family_dir())) {
    if (file.path().extension() == ".fixture") names.push_back(file.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline Fixture load_family_fixture(const std::string& name) {
  return Fixture(family_dir() + "/" + name + ".fixture");
}

// False for cases that have only the norm of each gradient, `gradient_norms`.
inline bool has_gradients(const Fixture& fixture) {
  return fixture.has("grad.wte.weight");
}

}  // namespace llmc::oracle
