// LayerNorm (Ba, Kiros and Hinton, 2016), plain and fused with the residual addition before it.
//
// Over each row x of C channels: z = (x - mean) * rstd, out = z * weight + bias, with the biased
// variance and rstd = 1 / sqrt(variance + eps).
//
// A row is read from memory once and stays in registers. Up to 1024 channels, one warp processes a
// row and its sums need no barrier; a whole block processes a wider row. The variance is the mean
// of (x - mean)^2 over those registers. E[x^2] - mean^2 would cancel if |mean| is large.
#pragma once

#include <algorithm>
#include <type_traits>

#include "llmc/device/device.h"
#include "llmc/ops/checks.h"
#include "llmc/ops/column_sum.h"

namespace llmc {

inline constexpr std::int64_t kLayerNormMaxChannels = 8192;

// Layout of a row in registers. A team (a warp or a block) processes the row; each of its threads
// holds kChunks vectors of N channels. Chunk i of thread r in a team of R threads starts at channel
// (i*R + r) * N.
template <int kChunksPerThread, bool kBlockPerRow>
struct RowLayout {
  static constexpr int kChunks = kChunksPerThread;
  static constexpr bool kWholeBlock = kBlockPerRow;
  static constexpr int kRowsPerBlock = kBlockPerRow ? 1 : 4;
  static constexpr int kMaxThreads = kBlockPerRow ? 256 : kRowsPerBlock * 32;

  // Threads per block for rows of `vectors` vectors.
  static int block_threads(std::int64_t vectors) {
    return kBlockPerRow ? static_cast<int>(round_up(ceil_div(vectors, kChunks), 32)) : kMaxThreads;
  }
};

// The calling thread's place in its team.
template <class Layout>
class RowTeam {
 public:
  __device__ explicit RowTeam(SharedMemory& shared) {
    if constexpr (Layout::kWholeBlock) scratch_ = shared.take<float>(kBlockScratch);
  }
  __device__ std::int64_t first_row() const {
    return block_x() * Layout::kRowsPerBlock + (Layout::kWholeBlock ? 0 : warp_index());
  }
  __device__ std::int64_t row_stride() const { return grid_x() * Layout::kRowsPerBlock; }
  __device__ bool is_leader() const { return member_index() == 0; }

  // First channel of this thread's chunk i. If it is >= C, the row has no such chunk.
  template <int N>
  __device__ std::int64_t channel(int i) const {
    return (i * size() + member_index()) * N;
  }
  __device__ float sum(float x) const {
    if constexpr (Layout::kWholeBlock) {
      return block_sum(x, scratch_);
    } else {
      return warp_sum(x);
    }
  }

  static std::size_t shared_bytes() {
    return Layout::kWholeBlock ? SharedLayout().add<float>(kBlockScratch).bytes() : 0;
  }

 private:
  __device__ int size() const { return Layout::kWholeBlock ? block_size() : 32; }
  __device__ int member_index() const { return Layout::kWholeBlock ? thread_index() : lane(); }
  float* scratch_ = nullptr;
};

// Calls f with the layout for rows of C channels. A run-time test skips unused vectors, so five
// layouts serve all C; 768, 1024 and 1280 (GPT-2 small to large) fit exactly. More than 1024
// channels per warp would need so many registers that too few warps remain to hide memory latency.
template <class T, class F>
void dispatch_row_layout(const char* op, std::int64_t C, F&& f) {
  constexpr int k = 8 / kVecSize<T>;  // vectors that hold 8 channels
  require_vector_rows(op, C);
  require(C <= kLayerNormMaxChannels, std::string(op) + ": " + std::to_string(C) + " channels",
          "use at most 8192 channels");
  if (C <= 256) return f(RowLayout<k, false>());
  if (C <= 768) return f(RowLayout<3 * k, false>());
  if (C <= 1024) return f(RowLayout<4 * k, false>());
  if (C <= 2048) return f(RowLayout<k, true>());
  f(RowLayout<4 * k, true>());
}

// ---- forward -------------------------------------------------------------------------------

// inp2 and residual_out are null for plain LayerNorm.
template <class T, class Layout>
__global__ void layernorm_forward_kernel(T* residual_out, T* out, float* mean_out, float* rstd_out,
                                         const T* inp1, const T* inp2, const T* weight,
                                         const T* bias, float eps, std::int64_t rows,
                                         std::int64_t C) {
  constexpr int N = kVecSize<T>;
  SharedMemory shared;
  const RowTeam<Layout> team(shared);
  const std::int64_t row = team.first_row();
  if (row >= rows) return;

  // All loads come before the first store. The compiler must assume that a store changes the data
  // of later loads, so those loads would wait for it.
  Vec<T, N> x[Layout::kChunks]{}, addend[Layout::kChunks]{};
  for (int i = 0; i < Layout::kChunks; ++i) {
    const std::int64_t c = team.template channel<N>(i);
    if (c >= C) continue;
    x[i] = load_vec<N>(inp1 + row * C + c);
    if (inp2 != nullptr) addend[i] = load_vec<N>(inp2 + row * C + c);
  }
  float sum = 0.0f;
  for (int i = 0; i < Layout::kChunks; ++i) {
    const std::int64_t c = team.template channel<N>(i);
    if (c >= C) continue;
    if (inp2 != nullptr) {
      // Rounds the sum first: the backward pass normalises what is stored.
      for (int k = 0; k < N; ++k)
        x[i][k] = from_float<T>(to_float(x[i][k]) + to_float(addend[i][k]));
      store_vec(residual_out + row * C + c, x[i]);
    }
    for (int k = 0; k < N; ++k) sum += to_float(x[i][k]);
  }
  const float mean = team.sum(sum) / static_cast<float>(C);

  float squares = 0.0f;
  for (int i = 0; i < Layout::kChunks; ++i) {
    if (team.template channel<N>(i) >= C) continue;
    for (int k = 0; k < N; ++k) {
      const float difference = to_float(x[i][k]) - mean;
      squares += difference * difference;
    }
  }
  const float rstd = 1.0f / std::sqrt(team.sum(squares) / static_cast<float>(C) + eps);

  for (int i = 0; i < Layout::kChunks; ++i) {
    const std::int64_t c = team.template channel<N>(i);
    if (c >= C) continue;
    const Vec<T, N> w = load_vec<N>(weight + c);
    const Vec<T, N> b = load_vec<N>(bias + c);
    Vec<T, N> y;
    for (int k = 0; k < N; ++k) {
      const float z = (to_float(x[i][k]) - mean) * rstd;
      y[k] = from_float<T>(z * to_float(w[k]) + to_float(b[k]));
    }
    store_vec(out + row * C + c, y);
  }
  if (team.is_leader()) {
    mean_out[row] = mean;
    rstd_out[row] = rstd;
  }
}

template <class T>
void launch_layernorm_forward(const char* op, Tensor<T, 2> residual_out, Tensor<T, 2> out,
                              Tensor<float, 1> mean, Tensor<float, 1> rstd, In<T, 2> inp1,
                              In<T, 2> inp2, In<T, 1> weight, In<T, 1> bias, float eps,
                              Stream& stream) {
  const std::int64_t rows = out.shape[0], C = out.shape[1];
  check_shape("inp", inp1, {rows, C});
  check_shape("mean", mean, {rows});
  check_shape("rstd", rstd, {rows});
  check_shape("weight", weight, {C});
  check_shape("bias", bias, {C});
  dispatch_row_layout<T>(op, C, [&]<class Layout>(Layout) {
    launch(layernorm_forward_kernel<T, Layout>, Grid{ceil_div(rows, Layout::kRowsPerBlock), 1, 1},
           Layout::block_threads(C / kVecSize<T>), RowTeam<Layout>::shared_bytes(), stream,
           residual_out.data, out.data, mean.data, rstd.data, inp1.data, inp2.data, weight.data,
           bias.data, eps, rows, C);
  });
}

// Writes out (rows, C), mean (rows, fp32) and rstd (rows, fp32) from inp (rows, C), weight (C) and
// bias (C). C is a multiple of 8, at most 8192. out may be inp if inp is not needed afterwards.
template <class T>
void layernorm_forward(Tensor<T, 2> out, Tensor<float, 1> mean, Tensor<float, 1> rstd, In<T, 2> inp,
                       In<T, 1> weight, In<T, 1> bias, float eps, Stream& stream) {
  const ProfileScope scope("layernorm forward", stream, memory_traffic(out, inp));
  launch_layernorm_forward<T>("layernorm_forward", {}, out, mean, rstd, inp, {}, weight, bias, eps,
                              stream);
}

// residual_out = inp1 + inp2 (rounded to T), out = LayerNorm(residual_out); all (rows, C). The
// other arguments are as in layernorm_forward. residual_out may be inp1 or inp2.
template <class T>
void residual_layernorm_forward(Tensor<T, 2> residual_out, Tensor<T, 2> out, Tensor<float, 1> mean,
                                Tensor<float, 1> rstd, In<T, 2> inp1, In<T, 2> inp2,
                                In<T, 1> weight, In<T, 1> bias, float eps, Stream& stream) {
  const ProfileScope scope("residual layernorm forward", stream,
                           memory_traffic(residual_out, out, inp1, inp2));
  check_shape("residual_out", residual_out, {out.shape[0], out.shape[1]});
  check_shape("inp2", inp2, {out.shape[0], out.shape[1]});
  launch_layernorm_forward<T>("residual_layernorm_forward", residual_out, out, mean, rstd, inp1,
                              inp2, weight, bias, eps, stream);
}

// ---- backward ------------------------------------------------------------------------------

// Maximum number of blocks G of the backward pass. Block b processes the row groups b, b + G, ...;
// a group is one row per team. Each thread accumulates its share of d_weight and d_bias in
// registers, and the limit keeps the partial sums small.
inline constexpr std::int64_t kLayerNormBackwardBlocks = 768;

inline std::int64_t layernorm_backward_blocks(std::int64_t rows) {
  constexpr std::int64_t kRowsPerBlock = 16;  // target, below the maximum number of blocks
  return std::clamp<std::int64_t>(ceil_div(rows, kRowsPerBlock), 1, kLayerNormBackwardBlocks);
}

// Floats of scratch that layernorm_backward needs.
inline std::int64_t layernorm_backward_scratch(std::int64_t rows, std::int64_t C) {
  return layernorm_backward_blocks(rows) * 2 * C;
}

// One thread's shares of the gradients of weight and bias, summed over the rows of its team.
template <class Layout, int N>
struct ParameterGradients {
  Vec<float, N> weight[Layout::kChunks];
  Vec<float, N> bias[Layout::kChunks];
};

// Writes the block's sums over its rows to partial (2, C): the weight's, then the bias's.
template <class Layout, int N>
__device__ __forceinline__ void store_partial_sums(SharedMemory& shared, float* partial,
                                                   const RowTeam<Layout>& team,
                                                   const ParameterGradients<Layout, N>& d,
                                                   std::int64_t C) {
  // If the block is one team, each thread has already summed all of the block's rows in its
  // channels. Otherwise the warps' sums (W, 2, C) are added in warp order.
  float* team_sums = partial;
  if constexpr (!Layout::kWholeBlock) {
    team_sums = shared.take<float>(Layout::kRowsPerBlock * 2 * C) + warp_index() * 2 * C;
  }
  for (int i = 0; i < Layout::kChunks; ++i) {
    const std::int64_t c = team.template channel<N>(i);
    if (c >= C) continue;
    store_vec(team_sums + c, d.weight[i]);
    store_vec(team_sums + C + c, d.bias[i]);
  }
  if constexpr (!Layout::kWholeBlock) {
    const float* sums = team_sums - warp_index() * 2 * C;
    block_barrier();
    for (std::int64_t j = thread_index(); j < 2 * C; j += block_size()) {
      float total = 0.0f;
      for (int w = 0; w < Layout::kRowsPerBlock; ++w) total += sums[w * 2 * C + j];
      partial[j] = total;
    }
  }
}

// partials (blocks, 2, C). d_residual may be null.
template <class T, class Layout>
__global__ __launch_bounds__(Layout::kMaxThreads) void layernorm_backward_kernel(
    T* d_inp, float* partials, const T* d_out, const T* inp, const float* mean_in,
    const float* rstd_in, const T* weight, const T* d_residual, std::int64_t rows, std::int64_t C) {
  constexpr int N = kVecSize<T>;
  SharedMemory shared;
  const RowTeam<Layout> team(shared);
  ParameterGradients<Layout, N> d{};

  for (std::int64_t row = team.first_row(); row < rows; row += team.row_stride()) {
    const float mean = mean_in[row];
    const float rstd = rstd_in[row];
    Vec<T, N> x[Layout::kChunks]{}, dy[Layout::kChunks]{}, skip[Layout::kChunks]{};
    for (int i = 0; i < Layout::kChunks; ++i) {
      const std::int64_t c = team.template channel<N>(i);
      if (c >= C) continue;
      x[i] = load_vec<N>(inp + row * C + c);
      dy[i] = load_vec<N>(d_out + row * C + c);
      if (d_residual != nullptr) skip[i] = load_vec<N>(d_residual + row * C + c);
    }
    float sum_g = 0.0f, sum_gz = 0.0f;  // g = dy * weight is the gradient of z
    for (int i = 0; i < Layout::kChunks; ++i) {
      const std::int64_t c = team.template channel<N>(i);
      if (c >= C) continue;
      const Vec<T, N> w = load_vec<N>(weight + c);
      for (int k = 0; k < N; ++k) {
        const float z = (to_float(x[i][k]) - mean) * rstd;
        const float g = to_float(dy[i][k]) * to_float(w[k]);
        sum_g += g;
        sum_gz += g * z;
        d.weight[i][k] += to_float(dy[i][k]) * z;
        d.bias[i][k] += to_float(dy[i][k]);
      }
    }
    // d_inp = rstd * (g without its components along 1 and z). Moving x in these two directions
    // does not change z (if eps is 0).
    const float mean_g = team.sum(sum_g) / static_cast<float>(C);
    const float mean_gz = team.sum(sum_gz) / static_cast<float>(C);
    for (int i = 0; i < Layout::kChunks; ++i) {
      const std::int64_t c = team.template channel<N>(i);
      if (c >= C) continue;
      const Vec<T, N> w = load_vec<N>(weight + c);
      Vec<T, N> dx;
      for (int k = 0; k < N; ++k) {
        const float z = (to_float(x[i][k]) - mean) * rstd;
        const float g = to_float(dy[i][k]) * to_float(w[k]);
        dx[k] = from_float<T>(to_float(skip[i][k]) + rstd * (g - mean_g - z * mean_gz));
      }
      store_vec(d_inp + row * C + c, dx);
    }
  }
  store_partial_sums(shared, partials + block_x() * 2 * C, team, d, C);
}

// Writes d_inp (rows, C): the gradient through LayerNorm plus d_residual (rows, C), the gradient
// that reaches inp through the residual connection. A d_residual without data counts as 0. Adds to
// d_weight (C) and d_bias (C), both fp32; each may have no data (frozen), which changes no bit of
// the other results. d_out is (rows, C); inp, mean and rstd are those of the forward pass. d_inp
// may be d_residual or d_out. scratch holds layernorm_backward_scratch(rows, C) floats.
// Deterministic: the order of every sum depends only on rows and C.
template <class T>
void layernorm_backward(Tensor<T, 2> d_inp, Tensor<float, 1> d_weight, Tensor<float, 1> d_bias,
                        In<T, 2> d_out, In<T, 2> inp, In<float, 1> mean, In<float, 1> rstd,
                        In<T, 1> weight, In<T, 2> d_residual, Tensor<float, 1> scratch,
                        Stream& stream) {
  const ProfileScope scope("layernorm backward", stream,
                           memory_traffic(d_inp, d_out, inp, d_residual));
  const std::int64_t rows = d_inp.shape[0], C = d_inp.shape[1];
  if (d_weight.data != nullptr) check_shape("d_weight", d_weight, {C});
  if (d_bias.data != nullptr) check_shape("d_bias", d_bias, {C});
  check_shape("d_out", d_out, {rows, C});
  check_shape("inp", inp, {rows, C});
  check_shape("mean", mean, {rows});
  check_shape("rstd", rstd, {rows});
  check_shape("weight", weight, {C});
  if (d_residual.data != nullptr) check_shape("d_residual", d_residual, {rows, C});
  require_scratch("layernorm_backward", scratch, layernorm_backward_scratch(rows, C));
  if (rows == 0) return;
  const std::int64_t blocks = layernorm_backward_blocks(rows);
  dispatch_row_layout<T>("layernorm_backward", C, [&]<class Layout>(Layout) {
    const std::size_t shared_bytes =
        Layout::kWholeBlock ? RowTeam<Layout>::shared_bytes()
                            : SharedLayout().add<float>(Layout::kRowsPerBlock * 2 * C).bytes();
    launch(layernorm_backward_kernel<T, Layout>, Grid{blocks, 1, 1},
           Layout::block_threads(C / kVecSize<T>), shared_bytes, stream, d_inp.data, scratch.data,
           d_out.data, inp.data, mean.data, rstd.data, weight.data, d_residual.data, rows, C);
  });
  if (d_weight.data == nullptr && d_bias.data == nullptr) return;
  // If one of the two gradients is frozen, its sum is added to the first of its own partial sums,
  // which its block has already read. This case is rare and has no kernel of its own.
  float* const first_partial = scratch.data;  // (2, C)
  add_partial_sums(d_weight.data != nullptr ? d_weight.data : first_partial,
                   d_bias.data != nullptr ? d_bias.data : first_partial + C, scratch.data, blocks,
                   C, stream);
}

}  // namespace llmc
