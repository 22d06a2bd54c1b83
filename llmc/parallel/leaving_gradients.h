// Gradients of a rank that leave the device once they are sums over all ranks and micro-batches,
// while lower blocks run backward: to a store if gradients are offloaded (gradient_buckets.h), and
// to host memory if the CPU updates the weights. The sums of their squares, for the norm, are
// computed before they leave.
#pragma once

#include <cstdint>

#include "llmc/device/device.h"
#include "llmc/nn/context.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/ops/optimizer/global_norm.h"
#include "llmc/parallel/state_array.h"

namespace llmc {

class LeavingGradients {
 public:
  // Reserves memory in the plan for `size` elements of the rank's pieces. The context must outlive
  // the object.
  LeavingGradients(std::int64_t size, Context& context, const OffloadPlaces& offload,
                   MemoryPlan& plan)
      : context_(context), has_sums_(offload.optimizer_on_cpu) {
    if (offload.gradients.place != Place::device) has_sums_ = true;
    if (!offload.optimizer_on_cpu || offload.gradients.place == Place::host) return;
    copy_.reserve("gradients", size, {Place::host, {}}, context, plan);
  }
  LeavingGradients(const LeavingGradients&) = delete;
  LeavingGradients& operator=(const LeavingGradients&) = delete;

  // A step begins, which overwrites gradients on `compute`. The sum of the squares of each piece of
  // 1024 elements (global_norm.h) is written to `norm_sums`.
  void begin_step(float* norm_sums, Stream& compute) {
    norm_sums_ = norm_sums;
    await(compute);
  }

  // Whether the sums of squares are computed here.
  bool has_sums() const { return has_sums_; }

  // n elements of the rank's pieces, from `first` on, are complete at `own` in the order of
  // `stream`. All are multiples of 1024, except n at the end of a parameter.
  void leave(std::int64_t first, const float* own, std::int64_t n, Stream& stream) {
    if (!has_sums_ || n == 0) return;
    squared_norm_partials<float>(norm_sums_ + first / kNormPiece, own, n, stream);
    if (!has_copy()) return;
    context_.timed(Phase::offload, [&] {
      context_.transfers().follow(stream);
      copy_.put(first, own, n);
      context_.transfers().mark(left_);
    });
  }

  // Later work of `stream` may overwrite what has left.
  void await(Stream& stream) {
    if (!has_copy()) return;
    context_.timed(Phase::offload, [&] { context_.transfers().await(left_, stream); });
  }

  // Whether the CPU's update finds the gradients here; otherwise they are in the store of all
  // gradients, which is in host memory.
  bool has_copy() const { return copy_.size() > 0; }
  // The copy's elements from `first` on. The host waits for the transfers before it reads them.
  const float* copy(std::int64_t first) const {
    return static_cast<const float*>(copy_.on_host(first));
  }

 private:
  Context& context_;
  StateArray<float> copy_;
  TransferPoint left_;  // after the latest piece
  float* norm_sums_ = nullptr;
  bool has_sums_;
};

}  // namespace llmc
