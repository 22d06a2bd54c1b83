// Shared by all attention kernels: the layout of heads in packed qkv, the keys that a query sees,
// and the checks of sizes.
//
// Sizes: B batch, T time, NH heads, HS head size, C = NH * HS.
// qkv (B, T, 3C): row t of batch row b holds q, k and v one after the other, each C wide. Head h is
// columns h * HS .. (h + 1) * HS - 1 of each. Kernels read and write this layout, so no permuted
// copy of q, k or v ever exists.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "llmc/device/device.h"

namespace llmc {

inline constexpr std::int64_t kMaxHeadSize = 128;
inline constexpr std::int64_t kMaxAttentionTime = 1 << 24;  // positions are int in kernels

// Offsets are 64-bit: B * T * 3C exceeds 2^31 at ordinary batch sizes.
struct AttentionShape {
  std::int64_t B, T, NH, HS;

  __host__ __device__ std::int64_t C() const { return NH * HS; }
  __host__ __device__ std::int64_t qkv_stride() const { return 3 * C(); }
  // First element of q of (batch row b, time t, head h). k starts C elements after it, v 2C.
  __host__ __device__ std::int64_t qkv_offset(std::int64_t b, std::int64_t t,
                                              std::int64_t h) const {
    return (b * T + t) * 3 * C() + h * HS;
  }
  // The corresponding element of out (B, T, C).
  __host__ __device__ std::int64_t out_offset(std::int64_t b, std::int64_t t,
                                              std::int64_t h) const {
    return (b * T + t) * C() + h * HS;
  }
};

// Query i of one batch row sees the keys doc_start[i] .. i: its own document up to itself.
// Documents are contiguous, so doc_start never decreases from one query to the next. The range
// tests below depend on that and on doc_start[i] <= i. Queries at or beyond T exist only as padding
// of a tile and are treated as causal without documents.
struct Visibility {
  const std::int32_t* doc_start;  // (T) of this batch row, or nullptr: one document
  int T;

  __device__ int first_key(int query) const {
    return doc_start == nullptr || query >= T ? 0 : doc_start[query];
  }
  __device__ bool sees(int query, int key) const { return key <= query && key >= first_key(query); }
  // Returns true if no query of q0..q1 sees any key of k0..k1, or if all these queries are padding.
  __device__ bool none_visible(int q0, int q1, int k0, int k1) const {
    return k0 > q1 || q0 >= T || first_key(q0) > k1;
  }
  // Returns true if every query of q0..q1 sees every key of k0..k1: no mask is needed.
  __device__ bool all_visible(int q0, int q1, int k0, int k1) const {
    return k1 <= q0 && first_key(q1 < T ? q1 : T - 1) <= k0;
  }
};

inline constexpr float kMinusInfinity = -__builtin_huge_valf();
inline constexpr float kPlusInfinity = __builtin_huge_valf();

// The factor of the scores: `scale`, or 1 / sqrt(HS) if it is not given. Throws unless it is finite
// and above 0, which kernels rely on when they mask scores.
inline float attention_scale(const AttentionShape& shape, std::optional<float> scale) {
  if (!scale) return static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.HS)));
  require(*scale > 0 && std::isfinite(*scale), "attention: the scale of the scores is not above 0");
  return *scale;
}

// Kernels move 16 bytes at a time.
inline void check_alignment(const char* name, const void* data) {
  if (reinterpret_cast<std::uintptr_t>(data) % 16 != 0) {
    fail("attention: tensor '" + std::string(name) + "' does not start at a multiple of 16 bytes");
  }
}

// Returns the sizes given by out (B, T, C) and the number of heads. Throws an Error if attention
// does not support them or if out does not start at a multiple of 16 bytes.
template <class T>
AttentionShape check_attention(const char* name, const Tensor<T, 3>& out, std::int64_t NH) {
  const auto [B, time, C] = out.shape;
  if (NH < 1 || C % NH != 0) {
    fail("attention: " + std::to_string(C) + " channels are not a multiple of " +
             std::to_string(NH) + " heads",
         "use a number of channels that is a multiple of the number of heads");
  }
  const std::int64_t HS = C / NH;
  if (HS < 8 || HS > kMaxHeadSize || HS % 8 != 0) {
    fail("attention: head size " + std::to_string(HS) + " (" + std::to_string(C) + " channels / " +
             std::to_string(NH) + " heads) is not supported",
         "use a head size that is a multiple of 8, from 8 to 128");
  }
  if (time < 1 || time > kMaxAttentionTime || B > 65535 || NH > 65535) {
    fail("attention: B = " + std::to_string(B) + ", T = " + std::to_string(time) +
             ", heads = " + std::to_string(NH) + " is out of range",
         "use T from 1 to 2^24, and at most 65535 batch rows and heads");
  }
  check_shape(name, out, {B, time, C});
  check_alignment(name, out.data);
  return {B, time, NH, HS};
}

// Calls f.template operator()<kHeadTile>() with the narrowest tile that holds a head.
template <class F>
void dispatch_head_tile(std::int64_t HS, F&& f) {
  if (HS <= 32) return f.template operator()<32>();
  if (HS <= 64) return f.template operator()<64>();
  return f.template operator()<128>();
}

}  // namespace llmc
