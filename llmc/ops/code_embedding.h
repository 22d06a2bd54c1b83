// Token plus position embedding with INT8 token embeddings, for inference.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/ops/gemm/code_matrix.h"

namespace llmc {

// Writes out (rows, C): wte[tokens[r]] + wpe[positions[r]], the sum of the exact number that a code
// stands for and wpe, as embedding_forward does with scales. wte is the weight (C, V) of the
// logits; tokens and positions (rows) are in device memory, and the caller guarantees that they
// exist. C is a multiple of 8.
template <class T, class Layout = CodeLayout>
void code_embedding(Tensor<T, 2> out, Tensor<const std::int32_t, 1> tokens, const CodeMatrix& wte,
                    In<T, 2> wpe, Tensor<const std::int32_t, 1> positions, Stream& stream);

}  // namespace llmc
