#include <algorithm>

#include "llmc/device/device.h"
#include "llmc/device/floats.h"
#include "llmc/ops/array_sum.h"
#include "llmc/ops/elementwise.h"
#include "llmc/ops/instantiate.h"
#include "llmc/ops/optimizer/global_norm.h"
#include "llmc/ops/optimizer/optimizer_state.h"

namespace llmc {

std::int64_t squared_norm_count(std::int64_t n) {
  return ceil_div(n, kNormPiece);
}

// Pieces of a block, one per warp on a GPU.
inline constexpr int kNormPiecesPerBlock = 8;

// Sum of the squares of x[0 .. count), by one warp. count is at most kNormPiece.
template <class T>
__device__ __forceinline__ float squared_norm_of_piece(const T* x, std::int64_t count) {
  constexpr int N = kOneThreadBlocks ? 32 : kVecSize<T>;
  constexpr int kLanes = cooperating_threads(32);
  constexpr int kVectors = kNormPiece / (kLanes * N);
  // A GPU loads all vectors before it adds the first.
  constexpr int kPrefetchVectors = kOneThreadBlocks ? 1 : kVectors;
  Floats<N> sums;  // one chain of additions per vector element
  for (int j = 0; j < kVectors; j += kPrefetchVectors) {
    Vec<T, N> v[kPrefetchVectors];
    for (int a = 0; a < kPrefetchVectors; ++a) {
      const int i = ((j + a) * kLanes + lane()) * N;
      v[a] = load_up_to<N>(x + i, count - i);
    }
    for (int a = 0; a < kPrefetchVectors; ++a) sums += to_floats(v[a]) * to_floats(v[a]);
  }
  return warp_sum(sum_of(sums));
}

template <class T>
__global__ void squared_norm_partials_kernel(float* partials, const T* x, std::int64_t n) {
  constexpr int kPiecesPerWarp = kOneThreadBlocks ? kNormPiecesPerBlock : 1;
  const int warps = cooperating_threads(warps_per_block());
  for (int p = 0; p < kPiecesPerWarp; ++p) {
    const std::int64_t piece = (block_x() * kPiecesPerWarp + p) * warps + warp_index();
    const std::int64_t first = piece * kNormPiece;
    if (first >= n) return;
    const float sum =
        squared_norm_of_piece(x + first, n - first < kNormPiece ? n - first : kNormPiece);
    if (lane() == 0) partials[piece] = sum;
  }
}

template <class T>
void squared_norm_partials(float* partials, const T* x, std::int64_t n, Stream& stream) {
  const std::int64_t pieces = squared_norm_count(n);
  const int pieces_per_block =
      static_cast<int>(std::clamp<std::int64_t>(pieces, 1, kNormPiecesPerBlock));
  launch(squared_norm_partials_kernel<T>,
         Grid{ceil_div(pieces, kOneThreadBlocks ? kNormPiecesPerBlock : pieces_per_block), 1, 1},
         cooperating_threads(pieces_per_block * 32), 0, stream, partials, x, n);
}

__global__ void finish_global_norm_kernel(OptimizerState* state, const float* partials,
                                          std::int64_t count, float max_norm, const float* loss) {
  SharedMemory shared;
  float* scratch = shared.take<float>(kBlockScratch);
  const float scaled_norm = std::sqrt(array_sum(partials, count, scratch));
  if (thread_index() > 0) return;
  const float unscale = state->loss_scale > 0.0f ? 1.0f / state->loss_scale : 1.0f;
  const float norm = unscale * scaled_norm;
  state->step_loss_scale = state->loss_scale;
  state->gradient_norm = norm;
  // 1e-6 as in torch.nn.utils.clip_grad_norm_: runs are compared with PyTorch runs.
  const float clip = max_norm > 0.0f ? std::fmin(1.0f, max_norm / (norm + 1e-6f)) : 1.0f;
  state->gradient_scale = clip * unscale;
  const bool loss_finite = loss == nullptr || std::isfinite(*loss);
  state->finite = std::isfinite(norm) && loss_finite;
  state->overflowed = !std::isfinite(norm) && loss_finite;
}

void finish_global_norm(OptimizerState* state, const float* partials, std::int64_t count,
                        float max_norm, const float* loss, Stream& stream) {
  launch(finish_global_norm_kernel, Grid{1, 1, 1}, cooperating_threads(array_sum_threads(count)),
         array_sum_shared(), stream, state, partials, count, max_norm, loss);
}

LLMC_INSTANTIATE(squared_norm_partials)

}  // namespace llmc
