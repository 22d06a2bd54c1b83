#include <algorithm>

#include "llmc/device/device.h"
#include "llmc/ops/array_sum.h"
#include "llmc/ops/checks.h"
#include "llmc/ops/column_sum.h"
#include "llmc/ops/instantiate.h"
#include "llmc/ops/layernorm.h"
#include "llmc/ops/layernorm_row.h"
#include "llmc/ops/row_team.h"

namespace llmc {

// inp2 and residual_out are null for plain LayerNorm.
template <class T, class Layout>
__global__ void layernorm_forward_kernel(T* residual_out, T* out, float* mean_out, float* rstd_out,
                                         const T* inp1, const T* inp2, const T* weight,
                                         const T* bias, float eps, std::int64_t rows,
                                         std::int64_t C) {
  SharedMemory shared;
  const RowTeam<Layout> team(shared);
  const std::int64_t first_row = team.index() * Layout::kRowsPerTeam;
  for (int r = 0; r < Layout::kRowsPerTeam; ++r) {
    const std::int64_t row = first_row + r;
    if (row >= rows) return;
    TeamRow<T, Layout> x(inp1 + row * C, team, C);
    if (inp2 != nullptr) {
      // Rounds the sum first: the backward pass normalises what is stored.
      const TeamRow<T, Layout> addend(inp2 + row * C, team, C);
      x.add(addend, residual_out + row * C, team, C);
    }
    normalise_row(out + row * C, mean_out + row, rstd_out + row, x, weight, bias, eps, team, C);
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
    constexpr int kRowsPerBlock = Layout::kTeamsPerBlock * Layout::kRowsPerTeam;
    launch(layernorm_forward_kernel<T, Layout>, Grid{ceil_div(rows, kRowsPerBlock), 1, 1},
           Layout::block_threads(C), RowTeam<Layout>::shared_bytes(), stream, residual_out.data,
           out.data, mean.data, rstd.data, inp1.data, inp2.data, weight.data, bias.data, eps, rows,
           C);
  });
}

template <class T>
void layernorm_forward(Tensor<T, 2> out, Tensor<float, 1> mean, Tensor<float, 1> rstd, In<T, 2> inp,
                       In<T, 1> weight, In<T, 1> bias, float eps, Stream& stream) {
  const ProfileScope scope("layernorm forward", stream, memory_traffic(out, inp));
  launch_layernorm_forward<T>("layernorm_forward", {}, out, mean, rstd, inp, {}, weight, bias, eps,
                              stream);
}

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

// ---- the output again ----------------------------------------------------------------------

template <class T, class Layout>
__global__ void layernorm_output_kernel(T* out, const T* inp, const float* mean, const float* rstd,
                                        const T* weight, const T* bias, std::int64_t rows,
                                        std::int64_t C) {
  SharedMemory shared;
  const RowTeam<Layout> team(shared);
  const std::int64_t first_row = team.index() * Layout::kRowsPerTeam;
  for (int r = 0; r < Layout::kRowsPerTeam; ++r) {
    const std::int64_t row = first_row + r;
    if (row >= rows) return;
    const TeamRow<T, Layout> x(inp + row * C, team, C);
    store_normalised(out + row * C, x, mean[row], rstd[row], weight, bias, team, C);
  }
}

template <class T>
void layernorm_output(Tensor<T, 2> out, In<T, 2> inp, In<float, 1> mean, In<float, 1> rstd,
                      In<T, 1> weight, In<T, 1> bias, Stream& stream) {
  const ProfileScope scope("layernorm output", stream, memory_traffic(out, inp));
  const std::int64_t rows = out.shape[0], C = out.shape[1];
  check_shape("inp", inp, {rows, C});
  check_shape("mean", mean, {rows});
  check_shape("rstd", rstd, {rows});
  check_shape("weight", weight, {C});
  check_shape("bias", bias, {C});
  dispatch_row_layout<T>("layernorm_output", C, [&]<class Layout>(Layout) {
    constexpr int kRowsPerBlock = Layout::kTeamsPerBlock * Layout::kRowsPerTeam;
    launch(layernorm_output_kernel<T, Layout>, Grid{ceil_div(rows, kRowsPerBlock), 1, 1},
           Layout::block_threads(C), RowTeam<Layout>::shared_bytes(), stream, out.data, inp.data,
           mean.data, rstd.data, weight.data, bias.data, rows, C);
  });
}

// ---- backward ------------------------------------------------------------------------------

// Maximum number of blocks G of the backward pass. Block b processes the row groups b, b + G, ...;
// a group is one row per team. The limit keeps the partial sums of d_weight and d_bias small.
inline constexpr std::int64_t kLayerNormBackwardBlocks = 768;

std::int64_t layernorm_backward_blocks(std::int64_t rows) {
  constexpr std::int64_t kRowsPerBlock = 16;  // target, below the maximum number of blocks
  return std::clamp<std::int64_t>(ceil_div(rows, kRowsPerBlock), 1, kLayerNormBackwardBlocks);
}

std::int64_t layernorm_backward_scratch(std::int64_t rows, std::int64_t C) {
  return layernorm_backward_blocks(rows) * 2 * C;
}

// One thread's shares of the gradients of weight and bias, summed over the rows of its team: in
// registers, or, for a team of one thread, in the block's partial sums (2, C) in memory.
template <class Layout>
class ParameterGradients {
  static constexpr int N = Layout::kVector;

 public:
  __device__ __forceinline__ ParameterGradients(float* partial, const RowTeam<Layout>& team,
                                                std::int64_t C)
      : partial_(partial), C_(C) {
    if constexpr (Layout::kOneThread) {
      for (int i = 0; i < 2 * team.chunks(C); ++i) store_floats(partial + i * N, Floats<N>());
    }
  }

  // Adds to the gradients of chunk i.
  __device__ __forceinline__ void add(int i, const Floats<N>& weight, const Floats<N>& bias) {
    if constexpr (Layout::kOneThread) {
      add_to(partial_ + i * N, weight);
      add_to(partial_ + C_ + i * N, bias);
    } else {
      weight_[i] += weight;
      bias_[i] += bias;
    }
  }

  // Writes the sums over the block's rows to memory, if they are in registers.
  __device__ __forceinline__ void finish(SharedMemory& shared, const RowTeam<Layout>& team) const {
    if constexpr (Layout::kTeam == RowTeamKind::block) {
      // The block is one team, so each thread has already summed all of the block's rows.
      store(partial_, team);
    } else if constexpr (Layout::kTeam == RowTeamKind::warp) {
      // The warps' sums (W, 2, C) are added in warp order.
      float* sums = shared.take<float>(Layout::kTeamsPerBlock * 2 * C_);
      store(sums + warp_index() * 2 * C_, team);
      block_barrier();
      for (std::int64_t j = thread_index(); j < 2 * C_; j += block_size()) {
        float total = 0.0f;
        for (int w = 0; w < Layout::kTeamsPerBlock; ++w) total += sums[w * 2 * C_ + j];
        partial_[j] = total;
      }
    }
  }

  static std::size_t shared_bytes(std::int64_t C) {
    if (Layout::kTeam != RowTeamKind::warp) return 0;
    return SharedLayout().add<float>(Layout::kTeamsPerBlock * 2 * C).bytes();
  }

 private:
  __device__ static __forceinline__ void add_to(float* p, const Floats<N>& addend) {
    store_floats(p, load_floats<N>(p) + addend);
  }
  __device__ __forceinline__ void store(float* sums, const RowTeam<Layout>& team) const {
    for (int i = 0; i < Layout::kMaxChunks; ++i) {
      if (!team.has_chunk(i, C_)) continue;
      store_floats(sums + team.channel(i), weight_[i]);
      store_floats(sums + C_ + team.channel(i), bias_[i]);
    }
  }

  static constexpr int kRegisters = Layout::kOneThread ? 1 : Layout::kMaxChunks;
  float* partial_;
  std::int64_t C_;
  Floats<N> weight_[kRegisters];
  Floats<N> bias_[kRegisters];
};

// partials (blocks, 2, C). d_residual may be null.
template <class T, class Layout>
__global__ __launch_bounds__(Layout::kMaxThreads) void layernorm_backward_kernel(
    T* d_inp, float* partials, const T* d_out, const T* inp, const float* mean_in,
    const float* rstd_in, const T* weight, const T* d_residual, std::int64_t rows, std::int64_t C) {
  constexpr int N = Layout::kVector;
  SharedMemory shared;
  const RowTeam<Layout> team(shared);
  ParameterGradients<Layout> parameters(partials + block_x() * 2 * C, team, C);

  for (std::int64_t row = team.index(); row < rows; row += team.count()) {
    const float mean = mean_in[row];
    const float rstd = rstd_in[row];
    const TeamRow<T, Layout> x(inp + row * C, team, C), dy(d_out + row * C, team, C);
    const TeamRow<T, Layout> skip(d_residual == nullptr ? nullptr : d_residual + row * C, team, C);
    ThreadSum<N> sum_g, sum_gz;  // g = dy * weight is the gradient of z
    for (int i = 0; i < team.chunks(C); ++i) {
      if (!team.has_chunk(i, C)) continue;
      const Floats<N> z = rstd * (x.chunk(i) - mean);
      const Floats<N> d = dy.chunk(i);
      const Floats<N> g = d * load_floats<N>(weight + team.channel(i));
      sum_g.add(g);
      sum_gz.add(g * z);
      parameters.add(i, d * z, d);
    }
    // d_inp = rstd * (g without its components along 1 and z). Moving x in these two directions
    // does not change z (if eps is 0).
    const float mean_g = team.sum(sum_g.total()) / static_cast<float>(C);
    const float mean_gz = team.sum(sum_gz.total()) / static_cast<float>(C);
    for (int i = 0; i < team.chunks(C); ++i) {
      if (!team.has_chunk(i, C)) continue;
      const Floats<N> z = rstd * (x.chunk(i) - mean);
      const Floats<N> g = dy.chunk(i) * load_floats<N>(weight + team.channel(i));
      const Floats<N> d = skip.chunk(i) + rstd * (g - mean_g - mean_gz * z);
      store_floats(d_inp + row * C + team.channel(i), d);
    }
  }
  parameters.finish(shared, team);
}

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
  if (rows == 0) return;
  require_scratch("layernorm_backward", scratch, layernorm_backward_scratch(rows, C));
  const std::int64_t blocks = layernorm_backward_blocks(rows);
  dispatch_row_layout<T>("layernorm_backward", C, [&]<class Layout>(Layout) {
    const std::size_t shared_bytes =
        RowTeam<Layout>::shared_bytes() + ParameterGradients<Layout>::shared_bytes(C);
    launch(layernorm_backward_kernel<T, Layout>, Grid{blocks, 1, 1}, Layout::block_threads(C),
           shared_bytes, stream, d_inp.data, scratch.data, d_out.data, inp.data, mean.data,
           rstd.data, weight.data, d_residual.data, rows, C);
  });
  if (d_weight.data == nullptr && d_bias.data == nullptr) return;
  // If one of the two gradients is frozen, its sum is added to the first of its own partial sums,
  // which its block has already read. This case is rare and has no kernel of its own.
  float* const first_partial = scratch.data;  // (2, C)
  add_partial_sums(d_weight.data != nullptr ? d_weight.data : first_partial,
                   d_bias.data != nullptr ? d_bias.data : first_partial + C, scratch.data, blocks,
                   C, stream);
}

LLMC_INSTANTIATE(layernorm_forward)
LLMC_INSTANTIATE(residual_layernorm_forward)
LLMC_INSTANTIATE(layernorm_output)
LLMC_INSTANTIATE(layernorm_backward)

}  // namespace llmc
