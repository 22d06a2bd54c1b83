// The ranks that compute each layer together (Megatron-LM, Shoeybi et al., 2019), as layers see
// them. On one rank every function returns its operand and nothing is launched.
//
// Each rank has a part of every matrix. *Column-parallel* layers split the outputs, row-parallel
// layers the inputs: a rank computes partial sums of all outputs, which reduce() adds over the
// ranks.
//
// The residual stream, with its norms and dropout, is either whole on every rank, or spread over
// the ranks by rows (sequence parallelism, Korthikanti et al., 2022). Rank r then has the rows from
// r * stored on. gather() returns all rows, reduce() leaves each rank the sums of its own rows.
// `stored` is ceil(rows / ranks), so any number of rows works: the last ranks have fewer rows, or
// none, and the collectives move padding in their place.
#pragma once

#include <algorithm>
#include <cstdint>

#include "llmc/comm/ranks.h"
#include "llmc/config/run_shape.h"
#include "llmc/device/device.h"
#include "llmc/device/rows.h"
#include "llmc/nn/axis.h"
#include "llmc/nn/memory_plan.h"

namespace llmc {

// The rows of a batch, and those of the residual stream that a rank has.
struct RankRows {
  std::int64_t all = 0;     // B * T
  std::int64_t first = 0;   // the rank's first row
  std::int64_t own = 0;     // number of its rows
  std::int64_t stored = 0;  // the same with padding, equal on all ranks
};

class TensorGroup {
 public:
  // The ranks must outlive the object.
  explicit TensorGroup(Ranks& ranks) : ranks_(ranks) {}
  TensorGroup(const TensorGroup&) = delete;
  TensorGroup& operator=(const TensorGroup&) = delete;

  int ranks() const { return ranks_.mesh().tensor_ranks; }
  int rank() const { return ranks_.tensor_rank(); }
  // The place of this rank in the mesh.
  MeshPlace place() const { return {rank(), ranks(), ranks_.pipeline_rank()}; }
  // Whether the rows of the residual stream are spread over the ranks.
  bool spreads_rows() const { return sequence_parallel_; }
  // Whether this rank adds what a sum over the ranks contains once.
  bool first() const { return rank() == 0; }

  // Reserves memory in the plan for passes of this shape, with rows of C channels of `size` bytes;
  // usable after plan.allocate().
  void reserve(const RunShape& run, std::int64_t C, std::int64_t size, MemoryPlan& plan) {
    sequence_parallel_ = run.uses_sequence_parallelism(ranks());
    if (sequence_parallel_) {
      plan.reserve("gathered rows", buffer_, rows_of_rank(run.rows()).stored * ranks() * C * size);
    }
  }

  RankRows rows_of_rank(std::int64_t rows) const {
    if (!sequence_parallel_) return {rows, 0, rows, rows};
    const std::int64_t stored = ceil_div(rows, ranks());
    const std::int64_t first = std::min(rows, rank() * stored);
    return {rows, first, std::min(rows - first, stored), stored};
  }

  // Returns the rows x (own, C) of all ranks: (rows, C). The result is valid until the next call of
  // a member function.
  template <class T>
  Tensor<const T, 2> gather(In<T, 2> x, std::int64_t rows, Stream& stream) {
    if (!sequence_parallel_) return x;
    const std::int64_t C = x.shape[1], piece = rows_of_rank(rows).stored * C;
    const Tensor<T, 1> all = make_tensor(buffer<T>(), piece * ranks());
    ranks_.tensor(stream, [&](Communicator& group) {
      group.all_gather<T>(all, make_tensor(x.data, piece), stream);
    });
    return {all.data, {rows, C}};
  }

  // Returns where a layer writes its partial sums (rows, C) before reduce(out, ...): `out` itself,
  // or memory that the result of gather() may share.
  template <class T>
  Tensor<T, 2> partial_sums(Tensor<T, 2> out, std::int64_t rows) const {
    if (!sequence_parallel_) return out;
    return {buffer<T>(), {rows, out.shape[1]}};
  }

  // out (own, C) = the sums over all ranks of `partial` (rows, C), the result of partial_sums().
  template <class T>
  void reduce(Tensor<T, 2> out, Tensor<T, 2> partial, Stream& stream) {
    if (ranks() == 1) return;
    ranks_.tensor(stream, [&](Communicator& group) {
      if (!sequence_parallel_) return group.all_reduce(flat(out), stream);
      const std::int64_t size = partial.size();
      const std::int64_t piece = rows_of_rank(partial.shape[0]).stored * partial.shape[1];
      fill_zero(partial.data + size, piece * ranks() - size, stream);  // padding
      group.reduce_scatter(make_tensor(out.data, piece),
                           Tensor<const T, 1>(make_tensor(partial.data, piece * ranks())), stream);
    });
  }

  // Rows of the piece of a matrix of `rows` rows that a rank keeps, if they are dealt out evenly.
  std::int64_t piece_rows(std::int64_t rows) const {
    return ceil_div(rows, static_cast<std::int64_t>(ranks()));
  }
  // Copies this rank's rows of `whole` (rows, C) to its piece (piece_rows(rows), C).
  template <class T>
  void cut(Tensor<T, 2> piece, In<T, 2> whole, Stream& stream) const {
    const std::int64_t rows = whole.shape[0], size = piece_rows(rows);
    const std::int64_t first = std::min(rows, rank() * size), n = std::min(rows - first, size);
    copy_on_device(piece.data, row_range(whole, first, n).data, n * whole.shape[1], stream);
  }
  // Restores `whole` (rows, C), which has memory for the pieces of all ranks, from them.
  template <class T>
  void gather_pieces(Tensor<T, 2> whole, In<T, 2> piece, Stream& stream) {
    const std::int64_t size = piece_rows(whole.shape[0]) * whole.shape[1];
    all_gather<T>(make_tensor(whole.data, size * ranks()), make_tensor(piece.data, size), stream);
  }

  // Returns row `row` of `rows`, (1, C), on every rank. x (own, C) are the rank's rows.
  template <class T>
  Tensor<const T, 2> row(In<T, 2> x, std::int64_t row, std::int64_t rows, Stream& stream) {
    if (!sequence_parallel_) return row_range(x, row, 1);
    const RankRows own = rows_of_rank(rows);
    const auto owner = static_cast<int>(row / own.stored);
    const Tensor<T, 2> out = {buffer<T>(), {1, x.shape[1]}};
    if (owner == rank()) {
      copy_on_device(out.data, row_range(x, row - own.first, 1).data, out.size(), stream);
    }
    ranks_.tensor(stream, [&](Communicator& group) { group.broadcast(flat(out), owner, stream); });
    return out;
  }

  // all (ranks x n) = `own` (n) of all ranks, in their order. `own` may be its place in `all`.
  template <class T>
  void all_gather(Tensor<T, 1> all, In<T, 1> own, Stream& stream) {
    ranks_.tensor(stream, [&](Communicator& group) { group.all_gather<T>(all, own, stream); });
  }

 private:
  template <class T>
  T* buffer() const {
    return reinterpret_cast<T*>(buffer_.data);
  }

  Ranks& ranks_;
  bool sequence_parallel_ = false;
  Tensor<unsigned char, 1> buffer_;  // all rows, if they are spread
};

}  // namespace llmc
