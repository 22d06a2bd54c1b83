#include <cstddef>
#include <string>

#include "llmc/base/standard_output.h"
#include "llmc/comm/mesh.h"
#include "llmc/comm/ranks.h"
#include "llmc/comm/step_numbers.h"
#include "llmc/config/fill_settings.h"
#include "llmc/config/resolve.h"
#include "llmc/config/run_shape.h"
#include "llmc/config/train_table.h"
#include "llmc/device/device.h"
#include "llmc/device/dtype.h"
#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/nn/context.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/parallel/training_runner.h"
#include "llmc/plan/plan_text.h"
#include "llmc/plan/schedule_dump.h"
#include "llmc/plan/step_traffic.h"

namespace llmc {

std::vector<std::vector<MemoryPlan::Segment>> planned_memory(const RunConfig& config) {
  const RunShape shape = config.run_shape();
  std::vector<std::vector<MemoryPlan::Segment>> ranks;
  for (int rank = 0; rank < config.mesh().ranks; ++rank) {
    Context context({}, Ranks(config.mesh(), rank));
    ranks.push_back(planned_segments(config.precision.dtype, config.shape, shape, context));
  }
  return ranks;
}

namespace {

// The bytes that each rank of a run sends per step.
std::vector<StepTraffic> planned_traffic(const RunConfig& config) {
  std::vector<StepTraffic> ranks;
  for (int rank = 0; rank < config.mesh().ranks; ++rank) {
    ranks.push_back(step_traffic(config.shape, config.run_shape(), config.mesh(),
                                 config.batch.grad_accum, element_bytes(config.precision.dtype),
                                 rank));
  }
  return ranks;
}

std::string with_mebibytes(std::int64_t bytes) {
  return std::to_string(bytes) + " bytes (" + megabytes(bytes) + ")";
}

// "rank 3" or "ranks 0 to 7, each"
std::string ranks_text(std::size_t first, std::size_t last) {
  if (first == last) return "rank " + std::to_string(first);
  return "ranks " + std::to_string(first) + " to " + std::to_string(last) + ", each";
}

std::string traffic_lines(const RunConfig& config, const StepTraffic& traffic) {
  const auto line = [](const char* name, std::int64_t bytes) {
    return std::string("  ") + name + ": " + with_mebibytes(bytes) + "\n";
  };
  const Mesh mesh = config.mesh();
  const std::int64_t exchanged = step_exchange_bytes(mesh.ranks);
  std::string text = line("gradients", traffic.gradients.all()) +
                     line("weights", traffic.weights.all()) +
                     line("norm and loss", traffic.scalars.all());
  if (mesh.tensor_ranks > 1) {
    text += line("activations, to tensor ranks", traffic.activations.all()) +
            line("gradients and norm, to tensor ranks",
                 (traffic.copied_gradients + traffic.tensor_scalars).all());
  }
  if (mesh.pipeline_ranks > 1) {
    text += line("activations and their gradients, to pipeline ranks", traffic.messages.all()) +
            line("gradient of token embeddings, norm and loss, to pipeline ranks",
                 (traffic.shared_embedding + traffic.pipeline_scalars).all());
  }
  return text + line("decisions and times", exchanged) + line("in all", traffic.all() + exchanged);
}

// A paragraph per group of neighbouring ranks that send the same.
std::string traffic_text(const RunConfig& config, const std::vector<StepTraffic>& ranks) {
  std::string text;
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[first] == ranks[last + 1]) ++last;
    const bool is_all = first == 0 && last + 1 == ranks.size();
    text += is_all ? "each rank sends per step:\n" : ranks_text(first, last) + " sends per step:\n";
    text += traffic_lines(config, ranks[first]);
    first = last + 1;
  }
  return text;
}

// A paragraph per group of neighbouring ranks with equal memory, then what a rank sends.
std::string plan_text(const RunConfig& config) {
  const ParameterTable table = gpt2_parameters(config.shape);
  const auto ranks = planned_memory(config);
  std::string text = "model: " + std::to_string(table.count()) + " parameters, " +
                     dtype_name(config.precision.dtype) + "\n";
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[first] == ranks[last + 1]) ++last;
    text += ranks_text(first, last) + ":\n";
    std::int64_t total = 0;
    for (const MemoryPlan::Segment& segment : ranks[first]) {
      text += "  " + segment.name + ": " + with_mebibytes(segment.bytes) + "\n";
      total += segment.bytes;
    }
    text += "  in all: " + with_mebibytes(total) + "\n";
    first = last + 1;
  }
  if (!config.training() || ranks.size() == 1) return text;
  return text + traffic_text(config, planned_traffic(config));
}

}  // namespace

void print_plan(const Request& request, RunFacts facts) {
  if (request.schedule.epochs && !facts.windows) facts.windows = 1;  // memory does not depend on it
  const RunConfig config = resolve(request, facts);
  print_text(plan_text(config));
  dump_schedule(config);
}

void print_mesh(const Request& request, const Request& resumed, std::int64_t started) {
  Request typed;
  typed.ranks = request.ranks;
  RunFacts facts{.ranks = request.ranks.ranks.value_or(started)};
  facts.preset.ranks = resumed.ranks;
  const RunConfig config = fill_settings(train_settings(), typed, facts, facts.preset);
  print_text(mesh_text(config.mesh()));
}

}  // namespace llmc
