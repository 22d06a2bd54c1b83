#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "llmc/comm/ranks.h"
#include "llmc/io/data/token_hash.h"
#include "llmc/nn/pass_options.h"
#include "llmc/parallel/run_state.h"
#include "llmc/train/train_step.h"

namespace llmc {

void TrainStep::read_ahead(const RunPosition& position) {
  const std::int64_t accum = config_.batch.grad_accum;
  batches_.emplace([this, accum, start = position.samples](std::int64_t n) {
    const std::int64_t first =
        start + n / accum * config_.global_batch() + first_in_step(n % accum);
    Batch batch = samples_.batch(first, config_.batch.batch_size);
    const std::uint64_t hash = token_hash(batch, first);
    return Item{prepare(std::move(batch)), hash};
  });
}

void TrainStep::time_passes() {
  times_passes_ = true;
  runner_.time_passes(&step_begin_);
}

StepResult TrainStep::run(RunPosition& position) {
  RunState& state = runner_.state();
  Stream& stream = runner_.stream();
  // Evaluations after this step keep the mode.
  runner_.context().quantization.set(config_.quantized_pass(position.step + 1));
  clock_.start(stream);
  if (times_passes_) begin_timeline();
  // Not between steps: evaluations may communicate any number of times.
  runner_.context().time(&clock_);
  StepResult result{.learning_rate = schedule_.rate(position.step)};
  result.targets = count_targets();
  if (result.targets > 0) {
    state.begin_step(stream, config_.batch.grad_accum);
    run_passes(position, result);
    copy_on_device(own_loss_.data(), static_cast<const float*>(state.loss().data), 1, stream);
    state.finish_gradients(stream);
    clock_.mark(Phase::optimizer, stream);
    state.apply_gradients(config_.optimizer, result.learning_rate, stream);
    result.loss = static_cast<double>(state.loss_value(stream));
  } else {
    skip_micro_batches(result);
  }
  result.optimizer = state.optimizer_state(stream);
  clock_.mark(Phase::other, stream);
  runner_.context().time(nullptr);
  result.phases = clock_.milliseconds();
  result.offload_bytes = runner_.context().offload_bytes();
  position.step += 1;
  position.samples += config_.global_batch();
  position.tokens += result.tokens;
  return result;
}

void TrainStep::begin_timeline() {
  exchange_.barrier();
  step_begin_.record(runner_.stream());
}

std::int64_t TrainStep::first_in_step(std::int64_t index) const {
  const Ranks& ranks = runner_.context().ranks;
  return (index * ranks.mesh().data_ranks() + ranks.data_rank()) * config_.batch.batch_size;
}

std::int64_t TrainStep::count_targets() {
  if (!samples_.masks_targets) return config_.tokens_per_step();
  std::vector<std::int64_t> count = {0};
  for (std::int64_t index = 0; index < config_.batch.grad_accum; ++index) {
    step_batches_.push_back(batches_->next());
    const std::vector<std::int32_t>& targets = step_batches_.back().prepared.batch.targets;
    count[0] += std::ssize(targets) - std::ranges::count(targets, -1);
  }
  if (!runner_.context().ranks.first_of_data_rank()) count[0] = 0;
  exchange_.sum(count);
  return count[0];
}

void TrainStep::run_passes(const RunPosition& position, StepResult& result) {
  const auto next = [&] { return next_item(result).prepared; };
  const auto options = [&](std::int64_t index) { return pass_options(position, index); };
  runner_.run_passes({.count = config_.batch.grad_accum,
                      .next = next,
                      .options = options,
                      .loss = loss_options(result)},
                     &clock_);
}

PassOptions TrainStep::pass_options(const RunPosition& position, std::int64_t index) const {
  return {.dropout = config_.dropout_rates(),
          .seed = config_.seed,
          .step = position.step,
          .first_sample = position.samples + first_in_step(index)};
}

LossOptions TrainStep::loss_options(const StepResult& result) const {
  const RunState& state = runner_.state();
  return {.scale = 1.0f / static_cast<float>(result.targets),
          .sum = state.loss(),
          .factor = state.loss_scale()};
}

NotFinite TrainStep::diagnose(const RunPosition& position, const StepResult& result) {
  RunState& state = runner_.state();
  Stream& stream = runner_.stream();
  float own_loss = 0;
  copy_to_host(&own_loss, static_cast<const float*>(own_loss_.data()), 1, stream);
  stream.synchronize();
  const bool was_finite = std::isfinite(own_loss) && runner_.left_finite_gradient();
  // A skipped update may have lowered the loss scale.
  const OptimizerState after = state.optimizer_state(stream);
  OptimizerState before = after;
  before.loss_scale = after.step_loss_scale;
  state.set_optimizer_state(before, stream);
  RunPosition start = position;
  start.step -= 1;
  start.samples -= config_.global_batch();
  FiniteCheck check(runner_.context().tensor);
  state.begin_step(stream, config_.batch.grad_accum);
  run_passes_again(start, result, check);
  state.finish_gradients(stream);
  state.measure_gradients(config_.optimizer, stream);
  const bool is_finite = state.optimizer_state(stream).finite != 0;
  state.set_optimizer_state(after, stream);
  return check.agree(exchange_.any(is_finite), was_finite, exchange_);
}

void TrainStep::run_passes_again(const RunPosition& before, const StepResult& result,
                                 FiniteCheck& check) {
  std::vector<std::pair<std::int64_t, std::int64_t>> shapes;  // of the micro-batches
  const auto next = [&] {
    const auto index = std::ssize(shapes);
    Batch batch = samples_.batch(before.samples + first_in_step(index), config_.batch.batch_size);
    shapes.emplace_back(batch.B, batch.T);
    return prepare(std::move(batch));
  };
  const auto options = [&](std::int64_t index) {
    const auto [B, T] = shapes[static_cast<std::size_t>(index)];
    check.begin_micro_batch(index, B, T);
    return pass_options(before, index);
  };
  struct Observation {
    OutputReports& outputs;
    ~Observation() { outputs.observe(nullptr); }
  };
  const Observation observation{runner_.context().outputs};
  observation.outputs.observe(&check);
  runner_.run_passes({.count = config_.batch.grad_accum,
                      .next = next,
                      .options = options,
                      .loss = loss_options(result)},
                     nullptr);
}

TrainStep::Item TrainStep::next_item(StepResult& result) {
  Item item;
  if (step_batches_.empty()) {
    item = batches_->next();
  } else {
    item = std::move(step_batches_.front());
    step_batches_.pop_front();
  }
  const Batch& batch = item.prepared.batch;
  result.token_hash += item.hash;
  // All data ranks have micro-batches of this shape.
  result.tokens += batch.B * batch.T * runner_.context().ranks.mesh().data_ranks();
  return item;
}

void TrainStep::skip_micro_batches(StepResult& result) {
  result.loss = std::numeric_limits<double>::quiet_NaN();
  while (!step_batches_.empty()) next_item(result);
}

}  // namespace llmc
