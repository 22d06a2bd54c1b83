#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "llmc/config/resolve.h"
#include "llmc/device/device.h"
#include "llmc/device/profiler.h"
#include "llmc/models/trainable_set.h"
#include "llmc/ops/gemm/matmul.h"
#include "llmc/parallel/training_runner.h"
#include "llmc/plan/search/plan_search.h"
#include "llmc/train/measure/profiled_step.h"
#include "llmc/train/train_step.h"
#include "llmc/train/watch/step_profiler.h"

namespace llmc {

namespace {

constexpr int kWarmUp = 2, kSteps = 5;

// Tokens that depend on their place only.
Batch some_tokens(const RunConfig& config) {
  Batch batch{.B = config.batch.batch_size, .T = config.batch.seq_len};
  for (std::int64_t i = 0; i < batch.B * batch.T; ++i) {
    batch.inputs.push_back(static_cast<std::int32_t>(i * 7919 % config.shape.vocabulary));
  }
  batch.targets = batch.inputs;
  return batch;
}

// Adds up the rows of one step.
ProfiledStep parts_of(const std::vector<ProfileRow>& rows) {
  std::vector<OperationTime> operations;
  for (const ProfileRow& row : rows) {
    operations.push_back({row.path, 1e-3 * row.milliseconds, row.work.flops > 0});
  }
  ProfiledStep step;
  add_operations(step, operations);
  return step;
}

double median(std::vector<ProfiledStep>& steps, double& (*part)(ProfiledStep&)) {
  const auto middle = steps.begin() + std::ssize(steps) / 2;
  std::ranges::nth_element(steps, middle, {}, [&](ProfiledStep& step) { return part(step); });
  return part(*middle);
}

double mean_of_ranks(double seconds, Exchange& exchange) {
  constexpr double kNanosecond = 1e-9;
  std::vector<std::int64_t> sum = {static_cast<std::int64_t>(seconds / kNanosecond)};
  exchange.sum(sum);
  return kNanosecond * static_cast<double>(sum[0]) / exchange.ranks();
}

}  // namespace

RunConfig measured_config(const ModelConfig& shape, std::int64_t B, std::int64_t T, Dtype dtype,
                          std::int64_t measured_steps) {
  Request request;
  request.model.layers = shape.layers;
  request.model.heads = shape.heads;
  request.model.channels = shape.channels;
  request.model.context = shape.context;
  request.batch.batch_size = B;
  request.batch.seq_len = T;
  request.batch.grad_accum = 1;
  request.schedule.steps = kWarmUp + measured_steps;
  request.precision.dtype = dtype;
  RunFacts facts{.default_shape = shape};
  RunConfig config = resolve(request, facts);
  choose_trainable(config, "");
  return config;
}

std::vector<std::vector<ProfileRow>> profiled_steps(const RunConfig& config, Exchange& exchange) {
  const auto runner = make_training_runner(config.precision.dtype, config.shape, config.run_shape(),
                                           training_gemm_options(config.precision.tf32), Ranks());
  runner->allocate();
  runner->state().initialise(config.seed, runner->stream());
  Exchange alone;
  TrainStep step(config, *runner, alone,
                 {.batch = [&](std::int64_t, std::int64_t) { return some_tokens(config); }});
  RunPosition position;
  step.read_ahead(position);
  std::vector<std::vector<ProfileRow>> steps;
  exchange.barrier();
  for (std::int64_t i = 0; i < config.schedule.steps; ++i) {
    Profiler profiler;
    profiler.begin_step(runner->stream());
    step.run(position);
    profiler.end_step(runner->stream());
    if (i >= kWarmUp) steps.push_back(profile_rows(profiler));
  }
  exchange.barrier();
  return steps;
}

ProfiledStep profile_step(const MeasuredSizes& sizes, Dtype dtype, Exchange& exchange) {
  const RunConfig config =
      measured_config(sizes.shape, sizes.B, sizes.shape.context, dtype, kSteps);
  std::vector<ProfiledStep> steps;
  for (const auto& rows : profiled_steps(config, exchange)) steps.push_back(parts_of(rows));
  ProfiledStep result{.model = timed_model(config), .layout = {.micro_batch = sizes.B}};
  const auto measured = [&](double& (*part)(ProfiledStep&)) {
    return mean_of_ranks(median(steps, part), exchange);
  };
  result.compute.products = measured([](ProfiledStep& s) -> double& { return s.compute.products; });
  result.compute.attention =
      measured([](ProfiledStep& s) -> double& { return s.compute.attention; });
  result.compute.others = measured([](ProfiledStep& s) -> double& { return s.compute.others; });
  result.update = measured([](ProfiledStep& s) -> double& { return s.update; });
  return result;
}

}  // namespace llmc
