#include <algorithm>
#include <cstddef>

#include "llmc/base/error.h"
#include "llmc/base/number_text.h"
#include "llmc/config/fill_settings.h"
#include "llmc/config/resolve.h"
#include "llmc/config/train_rules.h"
#include "llmc/config/train_table.h"
#include "llmc/plan/search/choose_mesh.h"
#include "llmc/plan/search/plan_search.h"
#include "llmc/plan/time/dtype_constants.h"

namespace llmc {

namespace {

constexpr std::size_t kCompared = 2;  // the best layout, and how much slower the next is

// The settings that do not depend on the layout.
RunConfig neutral_config(const Request& request, const RunFacts& facts) {
  return fill_settings(train_settings(), neutral_request(request), facts, facts.preset);
}

// Ranks divide the processors of a host, which computes without a device.
void divide_host(Machine& machine, double ranks) {
  const double share = machine.ranks_per_node / ranks;
  machine.peak_flops *= share;
  machine.peak_flops_fp32 *= share;
  machine.memory_bandwidth *= share;
}

StepPredictor predictor_for(const Request& request, const RunFacts& facts, const MeshRoom& room) {
  Machine machine = read_machine(room.machine);
  if (room.ranks_per_node > 0) {
    if (machine.host_bandwidth == 0) divide_host(machine, room.ranks_per_node);
    machine.ranks_per_node = room.ranks_per_node;
  }
  const std::int64_t bytes = room.rank_bytes > 0
                                 ? room.rank_bytes
                                 : memory_limit(machine, request.ranks.gpu_memory.value_or(0));
  machine.memory = static_cast<double>(bytes);
  return predictor_in(neutral_config(request, facts).precision.dtype, machine,
                      read_software("llmc"));
}

std::string count_text(const PlanResult& result, PlanStatus status, const char* what) {
  const auto count = std::ranges::count(result.layouts, status, &PlannedLayout::status);
  return count == 0 ? "" : ", " + std::to_string(count) + " " + what;
}

std::string text_of(const PlanResult& result, const Machine& machine) {
  constexpr double kGibibyte = 1 << 30;
  const PlannedLayout& best = result.layouts[0];
  std::string text = "mesh: " + flags_of(best.layout) + "\n  predicted to be the fastest on " +
                     machine.name + ": " +
                     number_text("%.1f ms per step, ", 1e3 * best.time.total) +
                     number_text("%.2f GiB of ", static_cast<double>(best.bytes) / kGibibyte) +
                     number_text("%.2f per rank", machine.memory / kGibibyte);
  if (result.num_fitting > 1) {
    const PlannedLayout& next = result.layouts[1];
    text += "\n  the next takes " +
            number_text("%.1f%% longer: ", 100 * (next.time.total / best.time.total - 1)) +
            flags_of(next.layout);
  }
  return text + "\n  " + std::to_string(result.layouts.size()) + " layouts compared" +
         count_text(result, PlanStatus::too_large, "do not fit") +
         count_text(result, PlanStatus::refused, "are not possible");
}

[[noreturn]] void fail_without_layout(const PlanResult& result, std::int64_t ranks,
                                      std::int64_t tokens) {
  const std::string subject = "--mesh auto: no layout of " + std::to_string(ranks) + " ranks ";
  if (result.layouts.empty()) {
    std::string reasons;
    for (const RefusedLayouts& refused : result.refused) {
      reasons += "\n    " + refused.layout + ": " + refused.reason;
    }
    fail(subject + "has steps of " + std::to_string(tokens) + " tokens" + reasons,
         "type another --total-batch-tokens, or fewer of the flags that --mesh auto chooses");
  }
  const auto refused =
      std::ranges::find(result.layouts, PlanStatus::refused, &PlannedLayout::status);
  if (refused != result.layouts.end()) {
    fail(subject + "is possible; the fastest: " + refused->reason,
         "leave flags out that --mesh auto chooses");
  }
  fail(subject + "fits",
       "more ranks, a smaller model or shorter sequences need less memory per rank");
}

}  // namespace

bool chooses_mesh(const Request& request, const RunFacts& facts) {
  return request.ranks.mesh.value_or(facts.preset.ranks.mesh.value_or(MeshChoice::flags)) ==
         MeshChoice::automatic;
}

std::int64_t kept_step_tokens(const Request& request, const RunFacts& facts) {
  if (request.batch.total_batch_tokens) return *request.batch.total_batch_tokens;
  const Request& recorded = facts.preset;
  if (recorded.ranks.ranks && recorded.batch.batch_size && recorded.batch.seq_len) {
    const std::int64_t data =
        *recorded.ranks.ranks / recorded.ranks.tp.value_or(1) / recorded.ranks.pp.value_or(1);
    return *recorded.batch.batch_size * *recorded.batch.seq_len *
           recorded.batch.grad_accum.value_or(1) * data;
  }
  const RunConfig config = fill_settings(train_settings(), request, facts, facts.preset);
  return config.batch.batch_size * config.batch.seq_len * config.batch.grad_accum *
         config.data_ranks();
}

ChosenMesh choose_mesh(const Request& request, const RunFacts& facts, const MeshRoom& room) {
  StepPredictor predictor = predictor_for(request, facts, room);
  Request planned = request;
  planned.batch.total_batch_tokens = kept_step_tokens(request, facts);
  const PlanResult result = search_plan(
      planned, facts, predictor, static_cast<std::int64_t>(predictor.machine().memory), kCompared);
  if (result.num_fitting == 0) {
    fail_without_layout(result, facts.ranks, *planned.batch.total_batch_tokens);
  }
  return {.layout = result.layouts[0].layout, .text = text_of(result, predictor.machine())};
}

Request with_mesh(const Request& request, const RunFacts& facts, const Layout& layout) {
  Request result = request_of(request, layout);
  if (request.batch.grad_accum) return result;
  result.batch.grad_accum.reset();
  result.batch.total_batch_tokens = kept_step_tokens(request, facts);
  return result;
}

}  // namespace llmc
