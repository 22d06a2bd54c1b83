#include <algorithm>
#include <limits>
#include <optional>

#include "llmc/base/error.h"
#include "llmc/config/resolve.h"
#include "llmc/device/math.h"
#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/models/trainable_set.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/plan/default_batch.h"
#include "llmc/plan/search/counted_bytes.h"
#include "llmc/plan/search/plan_search.h"

namespace llmc {

std::int64_t memory_limit(const Machine& machine, double gibibytes) {
  if (gibibytes > 0) return bytes_of_gibibytes(gibibytes) - kMemoryReserve;
  return static_cast<std::int64_t>(machine.memory) -
         (machine.host_bandwidth > 0 ? kMemoryReserve : 0);
}

namespace {

LearningPart learning_part(const RunConfig& config) {
  RunShape shape;
  shape.frozen = config.frozen;
  shape.adapters = config.adapter.shape;
  const ParameterTable table = gpt2_parameters(config.shape, {}, shape);
  const int first_block = std::max(1, table.first_learning_block());
  double learning = 0, blocks = 0, adapters = 0;
  for (const ParameterSpec& spec : table.specs()) {
    if (spec.block < first_block || spec.block > config.shape.layers) continue;
    const auto size = static_cast<double>(spec.size());
    (spec.is_adapter ? adapters : blocks) += size;
    if (spec.trainable && !spec.is_adapter) learning += size;
  }
  if (blocks == 0) blocks = 1;  // only the head learns
  const char* const head = config.shape.tied_head ? "wte." : "lm_head.";
  return {.all = static_cast<double>(table.trainable_count()) / static_cast<double>(table.count()),
          .blocks = learning / blocks,
          .adapters = adapters / blocks,
          .has_embedding = table.learns(head),
          .first_layer = first_block - 1};
}

}  // namespace

TimedModel timed_model(const RunConfig& config) {
  const ModelConfig& model = config.shape;
  return {.layers = model.layers,
          .channels = model.channels,
          .heads = model.heads,
          .T = config.batch.seq_len,
          .vocabulary = round_up(model.vocabulary, kVocabularyMultiple),
          .hidden = model.hidden_size(),
          .tied_head = model.tied_head,
          .learning = learning_part(config)};
}

namespace {

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

class LayoutSearch {
 public:
  LayoutSearch(const Request& typed, const RunFacts& facts, StepPredictor& predictor,
               std::int64_t limit, std::size_t top)
      : typed_(typed), facts_(facts), predictor_(predictor), limit_(limit), top_(top) {}

  PlanResult run() {
    RunConfig config = resolve(neutral_request(typed_), facts_);
    choose_trainable(config, config.finetune.adapter);
    PlanResult result;
    result.model = timed_model(config);
    const std::int64_t T = config.batch.seq_len, sequences = sequences_of_step(T);
    result.tokens_per_step = sequences * T;
    const auto node = static_cast<std::int64_t>(predictor_.machine().ranks_per_node);
    LayoutSpace space =
        layout_space(typed_, {.ranks = facts_.ranks,
                              .layers = config.shape.layers,
                              .heads = config.shape.heads,
                              .sequences = sequences,
                              .ranks_per_node = node,
                              .can_offload = predictor_.machine().host_bandwidth > 0});
    result.refused = std::move(space.refused);
    for (const Layout& layout : space.layouts) {
      result.layouts.push_back({.layout = layout,
                                .status = PlanStatus::slower,
                                .time = predictor_.lower_bound(result.model, layout)});
    }
    std::ranges::stable_sort(result.layouts, {}, [](const auto& one) { return one.time.total; });
    for (PlannedLayout& one : result.layouts) {
      if (one.time.total >= slowest_ranked()) break;  // so are all that follow
      judge(one, result.model);
    }
    finish(result);
    return result;
  }

 private:
  // On all ranks: typed, or as many as the ranks would have by default.
  std::int64_t sequences_of_step(std::int64_t T) const {
    const std::optional<std::int64_t> tokens =
        typed_.batch.total_batch_tokens ? typed_.batch.total_batch_tokens
        : typed_.batch.grad_accum       ? std::nullopt
                                        : facts_.default_step_tokens;
    if (tokens) {
      require(*tokens % T == 0,
              "the " + std::to_string(*tokens) +
                  " tokens of a step are no "
                  "multiple of the " +
                  std::to_string(T) + " tokens of a sequence",
              "set --total-batch-tokens to a multiple of --seq-len");
      return *tokens / T;
    }
    return typed_.batch.batch_size.value_or(facts_.default_batch_size) *
           typed_.batch.grad_accum.value_or(1) * facts_.ranks /
           (typed_.ranks.tp.value_or(1) * typed_.ranks.pp.value_or(1));
  }

  // The time that a layout must beat.
  double slowest_ranked() const {
    return times_.size() < top_ ? std::numeric_limits<double>::infinity() : times_[top_ - 1];
  }

  void judge(PlannedLayout& one, const TimedModel& model) {
    const bool counts = predictor_.software().counted_traffic > 0;
    if (!counts) {
      one.time = predictor_.predict(model, one.layout);
      if (one.time.total >= slowest_ranked()) return;
    }
    try {
      RunConfig config = resolve(request_of(typed_, one.layout), facts_);
      choose_trainable(config, config.finetune.adapter);
      if (counts) {
        const SentBytes sent = counted_bytes(config);
        one.sent = predictor_.simulated_bytes(one.layout, sent);
        one.time = predictor_.predict(model, one.layout, &sent);
        if (one.time.total >= slowest_ranked()) return;
      }
      one.bytes = largest_memory(config.precision.dtype, config.shape, config.run_shape(),
                                 config.mesh(), predictor_.machine().host_bandwidth == 0);
    } catch (const Error& error) {
      one.status = PlanStatus::refused;
      one.reason = first_line(error.what());
      return;
    }
    one.status = one.bytes <= limit_ ? PlanStatus::fits : PlanStatus::too_large;
    if (one.status != PlanStatus::fits) return;
    times_.insert(std::ranges::upper_bound(times_, one.time.total), one.time.total);
  }

  void finish(PlanResult& result) const {
    const double slowest = slowest_ranked();
    for (PlannedLayout& one : result.layouts) {
      if (one.status == PlanStatus::fits && one.time.total > slowest) {
        one.status = PlanStatus::slower;
      }
    }
    std::ranges::stable_sort(result.layouts, [](const auto& a, const auto& b) {
      const bool a_fits = a.status == PlanStatus::fits, b_fits = b.status == PlanStatus::fits;
      return a_fits != b_fits ? a_fits : a.time.total < b.time.total;
    });
    result.num_fitting = static_cast<std::size_t>(
        std::ranges::count(result.layouts, PlanStatus::fits, &PlannedLayout::status));
  }

  const Request& typed_;
  const RunFacts& facts_;
  StepPredictor& predictor_;
  std::int64_t limit_;
  std::size_t top_;
  std::vector<double> times_;  // of the layouts that fit, ascending
};

}  // namespace

PlanResult search_plan(const Request& typed, const RunFacts& facts, StepPredictor& predictor,
                       std::int64_t limit, std::size_t top) {
  return LayoutSearch(typed, facts, predictor, limit, top).run();
}

}  // namespace llmc
