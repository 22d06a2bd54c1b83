// An optimizer state in device memory for tests.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "dev/harness/arrays.h"
#include "llmc/ops/optimizer/optimizer_state.h"

namespace llmc_test {

// An optimizer state between guards, as an array of its words.
class GuardedState {
 public:
  GuardedState(const llmc::OptimizerState& state, llmc::Stream& stream)
      : words_(words_of(state), stream) {}

  llmc::OptimizerState* data() const {
    return reinterpret_cast<llmc::OptimizerState*>(words_.data());
  }
  llmc::OptimizerState read() const {
    const std::vector<std::int32_t> stored = words_.stored();
    Words words{};
    std::copy(stored.begin(), stored.end(), words.begin());
    return std::bit_cast<llmc::OptimizerState>(words);
  }
  bool guards_intact() const { return words_.guards_intact(); }

 private:
  using Words = std::array<std::int32_t, sizeof(llmc::OptimizerState) / sizeof(std::int32_t)>;
  static std::vector<std::int32_t> words_of(const llmc::OptimizerState& state) {
    const auto words = std::bit_cast<Words>(state);
    return {words.begin(), words.end()};
  }

  llmc_dev::DeviceArray<std::int32_t> words_;
};

}  // namespace llmc_test
