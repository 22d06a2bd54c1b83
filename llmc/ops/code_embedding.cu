#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "llmc/ops/checks.h"
#include "llmc/ops/code_embedding.h"
#include "llmc/ops/elementwise.h"
#include "llmc/ops/gemm/code_matrix.h"
#include "llmc/ops/instantiate.h"
#include "llmc/ops/quantize.h"

namespace llmc {

// One row per block. A thread computes the terms of one chunk that are neighbours in memory, or
// all of them where one thread does the work of a block.
template <class T, class Layout>
__global__ void code_embedding_kernel(T* out, const std::int32_t* tokens, CodeMatrix wte,
                                      const T* wpe, const std::int32_t* positions) {
  constexpr int N = 4;
  const std::int64_t row = block_x(), C = wte.K;
  const std::int64_t token = tokens[row];
  const T* const position_row = wpe + positions[row] * C;
  const float scale = wte.scales[token];
  for (std::int64_t c = thread_index() * N; c < C;
       c += cooperating_threads(block_size()) * std::int64_t{N}) {
    const Vec<std::int8_t, N> codes = load_vec<N>(wte.codes + code_place<Layout>(c, token, C));
    Vec<float, N> numbers;
    for (int i = 0; i < N; ++i) numbers[i] = static_cast<float>(codes[i]);
    store_floats(out + row * C + c, fused_multiply_add(to_floats(numbers), Floats<N>(scale),
                                                       load_floats<N>(position_row + c)));
  }
}

template <class T, class Layout>
void code_embedding(Tensor<T, 2> out, Tensor<const std::int32_t, 1> tokens, const CodeMatrix& wte,
                    In<T, 2> wpe, Tensor<const std::int32_t, 1> positions, Stream& stream) {
  const std::int64_t rows = out.shape[0], C = out.shape[1];
  require_vector_rows("code_embedding", C);
  require(wte.K == C, "code_embedding: the token embeddings have another number of channels");
  check_shape("tokens", tokens, {rows});
  check_shape("positions", positions, {rows});
  check_shape("wpe", wpe, {wpe.shape[0], C});
  if (rows == 0) return;
  launch(code_embedding_kernel<T, Layout>, Grid{rows, 1, 1}, row_block_threads<T>(C), 0, stream,
         out.data, tokens.data, wte, wpe.data, positions.data);
}

LLMC_INSTANTIATE(code_embedding)
}  // namespace llmc
