// The whole gradients to which no pass of a step has added yet. Their memory has those of the step
// before: a product that is the first to add writes its result instead, and all else finds zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/parallel/shard_layout.h"
#include "llmc/parallel/state_array.h"

namespace llmc {

class UnwrittenGradients {
 public:
  // All must outlive the object.
  UnwrittenGradients(const ParameterTable& table, const ShardLayout& layout,
                     const StateArray<float>& gradients)
      : table_(table), layout_(layout), gradients_(gradients) {}

  // Bytes that begin_step() writes: only once, because padding stays zero.
  double bytes_to_clear() const {
    return compute_ == nullptr ? static_cast<double>(gradients_.size()) * sizeof(float) : 0;
  }

  // All gradients are unwritten. Passes run on `compute`.
  void begin_step(Stream& compute) {
    if (compute_ == nullptr) fill_zero(gradients_.data(), gradients_.size(), compute);
    compute_ = &compute;
    blocks_.clear();
    for (const ParameterSpec& spec : table_.specs()) {
      const auto block = static_cast<std::size_t>(spec.block);
      if (block >= blocks_.size()) blocks_.resize(block + 1);
      if (spec.trainable && spec.is_held) blocks_[block].push_back(&spec);
    }
  }

  // Whether the gradient is unwritten; now the caller writes it.
  bool take(const ParameterSpec& spec) {
    const auto block = static_cast<std::size_t>(spec.block);
    return block < blocks_.size() && std::erase(blocks_[block], &spec) > 0;
  }

  // Unwritten gradients become zero: one, those of a block, and all.
  void clear(const ParameterSpec& spec) {
    if (take(spec)) fill(spec);
  }
  void clear_block(std::size_t block) {
    if (block >= blocks_.size()) return;
    for (const ParameterSpec* spec : blocks_[block]) fill(*spec);
    blocks_[block].clear();
  }
  void clear_all() {
    for (std::size_t block = 0; block < blocks_.size(); ++block) clear_block(block);
  }

 private:
  void fill(const ParameterSpec& spec) {
    fill_zero(gradients_.data() + layout_.whole_offset(spec), spec.stored_size(), *compute_);
  }

  const ParameterTable& table_;
  const ShardLayout& layout_;
  const StateArray<float>& gradients_;
  Stream* compute_ = nullptr;
  std::vector<std::vector<const ParameterSpec*>> blocks_;
};

}  // namespace llmc
