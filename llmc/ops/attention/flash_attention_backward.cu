#include "llmc/ops/attention/attention.h"
#include "llmc/ops/attention/attention_choice.h"
#include "llmc/ops/attention/attention_row_terms.h"
#include "llmc/ops/attention/flash_attention_backward.h"
#include "llmc/ops/attention/flash_attention_backward_fma.h"
#include "llmc/ops/attention/flash_attention_backward_one_thread.h"
#include "llmc/ops/instantiate.h"

namespace llmc {

std::int64_t flash_attention_backward_scratch(std::int64_t B, std::int64_t T, std::int64_t NH,
                                              [[maybe_unused]] std::int64_t HS) {
  return row_terms_floats(B, T, NH);
}

template <class T>
void flash_attention_backward(Tensor<T, 3> d_qkv, In<T, 3> d_out, In<T, 3> qkv, In<T, 3> out,
                              In<float, 3> lse, std::int64_t NH, const std::int32_t* doc_start,
                              Tensor<float, 1> scratch, Stream& stream, const Dropout& dropout,
                              std::optional<float> scale) {
  const AttentionShape shape = check_attention("out", out, NH);
  check_shape("d_out", d_out, {shape.B, shape.T, shape.C()});
  check_shape("d_qkv", d_qkv, {shape.B, shape.T, 3 * shape.C()});
  check_shape("qkv", qkv, {shape.B, shape.T, 3 * shape.C()});
  check_shape("lse", lse, {shape.B, NH, shape.T});
  check_alignment("d_qkv", d_qkv.data);
  check_alignment("d_out", d_out.data);
  check_alignment("qkv", qkv.data);
  check_row_terms_scratch(scratch, shape);
  const ProfileScope scope("attention backward", stream, attention_work(shape, doc_start, 5));
  const RowTerms terms =
      compute_row_terms(scratch.data, out.data, d_out.data, lse.data, shape, stream);
  dispatch_dropout(dropout, [&]<bool kDropout>() {
    if constexpr (kTensorCoreAttention<T>) {
      launch_flash_backward<T, kDropout>(d_qkv.data, d_out.data, qkv.data, terms, doc_start, shape,
                                         attention_scale(shape, scale), dropout, stream);
    } else if constexpr (kOneThreadBlocks) {
      launch_flash_backward_one_thread<T, kDropout>(d_qkv.data, d_out.data, qkv.data, terms,
                                                    doc_start, shape, attention_scale(shape, scale),
                                                    dropout, stream);
    } else {
      launch_flash_backward_fma<T, kDropout>(d_qkv.data, d_out.data, qkv.data, terms, doc_start,
                                             shape, attention_scale(shape, scale), dropout, stream);
    }
  });
}

LLMC_INSTANTIATE(flash_attention_backward)

}  // namespace llmc
