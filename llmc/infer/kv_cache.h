// The key-value cache: the keys and values of all tokens that each layer has read, so that a new
// token costs one row of work.
#pragma once

#include <cstdint>

#include "llmc/config/model_config.h"
#include "llmc/device/device.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/ops/cache_rows.h"

namespace llmc {

template <class T>
class KvCache {
 public:
  // Room for T_max tokens of each of B sequences, stored as T; int8 codes have scales in addition.
  // Reserves memory in the plan; usable after plan.allocate().
  KvCache(const ModelConfig& config, std::int64_t B, std::int64_t T_max, MemoryPlan& plan) {
    plan.reserve("key-value cache", keys_, config.layers, B, T_max, config.channels);
    plan.reserve("key-value cache", values_, config.layers, B, T_max, config.channels);
    if (!kIsQuantized<T>) return;
    plan.reserve("key-value cache", key_scales_, config.layers, B, T_max, config.heads);
    plan.reserve("key-value cache", value_scales_, config.layers, B, T_max, config.heads);
  }
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  std::int64_t capacity() const { return keys_.shape[2]; }  // T_max

  // Bytes of a token in all layers, with its scales.
  static std::int64_t bytes_per_token(const ModelConfig& config) {
    const std::int64_t number_bytes = config.channels * static_cast<std::int64_t>(sizeof(T));
    const std::int64_t scale_bytes =
        kIsQuantized<T> ? config.heads * static_cast<std::int64_t>(sizeof(float)) : 0;
    return 2 * config.layers * (number_bytes + scale_bytes);
  }

  // (B, T_max, C) of one layer, and the scales (B, T_max, NH).
  CacheRows<T> keys(std::int64_t layer) const {
    return {layer_view(keys_, layer), layer_view(key_scales_, layer)};
  }
  CacheRows<T> values(std::int64_t layer) const {
    return {layer_view(values_, layer), layer_view(value_scales_, layer)};
  }

 private:
  template <class Number>
  static Tensor<Number, 3> layer_view(const Tensor<Number, 4>& all, std::int64_t layer) {
    const auto [L, B, T_max, width] = all.shape;
    return {all.data + layer * B * T_max * width, {B, T_max, width}};
  }

  Tensor<T, 4> keys_, values_;                  // (L, B, T_max, C)
  Tensor<float, 4> key_scales_, value_scales_;  // (L, B, T_max, NH); no data unless T is int8
};

}  // namespace llmc
