// The keys or the values of a layer in a key-value cache, as operations receive them.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "llmc/device/device.h"

namespace llmc {

// Whether numbers of type KV are codes, which need scales.
template <class KV>
inline constexpr bool kIsQuantized = std::is_same_v<std::remove_const_t<KV>, std::int8_t>;

// Whether the cache of a model of type T may be stored as KV.
template <class T, class KV>
inline constexpr bool kIsCacheOf = std::is_same_v<T, KV> || kIsQuantized<KV> ||
                                   (std::is_same_v<T, float> && sizeof(KV) == 2);

// numbers (slots, T_max, C). With KV int8 these are codes, and scales (slots, T_max, NH) has one
// scale per token and head: a number is its code times the scale (ops/quantize.h). Other caches
// have no scales, so a tensor of numbers converts to CacheRows.
template <class KV>
struct CacheRows {
  using Scale = std::conditional_t<std::is_const_v<KV>, const float, float>;
  Tensor<KV, 3> numbers;
  Tensor<Scale, 3> scales;

  template <class Numbers>
  requires(std::is_convertible_v<Numbers, Tensor<KV, 3>>) CacheRows(const Numbers& numbers)
      : numbers(numbers) {}
  template <class Other>
  requires(std::is_same_v<const Other, KV>) CacheRows(const CacheRows<Other>& other)
      : numbers(other.numbers), scales(other.scales) {}
  CacheRows(Tensor<KV, 3> numbers, Tensor<Scale, 3> scales) : numbers(numbers), scales(scales) {}
};

// Parameters that take no part in template deduction, as In and Out (device/tensor.h).
template <class KV>
using InCache = std::type_identity_t<CacheRows<const KV>>;
template <class KV>
using OutCache = std::type_identity_t<CacheRows<KV>>;

// Throws an Error if shapes differ, or if the numbers do not start at a multiple of 16 bytes
// (codes: 8 bytes, because every row of codes does).
template <class KV>
void check_cache_rows(const char* name, const CacheRows<KV>& rows, std::int64_t slots,
                      std::int64_t T_max, std::int64_t C, std::int64_t NH) {
  constexpr int kAlignment = kIsQuantized<KV> ? 8 : 16;
  check_shape(name, rows.numbers, {slots, T_max, C});
  if (kIsQuantized<KV>) {
    const std::string scales = std::string(name) + " scales";
    check_shape(scales.c_str(), rows.scales, {slots, T_max, NH});
  }
  if (reinterpret_cast<std::uintptr_t>(rows.numbers.data) % kAlignment == 0) return;
  fail(std::string("tensor '") + name + "' of the cache does not start at a multiple of " +
       std::to_string(kAlignment) + " bytes");
}

}  // namespace llmc
