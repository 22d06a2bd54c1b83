// The key-value cache: the keys and values of all tokens that each layer has read, so that a new
// token costs one row of work.
#pragma once

#include <cstdint>

#include "llmc/config/gpt2_config.h"
#include "llmc/device/device.h"
#include "llmc/model/memory_plan.h"

namespace llmc {

template <class T>
class KvCache {
 public:
  // Room for T_max tokens of each of B sequences, stored as T. Reserves memory in the plan; usable
  // after plan.allocate().
  KvCache(const Gpt2Config& config, std::int64_t B, std::int64_t T_max, MemoryPlan& plan) {
    plan.reserve("key-value cache", keys_, config.layers, B, T_max, config.channels);
    plan.reserve("key-value cache", values_, config.layers, B, T_max, config.channels);
  }
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  std::int64_t capacity() const { return keys_.shape[2]; }  // T_max

  // (B, T_max, C) of one layer.
  Tensor<T, 3> keys(std::int64_t layer) const { return layer_view(keys_, layer); }
  Tensor<T, 3> values(std::int64_t layer) const { return layer_view(values_, layer); }

 private:
  static Tensor<T, 3> layer_view(const Tensor<T, 4>& all, std::int64_t layer) {
    const auto [L, B, T_max, C] = all.shape;
    return {all.data + layer * B * T_max * C, {B, T_max, C}};
  }

  Tensor<T, 4> keys_, values_;  // (L, B, T_max, C)
};

}  // namespace llmc
