#include <cstdint>
#include <type_traits>

#include "llmc/device/device.h"
#include "llmc/ops/attention/attention_layout.h"
#include "llmc/ops/attention/prompt_attention.h"
#include "llmc/ops/attention/prompt_attention_fma.h"
#include "llmc/ops/attention/prompt_attention_mma.h"
#include "llmc/ops/attention/prompt_attention_tile.h"
#include "llmc/ops/instantiate.h"

namespace llmc {

template <class T, class KV>
void prompt_attention(Tensor<T, 2> out, In<T, 2> q, InCache<KV> keys, InCache<KV> values,
                      Tensor<const PromptTile, 1> tiles, std::int64_t NH, Stream& stream,
                      std::optional<float> scale) {
  static_assert(kIsCacheOf<T, KV>);
  const auto [slots, T_max, cache_C] = keys.numbers.shape;
  const AttentionShape shape = check_attention(
      "out", make_tensor(out.data, std::int64_t{1}, out.shape[0], out.shape[1]), NH);
  const std::int64_t C = shape.C();
  check_shape("q", q, {shape.T, C});
  check_alignment("q", q.data);
  check_cache_rows("keys", keys, slots, T_max, C, NH);
  check_cache_rows("values", values, slots, T_max, C, NH);
  require(T_max <= kMaxAttentionTime,
          "prompt_attention: the cache has more than 2^24 rows per sequence");
  const PromptTensors<T, KV> tensors{out.data,
                                     q.data,
                                     keys.numbers.data,
                                     values.numbers.data,
                                     keys.scales.data,
                                     values.scales.data,
                                     tiles.data,
                                     T_max,
                                     C,
                                     static_cast<int>(shape.HS),
                                     attention_scale(shape, scale) * kLog2E};
  if constexpr (std::is_same_v<T, float> || kOneThreadBlocks) {
    launch_prompt_attention_fma(tensors, tiles.shape[0], NH, stream);
  } else {
    launch_prompt_attention_mma(tensors, tiles.shape[0], NH, stream);
  }
}

LLMC_INSTANTIATE_CACHES(prompt_attention)

}  // namespace llmc
