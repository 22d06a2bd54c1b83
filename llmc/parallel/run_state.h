// Everything that training changes, in any dtype: the weights in use, the fp32 master weights, the
// gradients, the moments of AdamW and the counters of the optimizer. training_state.h has it in one
// dtype.
//
// With several ranks, all of them call the same functions in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "llmc/comm/ranks.h"
#include "llmc/device/device.h"
#include "llmc/models/loadable_weights.h"
#include "llmc/ops/optimizer/optimizer_options.h"
#include "llmc/ops/optimizer/optimizer_state.h"
#include "llmc/parallel/shard_layout.h"

namespace llmc {

class RunState : public LoadableWeights {
 public:
  // Calls use(values) for consecutive pieces of an array in device memory, each valid during the
  // call.
  using ReadValues = std::function<void(const std::function<void(std::span<const std::byte>)>&)>;
  // Receives what ranks keep between steps: `read` reads the values of a parameter, of which there
  // are none if this rank holds nothing of it. `whole`: all ranks of a shard group keep the same.
  using VisitKept = std::function<void(const char* kind, const ParameterSpec& spec,
                                       const ReadValues& read, bool whole)>;

  virtual Dtype dtype() const = 0;
  virtual const Ranks& ranks() const = 0;
  virtual const ShardLayout& layout() const = 0;
  // Whether this rank writes files of the whole run.
  bool first_rank() const final { return ranks().rank() == 0; }

  // The optimizer state of a new run. Only fp16 uses the loss scale.
  virtual OptimizerState initial_optimizer_state(float loss_scale) const = 0;
  // Sets the initial values of the table, or only those that a model of
  // tokens lacks (is_added). A value depends only on the
  // seed, its tensor and its index.
  virtual void initialise(std::uint64_t seed, Stream& stream, bool only_added = false) = 0;
  // Enables stochastic rounding of master weights for all later updates
  // (ops/optimizer/stochastic_rounding.h). It has no effect in fp32. Initial and loaded weights are
  // rounded to nearest.
  virtual void enable_stochastic_rounding(std::uint64_t seed) = 0;

  // ---- a step ----

  // (1) loss of the step: sum over micro-batches, after finish_gradients() also over ranks.
  virtual Tensor<float, 1> loss() const = 0;
  // The factor that scales the gradients, in device memory; the same for all micro-batches of a
  // step. Null if gradients are not scaled.
  virtual const float* loss_scale() const = 0;
  // Clears gradients and loss for a step of this many micro-batches per rank.
  virtual void begin_step(Stream& stream, std::int64_t micro_batches = 1) = 0;
  // Call after the step's last micro-batch: gradients and loss become sums over all ranks.
  virtual void finish_gradients(Stream& stream) = 0;
  // Writes the numbers of the latest step into the optimizer state: the norm of the gradients, and
  // whether it and the loss are finite. apply_gradients() does so as well.
  virtual void measure_gradients(const OptimizerOptions& options, Stream& stream) = 0;
  // Unscales, clips and applies the gradients. If they or the loss are not finite, it only counts a
  // skipped update and adjusts the loss scale.
  virtual void apply_gradients(const OptimizerOptions& options, double learning_rate,
                               Stream& stream) = 0;

  // ---- copies from and to host memory; each is finished on return ----

  // Throws an ElementError if the dtype cannot hold a weight. `values` has the whole parameter.
  virtual void require_representable(const ParameterSpec& spec,
                                     std::span<const float> values) const = 0;
  // In these, a rank keeps what it holds. In set_weight() of LoadableWeights, all ranks throw if
  // the dtype cannot hold a number. Moments of frozen parameters are ignored. Of the two moments,
  // one may be null on all ranks, which leaves it as it is.
  virtual void set_moments(const ParameterSpec& spec, const float* first, const float* second,
                           Stream& stream) = 0;
  // The elements whose moments this rank keeps.
  virtual ElementRange kept_moments(const ParameterSpec& spec) const = 0;
  // Sets these elements, as set_moments(). No other rank takes part.
  virtual void set_kept_moments(const ParameterSpec& spec, const float* first, const float* second,
                                Stream& stream) = 0;
  // Each of these writes spec.size() numbers to `values` on rank 0, or on rank `root`, and nothing
  // on other ranks. Frozen parameters have neither gradients nor moments: these are zeros.
  // The fp32 master weights, or of a frozen parameter the weights in use:
  virtual void collect_weight(const ParameterSpec& spec, int root, float* values,
                              Stream& stream) = 0;
  void get_weight(const ParameterSpec& spec, float* values, Stream& stream) {
    collect_weight(spec, 0, values, stream);
  }
  virtual void get_gradient(const ParameterSpec& spec, float* values, Stream& stream) = 0;
  virtual void get_moments(const ParameterSpec& spec, float* first, float* second,
                           Stream& stream) = 0;
  // Whether a rank of the pipeline stage that first holds a parameter keeps all of these weights,
  // so that collect_weight() only copies them there.
  virtual bool keeps_whole_weight(const ParameterSpec& spec) const = 0;
  // Whether the moments are in a file of the rank's own (--offload optimizer=DIR).
  virtual bool keeps_moments_on_disk() const = 0;
  // Writes the kept_moments(); one of the two may be null. No other rank takes part.
  virtual void get_kept_moments(const ParameterSpec& spec, float* first, float* second,
                                Stream& stream) = 0;
  virtual OptimizerState optimizer_state(Stream& stream) = 0;
  virtual void set_optimizer_state(const OptimizerState& state, Stream& stream) = 0;
  virtual float loss_value(Stream& stream) = 0;
  // Call after a checkpoint's weights and optimizer state are set. With stochastic rounding, it
  // rounds the master weights as the last update did, because rounding to nearest yields other
  // weights.
  virtual void restore_rounding(Stream& stream) = 0;

  virtual void visit_kept(const VisitKept& visit) = 0;
};

}  // namespace llmc
