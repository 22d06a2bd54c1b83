#include "llmc/config/rank_rules.h"

#include <iterator>
#include <numeric>
#include <variant>
#include <vector>

#include "llmc/base/error.h"

namespace llmc {

// ---- texts ----

std::string divisors_hint(std::int64_t number, std::int64_t other, std::int64_t max) {
  std::string text;
  for (std::int64_t n = 1; n <= number && n <= max; ++n) {
    if (number % n != 0 || other % n != 0) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(n);
  }
  return (text == "1" ? "use " : "use one of ") + text;
}

namespace {

// How to start several ranks, for a run of one.
std::string start_ranks_hint(std::int64_t ranks) {
  return ranks == 1 ? "; scripts/run.sh -np N ./train_gpt2 ... starts N ranks" : "";
}

// "--tp 4 does not divide the 6 ranks"
std::string divisor_problem(const char* flag, std::int64_t value, std::int64_t number,
                            const std::string& name) {
  return flag + (" " + std::to_string(value)) + " does not divide the " + std::to_string(number) +
         " " + name + (number == 1 ? "" : "s");
}

}  // namespace

// ---- tensor groups ----

std::optional<SettingValue> fitting_tensor_ranks(const TrainResolution& r) {
  if (!r.facts.preset.ranks.tp) return std::nullopt;
  const std::int64_t pp = r.request.ranks.pp.value_or(1), ranks = r.facts.ranks;
  return std::gcd(*r.facts.preset.ranks.tp, ranks % pp == 0 ? ranks / pp : ranks);
}

namespace {

// The value of --tp, for rows above its own too.
std::int64_t tensor_ranks_of(const TrainResolution& r) {
  if (r.request.ranks.tp) return *r.request.ranks.tp;
  return std::get<std::int64_t>(fitting_tensor_ranks(r).value_or(std::int64_t{1}));
}

}  // namespace

void check_tensor_ranks(const TrainResolution& r) {
  const std::int64_t tp = tensor_ranks_of(r), ranks = r.facts.ranks;
  const std::optional<ModelConfig> shape =
      has_model(r) ? std::optional(model_shape(r.config, r.facts)) : std::nullopt;
  const std::int64_t heads = shape ? shape->heads : 0, hidden = shape ? shape->hidden_size() : 0;
  if (heads % tp != 0) {
    fail_usage(divisor_problem("--tp", tp, heads, "head"), divisors_hint(heads));
  }
  constexpr std::int64_t kVector = 8;  // hidden channels that kernels process together
  if (hidden % (tp * kVector) != 0) {
    fail_usage("--tp " + std::to_string(tp) + " does not divide the " + std::to_string(hidden) +
                   " hidden channels (n_inner) into multiples of 8",
               divisors_hint(hidden / kVector, heads));
  }
  if (ranks % tp == 0) return;
  fail_usage(divisor_problem("--tp", tp, ranks, "rank"),
             divisors_hint(ranks, heads) + start_ranks_hint(ranks));
}

std::optional<SettingValue> fitting_sequence_parallel(const TrainResolution& r) {
  if (tensor_ranks_of(r) > 1) return std::nullopt;
  return SettingValue(false);
}

void check_sequence_parallel(const TrainResolution& r) {
  if (!r.config.ranks.sequence_parallel || tensor_ranks_of(r) > 1) return;
  fail_usage(
      "--sequence-parallel has no effect without --tp of at least 2: it spreads rows over the "
      "tensor ranks",
      "give --tp N, at least 2, or leave it out");
}

// ---- pipelines ----

std::optional<SettingValue> fitting_pipeline_ranks(const TrainResolution& r) {
  if (!r.facts.preset.ranks.pp) return std::nullopt;
  return std::gcd(*r.facts.preset.ranks.pp, r.facts.ranks / tensor_ranks_of(r));
}

std::int64_t pipeline_ranks_of(const TrainResolution& r) {
  if (r.request.ranks.pp) return *r.request.ranks.pp;
  return std::get<std::int64_t>(fitting_pipeline_ranks(r).value_or(std::int64_t{1}));
}

namespace {

// The most stages that a model can have.
std::int64_t max_stages(const TrainResolution& r) {
  return has_model(r) ? r.config.model.layers : std::numeric_limits<std::int64_t>::max();
}

}  // namespace

void check_pipeline_ranks(const TrainResolution& r) {
  const std::int64_t pp = pipeline_ranks_of(r), tp = tensor_ranks_of(r), ranks = r.facts.ranks;
  const std::int64_t groups = ranks / tp, stages = max_stages(r);
  const std::string hint = divisors_hint(groups, 0, stages);
  if (pp > stages) {
    fail_usage("--pp " + std::to_string(pp) + " is more than the " + std::to_string(stages) +
                   (stages == 1 ? " layer" : " layers") + " of the model",
               hint + "; each pipeline rank has at least one layer");
  }
  if (groups % pp == 0) return;
  if (tp == 1) {
    fail_usage(divisor_problem("--pp", pp, ranks, "rank"), hint + start_ranks_hint(ranks));
  }
  fail_usage(divisor_problem("--pp", pp, groups, "tensor group") + ": " + std::to_string(ranks) +
                 " ranks / --tp " + std::to_string(tp),
             hint + ", or a number of ranks that is a multiple of --tp x --pp = " +
                 std::to_string(tp) + " x " + std::to_string(pp));
}

namespace {

// Throws if there is no pipeline. `purpose` is what the flag does, such as "it divides ...".
void require_pipeline(const TrainResolution& r, const std::string& flag,
                      const std::string& purpose) {
  if (r.config.ranks.pp > 1) return;
  fail_usage(flag + " has no effect without --pp of at least 2: " + purpose,
             "give --pp N, at least 2, or leave it out");
}

// Whether the interleaved schedule can have these micro-batches. A schedule of the user may have
// any. --print-mesh knows no micro-batches.
bool can_interleave(const TrainResolution& r) {
  return !has_model(r) || r.request.ranks.pp_schedule ||
         r.config.batch.grad_accum % r.config.ranks.pp == 0;
}

}  // namespace

std::optional<SettingValue> fitting_pipeline_chunks(const TrainResolution& r) {
  const std::int64_t chunks = r.facts.preset.ranks.pp_chunks.value_or(1);
  const std::int64_t pp = r.config.ranks.pp;
  if (pp > 1 && chunks <= max_stages(r) / pp && can_interleave(r)) return std::nullopt;
  return SettingValue(std::int64_t{1});
}

namespace {

// The interleaved schedule takes micro-batches in groups of as many as there are pipeline ranks.
void check_interleaving(const TrainResolution& r) {
  if (can_interleave(r)) return;
  const auto& batch = r.config.batch;
  const std::int64_t pp = r.config.ranks.pp, M = batch.grad_accum;
  const std::int64_t multiple = (M / pp + 1) * pp;
  const std::int64_t tokens =
      batch.batch_size * batch.seq_len * (r.facts.ranks / r.config.ranks.tp / pp);
  fail_usage("--pp-chunks " + std::to_string(r.config.ranks.pp_chunks) + " needs micro-batches " +
                 "that are a multiple of --pp " + std::to_string(pp) + "; --grad-accum is " +
                 std::to_string(M),
             "use a multiple, such as " +
                 (r.request.batch.total_batch_tokens
                      ? "--total-batch-tokens " + std::to_string(multiple * tokens)
                      : "--grad-accum " + std::to_string(multiple)) +
                 ", or --pp-chunks 1");
}

// A schedule lists all passes of a step.
void check_schedule_size(const TrainResolution& r) {
  constexpr std::int64_t kMaxPasses = std::int64_t{1} << 22;  // about 100 MB
  const std::int64_t stages = r.config.ranks.pp * r.config.ranks.pp_chunks;
  if (!has_model(r) || r.config.batch.grad_accum <= kMaxPasses / stages) return;
  fail_usage("--grad-accum " + std::to_string(r.config.batch.grad_accum) + " x " +
                 std::to_string(stages) + " stages are too many passes for a schedule",
             "use at most --grad-accum " + std::to_string(kMaxPasses / stages));
}

}  // namespace

void check_pipeline_chunks(const TrainResolution& r) {
  const std::int64_t chunks = r.config.ranks.pp_chunks, pp = r.config.ranks.pp;
  if (chunks > 1) {
    require_pipeline(r, "--pp-chunks", "it divides the layers of each pipeline rank into chunks");
    if (chunks > max_stages(r) / pp) {
      fail_usage("--pp " + std::to_string(pp) + " x --pp-chunks " + std::to_string(chunks) +
                     " are more stages than the " + std::to_string(max_stages(r)) +
                     " layers of the model",
                 "use --pp-chunks of at most " + std::to_string(max_stages(r) / pp) +
                     "; each stage has at least one layer");
    }
    check_interleaving(r);
  }
  if (pp > 1) check_schedule_size(r);
}

std::optional<SettingValue> fitting_pipeline_layers(const TrainResolution& r) {
  const auto& recorded = r.facts.preset.ranks.pp_layers;
  const std::int64_t pp = r.config.ranks.pp, stages = pp * r.config.ranks.pp_chunks;
  if (!recorded || (pp > 1 && std::ssize(*recorded) == stages)) return std::nullopt;
  return SettingValue(std::vector<std::string>{});
}

void check_pipeline_layers(const TrainResolution& r) {
  if (r.config.ranks.pp_layers.empty()) return;
  require_pipeline(r, "--pp-layers", "it divides the layers among pipeline ranks");
  const std::vector<std::int64_t> layers = r.config.stage_layers();
  const std::int64_t pp = r.config.ranks.pp, chunks = r.config.ranks.pp_chunks;
  const std::string typed = "--pp-layers " + value_text(r.config.ranks.pp_layers);
  if (std::ssize(layers) != pp * chunks) {
    fail_usage(typed + " does not have one number for each of the " + std::to_string(pp * chunks) +
                   " stages",
               "give --pp" + std::string(chunks > 1 ? " x --pp-chunks" : "") + " = " +
                   std::to_string(pp * chunks) +
                   " numbers in the order of the model, or leave it out");
  }
  if (!has_model(r)) return;
  std::int64_t left = r.config.model.layers;  // -1: the numbers so far are more
  for (const std::int64_t count : layers) left = count <= left ? left - count : -1;
  if (left == 0) return;
  fail_usage(typed + " has another sum than the " + std::to_string(r.config.model.layers) +
                 " layers of the model",
             "give numbers with this sum, or leave it out");
}

void check_pipeline_schedule(const TrainResolution& r) {
  if (r.config.ranks.pp_schedule.empty()) return;
  require_pipeline(r, "--pp-schedule", "it is the order in which pipeline ranks compute");
}

void check_dump_schedule(const TrainResolution& r) {
  if (r.config.ranks.dump_schedule.empty()) return;
  require_pipeline(r, "--dump-schedule", "it writes the timeline of pipeline ranks");
}

// ---- data-parallel ranks ----

std::int64_t data_ranks_of(const TrainResolution& r) {
  check_tensor_ranks(r);
  check_pipeline_ranks(r);
  return r.facts.ranks / tensor_ranks_of(r) / pipeline_ranks_of(r);
}

std::string divisor_flags(const TrainResolution& r) {
  const std::int64_t tp = tensor_ranks_of(r), pp = pipeline_ranks_of(r);
  const std::string tensor = "--tp " + std::to_string(tp), pipeline = "--pp " + std::to_string(pp);
  if (tp > 1 && pp > 1) return "(" + tensor + " x " + pipeline + ")";
  if (tp > 1) return tensor;
  return pp > 1 ? pipeline : "";
}

std::optional<SettingValue> fitting_shard_group(const TrainResolution& r) {
  const std::int64_t recorded = r.facts.preset.ranks.shard_group.value_or(0);
  if (recorded == 0 || data_ranks_of(r) % recorded == 0) return std::nullopt;
  return SettingValue(std::int64_t{0});
}

void check_shard_group(const TrainResolution& r) {
  const std::int64_t group = r.config.ranks.shard_group, ranks = r.config.data_ranks();
  if (group == 0 || ranks % group == 0) return;
  const std::string divisors = divisor_flags(r);
  const bool whole = divisors.empty();
  fail_usage(divisor_problem("--shard-group", group, ranks, whole ? "rank" : "data-parallel rank") +
                 (whole ? "" : ": " + std::to_string(r.facts.ranks) + " ranks / " + divisors),
             divisors_hint(ranks));
}

}  // namespace llmc
