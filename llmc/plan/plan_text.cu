#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include "llmc/base/error.h"
#include "llmc/base/number_text.h"
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
#include "llmc/models/trainable_set.h"
#include "llmc/nn/context.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/parallel/training_runner.h"
#include "llmc/plan/default_batch.h"
#include "llmc/plan/fit_hint.h"
#include "llmc/plan/offload_traffic.h"
#include "llmc/plan/plan_text.h"
#include "llmc/plan/schedule_dump.h"
#include "llmc/plan/snapshot_memory.h"
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

// The bytes that a rank moves for offloaded state, of the rank that moves the most.
std::string offload_text(const RunConfig& config) {
  const RunShape shape = config.run_shape();
  std::string text;
  for (const Place place : {Place::host, Place::disk}) {
    OffloadBytes largest;
    for (int rank = 0; rank < config.mesh().ranks; ++rank) {
      const OffloadBytes bytes = offload_traffic(config.precision.dtype, config.shape, shape,
                                                 config.mesh(), config.batch.grad_accum, rank)
                                     .of(place, shape.offload);
      largest.to_device = std::max(largest.to_device, bytes.to_device);
      largest.from_device = std::max(largest.from_device, bytes.from_device);
    }
    if (largest == OffloadBytes()) continue;
    const std::string name = place_name(place);
    text += "  from " + name + ": " + with_mebibytes(largest.to_device) + "\n  to " + name + ": " +
            with_mebibytes(largest.from_device) + "\n";
  }
  return text.empty() ? "" : "a rank moves per step at most:\n" + text;
}

// The right-aligned number in a column.
std::string column(std::int64_t bytes) {
  constexpr std::size_t kWidth = 16;
  const std::string text = std::to_string(bytes);
  return std::string(kWidth - std::min(kWidth - 1, text.size()), ' ') + text;
}

// The memory of a rank by segment and place, in bytes.
std::string offload_table(const std::vector<MemoryPlan::Segment>& segments) {
  constexpr std::array kPlaces = {Place::device, Place::host, Place::disk};
  constexpr std::size_t kNameWidth = 20;
  std::array<std::int64_t, kPlaces.size()> totals{};
  const auto row = [&](std::string name, const auto& text_of) {
    name.resize(std::max(kNameWidth, name.size()), ' ');
    std::string text = "  " + name;
    for (std::size_t i = 0; i < kPlaces.size(); ++i) text += text_of(i);
    return text + "\n";
  };
  std::string text = row("bytes", [&](std::size_t i) {
    const std::string name = place_name(kPlaces[i]);
    return std::string(16 - name.size(), ' ') + name;
  });
  std::vector<std::string> names;
  for (const MemoryPlan::Segment& segment : segments) {
    if (std::ranges::find(names, segment.name) == names.end()) names.push_back(segment.name);
  }
  for (const std::string& name : names) {
    text += row(name, [&](std::size_t i) {
      std::int64_t bytes = 0;
      for (const MemoryPlan::Segment& segment : segments) {
        if (segment.name == name && segment.place == kPlaces[i]) bytes += segment.bytes;
      }
      totals[i] += bytes;
      return column(bytes);
    });
  }
  text += row("in all", [&](std::size_t i) { return column(totals[i]); });
  return text + row("in all, MiB", [&](std::size_t i) {
           const std::string number =
               number_text("%.1f", static_cast<double>(totals[i]) / (1 << 20));
           return std::string(16 - std::min<std::size_t>(15, number.size()), ' ') + number;
         });
}

// The memory of a rank by segment.
std::string memory_lines(const std::vector<MemoryPlan::Segment>& segments) {
  if (std::ranges::any_of(segments, [](const auto& s) { return s.place != Place::device; })) {
    return offload_table(segments);
  }
  std::string text;
  std::int64_t total = 0;
  for (const MemoryPlan::Segment& segment : segments) {
    text += "  " + segment.name + ": " + with_mebibytes(segment.bytes) + "\n";
    total += segment.bytes;
  }
  return text + "  in all: " + with_mebibytes(total) + "\n";
}

// The host memory for a save next to training, if there is any.
std::string snapshot_text(const RunConfig& config) {
  const std::vector<std::int64_t> ranks = snapshot_bytes(config);
  std::string text;
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[first] == ranks[last + 1]) ++last;
    if (ranks[first] > 0) {
      text += "  " + ranks_text(first, last) + ": " + with_mebibytes(ranks[first]) + "\n";
    }
    first = last + 1;
  }
  return text.empty() ? "" : "host memory for a checkpoint (--save async):\n" + text;
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
    text += ranks_text(first, last) + ":\n" + memory_lines(ranks[first]);
    first = last + 1;
  }
  if (config.training()) text += snapshot_text(config) + offload_text(config);
  if (!config.training() || ranks.size() == 1) return text;
  return text + traffic_text(config, planned_traffic(config));
}

// How to make a run fit into `free_bytes` per rank.
std::string fitting_settings(const RunConfig& config, std::int64_t free_bytes) {
  return fit_hint({.dtype = config.precision.dtype,
                   .config = config.shape,
                   .shape = config.run_shape(),
                   .mesh = config.mesh(),
                   .free_bytes = free_bytes,
                   .micro_batches = config.batch.grad_accum,
                   .is_host_memory = false});
}

// "fits: ..." if each rank with a GPU of its own has enough memory. Otherwise throws.
std::string fit_text(const RunConfig& config) {
  const std::int64_t free_bytes = bytes_of_gibibytes(config.ranks.gpu_memory) - kMemoryReserve;
  std::vector<std::int64_t> totals;
  for (const auto& segments : planned_memory(config)) {
    totals.push_back(MemoryPlan::device_bytes(segments, false));
  }
  const auto largest = std::ranges::max_element(totals);
  const std::string batch = " with --batch-size " + std::to_string(config.batch.batch_size);
  const std::string need =
      (totals.size() == 1
           ? "the run needs "
           : "rank " + std::to_string(largest - totals.begin()) + " needs the most, ") +
      megabytes(*largest) + batch + "; a GPU of " + number_text("%g", config.ranks.gpu_memory) +
      " GiB has " + megabytes(std::max<std::int64_t>(0, free_bytes)) + " for it, and " +
      megabytes(kMemoryReserve) + " stay free";
  if (*largest <= free_bytes) return "fits: " + need + "\n";
  fail("the run does not fit: " + need, fitting_settings(config, free_bytes));
}

}  // namespace

void print_plan(const Request& request, RunFacts facts) {
  if (request.schedule.epochs && !facts.windows) facts.windows = 1;  // memory does not depend on it
  const double gpu_memory = request.ranks.gpu_memory.value_or(0);
  if (gpu_memory > 0 && !facts.preset.batch.batch_size) {
    set_gpu_batch(facts, request, bytes_of_gibibytes(gpu_memory));
  }
  RunConfig config = resolve(request, facts);
  choose_trainable(config, config.finetune.adapter);
  print_text(plan_text(config));
  dump_schedule(config);
  if (gpu_memory > 0) print_text(fit_text(config));
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
