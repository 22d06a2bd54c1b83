// Attention of prompts by one thread per block (device/block_threads.h): the loop of
// one_thread_forward.h over the rows of a cache.
#pragma once

#include <cstdint>
#include <type_traits>

#include "llmc/device/device.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/one_thread_forward.h"
#include "llmc/ops/attention/prompt_attention_tile.h"
#include "llmc/ops/attention/prompt_attention_values.h"

namespace llmc {

// Words of bf16 need queries and a cache of bf16.
template <class T, class KV>
using PromptElement = std::conditional_t<std::is_same_v<T, KV>, WordElement<T>, float>;

// Attends the queries of a block. With several threads per block this does not compile.
template <int kHeadTile, class T, class KV>
__device__ void attend_in_one_thread(const PromptTensors<T, KV>& tensors, const PromptPart& part) {
  using E = PromptElement<T, KV>;
  using Queries = OneThreadQueries<E, kHeadTile>;
  constexpr int kKeys = Queries::kKeys;
  const std::int64_t C = tensors.C;
  const int HS = tensors.HS;
  SharedMemory shared;
  Queries queries(shared, tensors.scale_log2, HS);
  queries.load_queries(SourceRows<T>{tensors.q + part.offset, C, part.rows, HS});
  for (int k0 = 0; k0 < part.num_keys; k0 += kKeys) {
    const auto rows = [&](const KV* cache, const float* scales) {
      const auto scaling = part.template scaling<KV>(scales, k0);
      return SourceRows<KV, decltype(scaling)>{cache + part.cache + k0 * C, C, part.num_keys - k0,
                                               HS, scaling};
    };
    load_word_rows<E>(queries.keys, rows(tensors.keys, tensors.key_scales));
    const auto values = rows(tensors.values, tensors.value_scales);
    load_word_steps<E>(queries.values, values);
    keep_finite_words<E>(queries.out, queries.values, values, part.q0, k0);
    queries.template add_keys<false>(SeenKeys{part.q0, k0, nullptr}, part.rows,
                                     [](const auto&, int, int) {});
  }
  queries.divide();
  make_zeros_positive(queries.out);
  store_sums(tensors.out + part.offset, C, part.rows, HS, queries.out, 1.0f);
}

}  // namespace llmc
