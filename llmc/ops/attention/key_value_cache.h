// Key-value cache: the keys and values of past tokens, kept for the tokens that follow.
//
// keys and values (B, T_max, C) of one layer: row t of sequence b belongs to the token at position
// t. Head h is columns h * HS .. (h + 1) * HS - 1, as in packed qkv.
#pragma once

#include <algorithm>
#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/checks.h"

namespace llmc {

// Grid (time step, sequence): one block copies the k and the v of one token.
template <class T>
__global__ void store_keys_values_kernel(T* keys, T* values, const T* qkv,
                                         const std::int32_t* first_position, std::int64_t T_max,
                                         std::int64_t C) {
  constexpr int N = kVecSize<T>;
  const std::int64_t t = block_x(), b = block_y();
  const T* k = qkv + (b * grid_x() + t) * 3 * C + C;
  const std::int64_t row = b * T_max + first_position[b] + t;
  for (std::int64_t c = thread_index() * N; c < C; c += block_size() * N) {
    const Vec<T, N> key = load_vec<N>(k + c);
    const Vec<T, N> value = load_vec<N>(k + C + c);
    store_vec(keys + row * C + c, key);
    store_vec(values + row * C + c, value);
  }
}

// Writes the k and v of qkv (B, T, 3C) to rows first_position[b] .. first_position[b] + T - 1 of
// sequence b in keys and values (B, T_max, C); no other row changes. first_position (B) is in
// device memory, and the caller guarantees that these rows exist. C is a multiple of 8. Throws an
// Error if shapes do not match.
template <class T>
void store_keys_values(Tensor<T, 3> keys, Tensor<T, 3> values, In<T, 3> qkv,
                       Tensor<const std::int32_t, 1> first_position, Stream& stream) {
  const auto [B, T_max, C] = keys.shape;
  const std::int64_t T_new = qkv.shape[1];
  require_vector_rows("store_keys_values", C);
  check_shape("keys", keys, {B, T_max, C});
  check_shape("values", values, {B, T_max, C});
  check_shape("qkv", qkv, {B, T_new, 3 * C});
  check_shape("first_position", first_position, {B});
  require(T_new <= T_max,
          "store_keys_values: more new tokens per sequence than the cache has rows");
  const auto threads = std::min<std::int64_t>(256, round_up(ceil_div(C, kVecSize<T>), 32));
  launch(store_keys_values_kernel<T>, Grid{T_new, B, 1}, static_cast<int>(threads), 0, stream,
         keys.data, values.data, qkv.data, first_position.data, T_max, C);
}

}  // namespace llmc
