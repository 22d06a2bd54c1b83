// The launchers of the ops and the classes of the model, which are compiled once for all programs
// and tests. Without this header each of them would optimise its own copy of the same kernels.
//
// The Makefile includes this header before each program and test, to declare them. The .cu files of
// this folder define them from the same lists. A launcher that is in no list still works: each file
// that uses it compiles its own copy.
#pragma once

#include "llmc/eval/row_scorer.h"
#include "llmc/infer/decoder.h"
#include "llmc/model/engine.h"
#include "llmc/model/gpt2.h"
#include "llmc/ops/attention/attention.h"
#include "llmc/ops/attention/decode_attention.h"
#include "llmc/ops/attention/prompt_attention.h"
#include "llmc/ops/attention/standard_attention.h"
#include "llmc/ops/bias_gradient.h"
#include "llmc/ops/classifier.h"
#include "llmc/ops/classifier_slices.h"
#include "llmc/ops/convert.h"
#include "llmc/ops/dropout.h"
#include "llmc/ops/embedding.h"
#include "llmc/ops/gelu.h"
#include "llmc/ops/gemm/linear.h"
#include "llmc/ops/gemm/matmul.h"
#include "llmc/ops/gemm/row_product.h"
#include "llmc/ops/gemm/row_product_kernels.h"
#include "llmc/ops/layernorm.h"
#include "llmc/ops/optimizer/adamw.h"
#include "llmc/ops/optimizer/global_norm.h"
#include "llmc/train/training_state.h"

// Each list takes EXTERN (`extern` to declare, empty to define) and a dtype.

#define LLMC_FLASH_FORWARD(EXTERN, T)                                                          \
  EXTERN template void flash_attention_forward<T>(Tensor<T, 3>, Tensor<float, 3>, In<T, 3>,    \
                                                  std::int64_t, const std::int32_t*, Stream&); \
  EXTERN template void flash_attention_forward<T>(Tensor<T, 3>, Tensor<float, 3>, In<T, 3>,    \
                                                  std::int64_t, const std::int32_t*,           \
                                                  const Dropout&, Stream&);

#define LLMC_FLASH_BACKWARD(EXTERN, T)                                                             \
  EXTERN template void flash_attention_backward<T>(                                                \
      Tensor<T, 3>, In<T, 3>, In<T, 3>, In<T, 3>, In<float, 3>, std::int64_t, const std::int32_t*, \
      const Dropout&, Tensor<float, 1>, Stream&);

#define LLMC_OTHER_ATTENTION(EXTERN, T)                                                            \
  EXTERN template void standard_attention_forward<T>(Tensor<T, 3>, Tensor<float, 3>, Out<T, 4>,    \
                                                     In<T, 3>, std::int64_t, const std::int32_t*,  \
                                                     Stream&, const Dropout&);                     \
  EXTERN template void standard_attention_backward<T>(Tensor<T, 3>, Out<T, 4>, In<T, 3>, In<T, 3>, \
                                                      In<T, 3>, In<float, 3>, std::int64_t,        \
                                                      Tensor<float, 1>, Stream&, const Dropout&);

#define LLMC_ROW_OPS(EXTERN, T)                                                                    \
  EXTERN template void layernorm_forward<T>(Tensor<T, 2>, Tensor<float, 1>, Tensor<float, 1>,      \
                                            In<T, 2>, In<T, 1>, In<T, 1>, float, Stream&);         \
  EXTERN template void residual_layernorm_forward<T>(Tensor<T, 2>, Tensor<T, 2>, Tensor<float, 1>, \
                                                     Tensor<float, 1>, In<T, 2>, In<T, 2>,         \
                                                     In<T, 1>, In<T, 1>, float, Stream&);          \
  EXTERN template void layernorm_backward<T>(Tensor<T, 2>, Tensor<float, 1>, Tensor<float, 1>,     \
                                             In<T, 2>, In<T, 2>, In<float, 1>, In<float, 1>,       \
                                             In<T, 1>, In<T, 2>, Tensor<float, 1>, Stream&);       \
  EXTERN template void fused_classifier<T>(Tensor<T, 2>, Tensor<float, 1>,                         \
                                           Tensor<const std::int32_t, 1>, float, std::int64_t,     \
                                           Stream&, const float*);                                 \
  EXTERN template void classifier_loss<T>(Tensor<float, 1>, In<T, 2>,                              \
                                          Tensor<const std::int32_t, 1>, std::int64_t, Stream&);   \
  EXTERN template void classifier_statistics<T>(                                                   \
      Tensor<float, 2>, In<T, 2>, Tensor<const std::int32_t, 1>, VocabularySlice, Stream&);        \
  EXTERN template void classifier_from_statistics<T>(                                              \
      Tensor<T, 2>, Tensor<float, 1>, Tensor<const std::int32_t, 1>, In<float, 2>, float,          \
      VocabularySlice, Stream&, const float*);

#define LLMC_OTHER_OPS(EXTERN, T)                                                                  \
  EXTERN template void bias_gradient<T>(Tensor<float, 1>, In<T, 2>, Tensor<float, 1>, Stream&);    \
  EXTERN template void apply_dropout<T>(Tensor<T, 2>, In<T, 2>, std::int64_t, const Dropout&,      \
                                        Stream&);                                                  \
  EXTERN template void embedding_forward<T>(Tensor<T, 2>, Tensor<const std::int32_t, 1>, In<T, 2>, \
                                            In<T, 2>, const std::int32_t*, std::int64_t,           \
                                            VocabularySlice, Stream&);                             \
  EXTERN template void embedding_forward<T>(Tensor<T, 2>, Tensor<const std::int32_t, 1>, In<T, 2>, \
                                            In<float, 1>, In<T, 2>, const std::int32_t*,           \
                                            std::int64_t, VocabularySlice, Stream&);               \
  EXTERN template void token_embedding_backward<T>(Tensor<float, 2>, In<T, 2>, TokenBucketsView,   \
                                                   VocabularySlice, Stream&);                      \
  EXTERN template void position_embedding_backward<T>(Tensor<float, 2>, In<T, 2>, std::int64_t,    \
                                                      std::int64_t, Stream&);                      \
  EXTERN template void gelu_forward<T>(Tensor<T, 2>, In<T, 2>, Stream&);                           \
  EXTERN template void gelu_backward<T>(Tensor<T, 2>, In<T, 2>, In<T, 2>, Stream&);                \
  EXTERN template void linear_forward<T>(Tensor<T, 2>, In<T, 2>, In<T, 2>, In<T, 1>, Gemm&,        \
                                         Stream&);                                                 \
  EXTERN template void linear_backward<T>(Tensor<T, 2>, Tensor<float, 2>, Tensor<float, 1>,        \
                                          In<T, 2>, In<T, 2>, In<T, 2>, Tensor<float, 1>, Gemm&,   \
                                          Stream&);                                                \
  EXTERN template void matmul(Tensor<T, 2>, Tensor<const T, 2>, Transpose, Tensor<const T, 2>,     \
                              Transpose, float, const T*, Gemm&, Stream&);                         \
  EXTERN template void adamw<T>(float*, T*, float*, float*, const float*, std::int64_t,            \
                                const OptimizerOptions&, double, bool, const OptimizerState*,      \
                                Stream&, const NearestRounding&);

// Products and attention of generation, with a cache in KV.
#define LLMC_CACHE_OPS(EXTERN, T, KV)                                                            \
  EXTERN template void run_row_product(const RowProductCall<T, T, KV>&, Stream&);                \
  EXTERN template void launch_row_product(const RowProductCall<T, T, KV>&, Stream&);             \
  EXTERN template void decode_attention<T, KV>(Tensor<T, 2>, In<T, 2>, InCache<KV>, InCache<KV>, \
                                               Tensor<const std::int32_t, 1>, Tensor<float, 1>,  \
                                               Tensor<std::int32_t, 1>, std::int64_t, Stream&);  \
  EXTERN template void prompt_attention<T, KV>(Tensor<T, 2>, In<T, 2>, InCache<KV>, InCache<KV>, \
                                               Tensor<const PromptTile, 1>, std::int64_t,        \
                                               Stream&);

// The logits, which are fp32. Those of an fp32 model are in the list above.
#define LLMC_LOGITS(EXTERN, T)                                                       \
  EXTERN template void run_row_product(const RowProductCall<T, float, T>&, Stream&); \
  EXTERN template void launch_row_product(const RowProductCall<T, float, T>&, Stream&);

#define LLMC_GENERATION(EXTERN, T) \
  LLMC_CACHE_OPS(EXTERN, T, T) LLMC_CACHE_OPS(EXTERN, T, std::int8_t)

#define LLMC_MODEL(EXTERN, T)                        \
  EXTERN template class Block<T>;                    \
  EXTERN template class Gpt2<T>;                     \
  EXTERN template class Activations<T>;              \
  EXTERN template class ModelRunner<T>;              \
  EXTERN template class Weights<T>;                  \
  EXTERN template class TrainingState<T>;            \
  EXTERN template class Engine<T>;                   \
  EXTERN template class Engine<T, TrainingState<T>>; \
  EXTERN template class Decoder<T>;                  \
  EXTERN template class RowScorer<T>;

#define LLMC_HALF_DTYPES(LIST, EXTERN) LIST(EXTERN, bf16) LIST(EXTERN, fp16)
#define LLMC_ALL_DTYPES(LIST, EXTERN) LIST(EXTERN, float) LLMC_HALF_DTYPES(LIST, EXTERN)

namespace llmc {
LLMC_ALL_DTYPES(LLMC_FLASH_FORWARD, extern)
LLMC_ALL_DTYPES(LLMC_FLASH_BACKWARD, extern)
LLMC_ALL_DTYPES(LLMC_OTHER_ATTENTION, extern)
LLMC_ALL_DTYPES(LLMC_ROW_OPS, extern)
LLMC_ALL_DTYPES(LLMC_OTHER_OPS, extern)
LLMC_ALL_DTYPES(LLMC_GENERATION, extern)
LLMC_HALF_DTYPES(LLMC_LOGITS, extern)
LLMC_ALL_DTYPES(LLMC_MODEL, extern)
}  // namespace llmc
