// The one table that says what parameters a GPT-2 has. Initialisation, optimizer groups, checkpoint
// layout, import and export, the memory report and, later, sharding are all loops over it; nowhere
// is a parameter an index.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/config/gpt2_config.h"
#include "llmc/device/math.h"

namespace llmc {

enum class Initial { normal, zero, one };

// The axis that tensor parallelism cuts.
enum class SplitAxis { none, rows, columns };

struct ParameterSpec {
  std::string name;                 // Hugging Face's, without the prefix "transformer."
  std::vector<std::int64_t> shape;  // as stored in files
  std::int64_t stored_rows = 0;     // of the first axis in memory: more than shape[0] where padded
  Initial initial = Initial::zero;
  float deviation = 0;   // of Initial::normal
  bool decayed = false;  // weight decay: matrices and embeddings
  SplitAxis split = SplitAxis::none;
  int block = 0;  // 0: embeddings, 1 .. L: transformer blocks, L + 1: the final LayerNorm
  std::uint32_t number = 0;  // place in the table: the tensor's key for random numbers
  std::int64_t offset = 0;   // in elements, where the tensors lie one after the other in one array

  // Elements in files, and in memory.
  std::int64_t size() const { return row_size() * shape[0]; }
  std::int64_t stored_size() const { return row_size() * stored_rows; }

 private:
  std::int64_t row_size() const { return shape.size() > 1 ? shape[1] : 1; }
};

// Every tensor starts at a multiple of this many elements: aligned for 16-byte accesses in every
// dtype, and no 1024-element piece of the gradient norm belongs to two tensors.
inline constexpr std::int64_t kParameterAlignment = 1024;

class ParameterTable {
 public:
  explicit ParameterTable(const Gpt2Config& config) {
    // OpenAI's values (Radford et al., 2019): 0.02, positions 0.01; the two projections into the
    // residual stream are scaled down by the root of their number.
    constexpr float kDeviation = 0.02f, kPositionDeviation = 0.01f;
    const float residual = kDeviation / std::sqrt(2.0f * static_cast<float>(config.layers));
    const std::int64_t C = config.channels;
    add_matrix("wte.weight", 0, config.vocabulary, C, kDeviation, SplitAxis::rows);
    specs_.back().stored_rows = config.padded_vocabulary();
    add_matrix("wpe.weight", 0, config.context, C, kPositionDeviation, SplitAxis::none);
    for (int l = 0; l < config.layers; ++l) {
      const std::string h = "h." + std::to_string(l) + ".";
      const int block = l + 1;
      add_norm(h + "ln_1", block, C);
      add_linear(h + "attn.c_attn", block, C, 3 * C, kDeviation, SplitAxis::columns);
      add_linear(h + "attn.c_proj", block, C, C, residual, SplitAxis::rows);
      add_norm(h + "ln_2", block, C);
      add_linear(h + "mlp.c_fc", block, C, 4 * C, kDeviation, SplitAxis::columns);
      add_linear(h + "mlp.c_proj", block, 4 * C, C, residual, SplitAxis::rows);
    }
    add_norm("ln_f", static_cast<int>(config.layers) + 1, C);
    lay_out();
  }

  const std::vector<ParameterSpec>& specs() const { return specs_; }

  const ParameterSpec& find(const std::string& name) const {
    for (const ParameterSpec& spec : specs_) {
      if (spec.name == name) return spec;
    }
    fail("there is no parameter '" + name + "'");
  }

  // Elements of the array that holds all tensors, gaps included.
  std::int64_t stored_size() const { return stored_size_; }

  // Parameters, padding and gaps not counted.
  std::int64_t count() const {
    std::int64_t count = 0;
    for (const ParameterSpec& spec : specs_) count += spec.size();
    return count;
  }

 private:
  void add(ParameterSpec spec) {
    spec.stored_rows = spec.shape[0];
    spec.number = static_cast<std::uint32_t>(specs_.size());
    specs_.push_back(std::move(spec));
  }
  void add_matrix(const std::string& name, int block, std::int64_t rows, std::int64_t columns,
                  float deviation, SplitAxis split) {
    ParameterSpec spec;
    spec.name = name;
    spec.shape = {rows, columns};
    spec.initial = Initial::normal;
    spec.deviation = deviation;
    spec.decayed = true;
    spec.split = split;
    spec.block = block;
    add(std::move(spec));
  }
  void add_vector(const std::string& name, int block, std::int64_t size, Initial initial,
                  SplitAxis split) {
    ParameterSpec spec;
    spec.name = name;
    spec.shape = {size};
    spec.initial = initial;
    spec.split = split;
    spec.block = block;
    add(std::move(spec));
  }
  void add_norm(const std::string& name, int block, std::int64_t C) {
    add_vector(name + ".weight", block, C, Initial::one, SplitAxis::none);
    add_vector(name + ".bias", block, C, Initial::zero, SplitAxis::none);
  }
  // A column-parallel layer's bias is cut with its outputs; a row-parallel one's is added once.
  void add_linear(const std::string& name, int block, std::int64_t inputs, std::int64_t outputs,
                  float deviation, SplitAxis split) {
    add_matrix(name + ".weight", block, inputs, outputs, deviation, split);
    add_vector(name + ".bias", block, outputs, Initial::zero,
               split == SplitAxis::columns ? SplitAxis::rows : SplitAxis::none);
  }
  void lay_out() {
    for (ParameterSpec& spec : specs_) {
      spec.offset = stored_size_;
      stored_size_ += round_up(spec.stored_size(), kParameterAlignment);
    }
  }

  std::vector<ParameterSpec> specs_;
  std::int64_t stored_size_ = 0;
};

}  // namespace llmc
