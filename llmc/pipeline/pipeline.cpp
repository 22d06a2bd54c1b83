#include "llmc/pipeline/pipeline.h"

#include <algorithm>
#include <string>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/pipeline/stages.h"
#include "llmc/pipeline/timeline.h"

namespace llmc {

int Pipeline::slots(int rank) const {
  if (single()) return 1;
  int kept = 0, most = 1;
  for (const PipelinePass& pass : passes(rank)) {
    kept += pass.kind == PassKind::forward ? 1 : -1;
    most = std::max(most, kept);
    if (pass.stage < first_backward) --kept;
  }
  return most;
}

int Pipeline::sent_gradients(int rank) const {
  if (single()) return 0;
  const int last_stage = rank + (shape.chunks - 1) * shape.ranks;
  if (last_stage <= first_backward) return 0;
  return slots((rank + shape.ranks - 1) % shape.ranks);
}

int Pipeline::batches(int rank) const {
  if (single()) return 1;
  const std::vector<int> counts = passes_per_micro_batch(rank);
  std::vector<int> left = counts;
  int kept = 0, most = 1;
  for (const PipelinePass& pass : passes(rank)) {
    const auto i = static_cast<std::size_t>(pass.micro_batch);
    if (left[i] == counts[i]) most = std::max(most, ++kept);
    if (--left[i] == 0) --kept;
  }
  return most;
}

std::vector<int> Pipeline::passes_per_micro_batch(int rank) const {
  std::vector<int> counts(static_cast<std::size_t>(shape.micro_batches));
  for (const PipelinePass& pass : passes(rank)) {
    ++counts[static_cast<std::size_t>(pass.micro_batch)];
  }
  return counts;
}

int Pipeline::rank_of_layer(std::int64_t layer) const {
  if (single()) return 0;
  const auto end = std::ranges::upper_bound(bounds, layer);
  return shape.rank_of(static_cast<int>(end - bounds.begin()) - 1);
}

Pipeline without_backward_below(Pipeline pipeline, std::int64_t layer) {
  if (pipeline.single()) return pipeline;
  int& first = pipeline.first_backward;
  while (first + 1 < pipeline.shape.stages() &&
         pipeline.bounds[static_cast<std::size_t>(first) + 1] <= layer) {
    ++first;
  }
  for (std::vector<PipelinePass>& passes : pipeline.schedule) {
    std::erase_if(passes, [&](const PipelinePass& pass) {
      return pass.kind == PassKind::backward && pass.stage < first;
    });
  }
  return pipeline;
}

namespace {

// Throws unless a rank receives the messages of `sender` in the order in which they are sent.
void check_messages(const PipelineSchedule& schedule, const PipelineShape& shape, int sender,
                    PassKind kind) {
  const int step = kind == PassKind::forward ? 1 : -1, last = shape.stages() - 1;
  const int receiver = (sender + step + shape.ranks) % shape.ranks;
  std::vector<PipelinePass> inputs;  // the passes that need the messages
  for (const PipelinePass& pass : schedule[static_cast<std::size_t>(sender)]) {
    const int next = pass.stage + step;
    if (pass.kind == kind && 0 <= next && next <= last) {
      inputs.push_back({next, kind, pass.micro_batch});
    }
  }
  std::size_t count = 0;
  for (const PipelinePass& pass : schedule[static_cast<std::size_t>(receiver)]) {
    const int before = pass.stage - step;
    if (pass.kind != kind || before < 0 || before > last) continue;
    const PipelinePass& input = inputs[count++];
    if (input == pass) continue;
    fail("pipeline schedule: " + pipeline_detail::cell(static_cast<std::size_t>(receiver), pass) +
             ": rank " + std::to_string(sender) + " sends the input of " + input.name() + " before",
         "neighbours compute the passes of a direction in the same order");
  }
}

}  // namespace

void check_message_order(const PipelineSchedule& schedule, const PipelineShape& shape) {
  for (int rank = 0; rank < shape.ranks; ++rank) {
    check_messages(schedule, shape, rank, PassKind::forward);
    check_messages(schedule, shape, rank, PassKind::backward);
  }
}

Pipeline make_pipeline(const PipelineShape& shape, std::int64_t layers,
                       const std::vector<std::int64_t>& blocks,
                       std::optional<PipelineSchedule> schedule) {
  if (shape.ranks == 1) return {};
  Pipeline pipeline{.shape = shape};
  pipeline.bounds = blocks.empty() ? even_stages(layers, shape.stages())
                                   : requested_stages(layers, shape.stages(), blocks);
  if (schedule) {
    check_schedule(*schedule, shape);
    check_message_order(*schedule, shape);
    pipeline.schedule = std::move(*schedule);
  } else {
    pipeline.schedule = pipeline_schedule(shape);
  }
  return pipeline;
}

}  // namespace llmc
