#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/number_text.h"
#include "llmc/comm/ranks.h"
#include "llmc/device/device.h"
#include "llmc/nn/context.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/nn/stage.h"
#include "llmc/parallel/training_runner.h"
#include "llmc/plan/default_batch.h"
#include "llmc/plan/fit_hint.h"
#include "llmc/plan/offload_traffic.h"

namespace llmc {

namespace {

// A change of a run that needs less memory.
struct Saving {
  std::string flag;
  std::function<void(RunShape&)> apply;
};

std::int64_t bytes_of(const FitRequest& request) {
  return largest_memory(request.dtype, request.config, request.shape, request.mesh,
                        request.is_host_memory);
}

bool fits(const FitRequest& request) {
  return bytes_of(request) <= request.free_bytes;
}

// --offload of the first `count` kinds: to a disk if the memory is the host's, of which another
// place of the host saves nothing. The CPU updates no state on a disk.
Saving offload(std::size_t count, const FitRequest& request) {
  const bool is_host_memory = request.is_host_memory;
  const OffloadPlace place =
      is_host_memory ? OffloadPlace{Place::disk, "DIR"} : OffloadPlace{Place::host, {}};
  std::string flag;
  for (std::size_t i = 0; i < count; ++i) {
    flag += (i == 0 ? "--offload " : ",") + std::string(kOffloadKinds[i].name) +
            (is_host_memory ? "=DIR" : "");
  }
  if (is_host_memory && request.shape.offload.optimizer_on_cpu) flag += " --optimizer-on device";
  return {flag, [=](RunShape& shape) {
            if (is_host_memory) shape.offload.optimizer_on_cpu = false;
            for (std::size_t i = 0; i < count; ++i) shape.offload.*kOffloadKinds[i].place = place;
          }};
}

Saving recompute(Recompute mode) {
  return {std::string("--recompute ") + choice_name(mode), [mode](RunShape& shape) {
            shape.recompute = mode;
            shape.recompute_blocks = 0;
          }};
}

// Lists of savings, from the cheapest on.
std::vector<std::vector<Saving>> ladder(const FitRequest& request) {
  const RunShape& shape = request.shape;
  std::vector<std::vector<Saving>> steps = {{}};
  std::vector<Saving> selective, layout;  // of the activations, and of the ranks
  const auto add_layout = [&] {
    steps.push_back(selective);
    steps.back().insert(steps.back().end(), layout.begin(), layout.end());
  };
  if (shape.recompute == Recompute::none) {
    selective.push_back(recompute(Recompute::selective));
    steps.push_back(selective);
  }
  for (int zero = shape.zero_stage + 1; request.mesh.shard_ranks > 1 && zero <= 3; ++zero) {
    layout = {
        {"--zero " + std::to_string(zero), [zero](RunShape& shape) { shape.zero_stage = zero; }}};
    add_layout();
  }
  if (request.mesh.tensor_ranks > 1 && !shape.sequence_parallel) {
    layout.push_back(
        {"--sequence-parallel", [](RunShape& shape) { shape.sequence_parallel = true; }});
    add_layout();
  }
  std::vector<Saving> all = layout;
  if (shape.recompute != Recompute::full || shape.recompute_blocks > 0) {
    all.push_back(recompute(Recompute::full));
    steps.push_back(all);
  }
  for (std::size_t count = 1; count <= kOffloadKinds.size(); ++count) {
    steps.push_back(all);
    steps.back().push_back(offload(count, request));
  }
  return steps;
}

FitRequest with(const FitRequest& request, const std::vector<Saving>& savings) {
  FitRequest changed = request;
  for (const Saving& saving : savings) saving.apply(changed.shape);
  return changed;
}

// Leaves out savings without which the run fits too, the cheapest last.
std::vector<Saving> needed(const FitRequest& request, std::vector<Saving> savings) {
  for (std::size_t i = savings.size(); i-- > 0;) {
    std::vector<Saving> fewer = savings;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (fits(with(request, fewer))) savings = fewer;
  }
  return savings;
}

// "1234.5 MiB of device memory, 20% more FLOP, ...", of the rank with the most.
std::string cost_text(const FitRequest& request, const FitRequest& fitting) {
  const RunShape& shape = fitting.shape;
  std::string text = megabytes(bytes_of(fitting)) + " of " + megabytes(request.free_bytes);
  const double flops = recompute_flops(request.config, shape);
  if (shape.recompute != Recompute::none) {
    text += ", " + number_text("%.1f", 100 * flops) + "% of the FLOP in addition";
  }
  if (!shape.offload.any()) return text;
  const std::int64_t micro_batches =
      request.micro_batches * ceil_div(request.shape.B, std::max<std::int64_t>(1, shape.B));
  OffloadBytes bytes;
  for (const Place place : {Place::host, Place::disk}) {
    bytes += offload_traffic(request.dtype, request.config, shape, request.mesh, micro_batches, 0)
                 .of(place, shape.offload);
  }
  Context context({}, Ranks(request.mesh, 0));
  std::int64_t outside = 0;
  for (const auto& segment : planned_segments(request.dtype, request.config, shape, context)) {
    if (segment.place != Place::device) outside += segment.bytes;
  }
  return text + ", " + megabytes(outside) + " elsewhere, which moves " +
         megabytes(bytes.to_device) + " in and " + megabytes(bytes.from_device) + " out per step" +
         (request.mesh.ranks > 1 && shape.zero_stage == 0
              ? "; with --zero 0 each rank has a copy of its own"
              : "");
}

std::string hint_text(const FitRequest& request, const FitRequest& fitting,
                      const std::vector<Saving>& savings) {
  std::string flags;
  const auto add = [&](const std::string& flag) { flags += (flags.empty() ? "" : " ") + flag; };
  for (const Saving& saving : savings) add(saving.flag);
  const bool has_smaller_batch = fitting.shape.B < request.shape.B;
  if (has_smaller_batch) add("--batch-size " + std::to_string(fitting.shape.B));
  if (fitting.shape.T < request.shape.T) add("--seq-len " + std::to_string(fitting.shape.T));
  return "use " + flags + ", which fits (" + cost_text(request, fitting) + ")" +
         (has_smaller_batch ? "; --grad-accum keeps the global batch large" : "");
}

}  // namespace

std::int64_t largest_batch_that_fits(const FitRequest& request) {
  FitRequest candidate = request;
  if (fits(candidate)) return request.shape.B;
  std::int64_t max_batch = 0, upper_bound = request.shape.B;  // bisection: B may be 65535
  while (upper_bound - max_batch > 1) {
    candidate.shape.B = max_batch + (upper_bound - max_batch) / 2;
    (fits(candidate) ? max_batch : upper_bound) = candidate.shape.B;
  }
  return max_batch;
}

double recompute_flops(const ModelConfig& config, const RunShape& shape) {
  const auto C = static_cast<double>(config.channels),
             H = static_cast<double>(config.hidden_size());
  const auto L = static_cast<double>(config.layers), T = static_cast<double>(shape.T);
  const auto V = static_cast<double>(config.num_logits());
  const double attention = 2 * T * C;  // of a token in a layer, forward, causal
  const double step = 6 * (L * (4 * C * C + 2 * C * H) + V * C) + 3 * L * attention;
  std::int64_t blocks = 0;
  const int ranks = shape.pipeline.single() ? 1 : shape.pipeline.shape.ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    for (const Stage& stage : stages_of(shape.pipeline, rank, config.layers)) {
      for (std::int64_t i = 0; i < stage.blocks(); ++i) {
        blocks += shape.recompute_of(i) != Recompute::none ? 1 : 0;
      }
    }
  }
  double block = 0;
  if (shape.recompute == Recompute::full) block = 2 * (4 * C * C + C * H) + attention;
  if (shape.recompute == Recompute::selective && shape.attention == Attention::standard) {
    block = attention / 2;  // the scores
  }
  return static_cast<double>(blocks) * block / step;
}

std::string fit_hint(const FitRequest& request) {
  FitRequest rows = request;
  rows.shape.logits_rows = RunShape{}.logits_rows;
  if (rows.shape.chunk_rows() < request.shape.chunk_rows() && fits(rows)) {
    return "use --logits-rows " + std::to_string(rows.shape.logits_rows) + ", which fits";
  }
  const auto steps = ladder(request);
  for (const std::vector<Saving>& savings : steps) {
    FitRequest candidate = with(request, savings);
    candidate.shape.B = largest_batch_that_fits(candidate);
    if (candidate.shape.B == 0) continue;
    FitRequest smaller = request;
    smaller.shape.B = candidate.shape.B;
    const std::vector<Saving> few = needed(smaller, savings);
    return hint_text(request, with(smaller, few), few);
  }
  FitRequest shorter = with(request, steps.back());
  shorter.shape.B = 1;
  for (; shorter.shape.T > 1; shorter.shape.T /= 2) {
    if (fits(shorter)) return hint_text(request, shorter, steps.back());
  }
  return "use a smaller model or a device with more memory: not even one short sequence fits";
}

}  // namespace llmc
