#include "llmc/ops/attention/attention.h"
#include "llmc/ops/attention/attention_choice.h"
#include "llmc/ops/attention/flash_attention_forward.h"
#include "llmc/ops/attention/flash_attention_forward_fma.h"
#include "llmc/ops/attention/flash_attention_forward_one_thread.h"
#include "llmc/ops/instantiate.h"

namespace llmc {

template <class T>
void flash_attention_forward(Tensor<T, 3> out, Tensor<float, 3> lse, In<T, 3> qkv, std::int64_t NH,
                             const std::int32_t* doc_start, Stream& stream, const Dropout& dropout,
                             std::optional<float> scale) {
  const AttentionShape shape = check_attention("out", out, NH);
  check_shape("qkv", qkv, {shape.B, shape.T, 3 * shape.C()});
  check_shape("lse", lse, {shape.B, NH, shape.T});
  check_alignment("qkv", qkv.data);
  const ProfileScope scope("attention forward", stream, attention_work(shape, doc_start, 2));
  dispatch_dropout(dropout, [&]<bool kDropout>() {
    if constexpr (kTensorCoreAttention<T>) {
      launch_flash_forward<T, kDropout>(out.data, lse.data, qkv.data, doc_start, shape,
                                        attention_scale(shape, scale), dropout, stream);
    } else if constexpr (kOneThreadBlocks) {
      launch_flash_forward_one_thread<T, kDropout>(out.data, lse.data, qkv.data, doc_start, shape,
                                                   attention_scale(shape, scale), dropout, stream);
    } else {
      launch_flash_forward_fma<T, kDropout>(out.data, lse.data, qkv.data, doc_start, shape,
                                            attention_scale(shape, scale), dropout, stream);
    }
  });
}

LLMC_INSTANTIATE(flash_attention_forward)

}  // namespace llmc
