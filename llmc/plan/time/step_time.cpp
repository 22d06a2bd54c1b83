#include "llmc/plan/time/step_time.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "llmc/pipeline/stages.h"

namespace llmc {

double StepPredictor::product(double M, double N, double K) const {
  return machine_.product_start + 2 * M * N * K / (machine_.peak_flops * machine_.product_rate);
}

double StepPredictor::attention_rate() const {
  return machine_.attention_rate > 0 ? machine_.attention_rate : software_.attention_rate;
}

// Scores, probabilities and what they multiply, which selective recomputation computes again.
double StepPredictor::scores(const TimedModel& model, const Layout& layout) const {
  const double t = layout.tensor, B = static_cast<double>(layout.micro_batch),
               T = static_cast<double>(model.T), C = static_cast<double>(model.channels);
  const bool on_chip = software_.score_values == 0;
  const double flops = 4 * B * T * T * C / t * (on_chip ? 0.5 : 1);
  const double bytes =
      values_bytes(software_.score_values) * B * static_cast<double>(model.heads) / t * T * T;
  return flops / (machine_.peak_flops * machine_.product_rate * attention_rate()) +
         bytes / machine_.memory_bandwidth;
}

// The residual stream of a micro-batch.
double StepPredictor::activation_bytes(const TimedModel& model, const Layout& layout) const {
  return software_.weight_bytes * static_cast<double>(layout.micro_batch * model.T) *
         static_cast<double>(model.channels);
}

double StepPredictor::tensor_bandwidth(const Layout& layout) const {
  return layout.tensor <= machine_.ranks_per_node ? machine_.node_bandwidth
                                                  : machine_.tensor_bandwidth;
}

double StepPredictor::tensor_sums(const TimedModel& model, const Layout& layout,
                                  double count) const {
  return count *
         all_reduce(activation_bytes(model, layout), layout.tensor, tensor_bandwidth(layout));
}

StepPredictor::PassTime StepPredictor::layer_forward(const TimedModel& model,
                                                     const Layout& layout) const {
  const double t = layout.tensor, C = static_cast<double>(model.channels),
               H = static_cast<double>(model.hidden),
               N = static_cast<double>(layout.micro_batch * model.T);
  const double products =
      product(N, 3 * C / t, C) + product(N, C, C / t) + product(N, H / t, C) + product(N, C, H / t);
  const double copied = software_.copied_values / (layout.sequence_parallel ? t : 1);
  const double bytes = values_bytes(software_.divided_values / t + copied) * N * C;
  return {{.products = products * (1 + model.learning.adapters),
           .attention = scores(model, layout),
           .others = bytes / machine_.memory_bandwidth + machine_.layer_start},
          tensor_sums(model, layout, 2)};
}

StepPredictor::PassTime StepPredictor::layer_backward(const TimedModel& model,
                                                      const Layout& layout) const {
  const PassTime forward = layer_forward(model, layout);
  PassTime backward{forward.compute * 2, forward.tensor};
  // A product of a frozen matrix has no gradient of the matrix.
  const LearningPart& learning = model.learning;
  backward.compute.products = forward.compute.products *
                              (1 + learning.blocks + 2 * learning.adapters) /
                              (1 + learning.adapters);
  if (layout.recompute == Recompute::full) {
    backward.compute = backward.compute + forward.compute;
    backward.tensor += tensor_sums(model, layout, software_.recompute_sums);
  }
  if (layout.recompute == Recompute::selective) {
    backward.compute.attention += scores(model, layout);
  }
  return backward;
}

ComputeTime StepPredictor::head_forward(const TimedModel& model, const Layout& layout) const {
  const double N = static_cast<double>(layout.micro_batch * model.T),
               V = static_cast<double>(model.vocabulary) / layout.tensor;
  return {.products = product(N, V, static_cast<double>(model.channels)),
          .others = values_bytes(software_.logit_values / 3) * N * V / machine_.memory_bandwidth};
}

double StepPredictor::collective_start(int ranks) const {
  return machine_.collective_start * (1 + std::log2(static_cast<double>(ranks)));
}

bool StepPredictor::hides(double overlaps) const {
  return overlaps > 0 && machine_.hides_communication > 0;
}

double StepPredictor::all_reduce(double bytes, int ranks, double bandwidth) const {
  if (ranks == 1) return 0;
  const double n = ranks;
  return collective_start(ranks) + 2 * (n - 1) / n * bytes / bandwidth;
}

double StepPredictor::data_bandwidth(const Layout& layout) const {
  if (layout.tensor * layout.data <= machine_.ranks_per_node) return machine_.node_bandwidth;
  return machine_.network_bandwidth / std::min<double>(layout.tensor, machine_.ranks_per_node);
}

double StepPredictor::message(const TimedModel& model, const Layout& layout,
                              const SentBytes* sent) const {
  const double parts =
      software_.divides_messages > 0 || layout.sequence_parallel ? layout.tensor : 1;
  const double bytes = sent != nullptr ? sent->message : activation_bytes(model, layout) / parts;
  return machine_.collective_start + bytes / machine_.message_bandwidth;
}

double StepPredictor::rank_parameters(const TimedModel& model, const Layout& layout) const {
  const double layers = std::ceil(static_cast<double>(model.layers) / layout.pipeline);
  return (layers * model.block_parameters() + model.embedding_parameters()) / layout.tensor;
}

double StepPredictor::learning_parameters(const TimedModel& model, const Layout& layout) const {
  return rank_parameters(model, layout) * model.learning.all;
}

namespace {

// How often a step gathers all weights and divides all gradients among data ranks.
struct Rounds {
  double gathers = 0, reductions = 0;
};
Rounds rounds_of(const Layout& layout) {
  const auto m = static_cast<double>(layout.micro_batches);
  if (layout.zero == 0) return {.reductions = 2};  // an all-reduce also gathers the sums
  // With stage 3, each micro-batch gathers weights for both passes.
  return {.gathers = layout.zero == 3 ? 2 * m : 1, .reductions = layout.zero == 1 ? 1 : m};
}

const SentBytes::OfRank& busiest_of(const SentBytes& sent) {
  return *std::ranges::max_element(sent.ranks, {}, &SentBytes::OfRank::data);
}

}  // namespace

double StepPredictor::others_time(const TimedModel& model, const Layout& layout,
                                  const SentBytes* sent) const {
  if (sent == nullptr) {
    if (layout.pipeline == 1 || !model.tied_head || !model.learning.has_embedding) return 0;
    return all_reduce(software_.gradient_bytes * model.embedding_parameters() / layout.tensor, 2,
                      machine_.message_bandwidth);
  }
  const SentBytes::OfRank& rank = busiest_of(*sent);
  const auto time = [&](double bytes, int ranks, double bandwidth) {
    return bytes == 0 ? 0 : collective_start(ranks) + bytes / bandwidth;
  };
  return time(rank.scalars, layout.data, data_bandwidth(layout)) +
         time(rank.tensor, layout.tensor, tensor_bandwidth(layout)) +
         time(rank.pipeline, layout.pipeline, machine_.message_bandwidth);
}

StepPredictor::DataTime StepPredictor::data_work(const TimedModel& model, const Layout& layout,
                                                 const SentBytes* sent) const {
  DataTime time{.others = others_time(model, layout, sent)};
  if (layout.data == 1) return time;
  const Rounds rounds = rounds_of(layout);
  const double n = layout.data, start = collective_start(layout.data),
               parameters = (n - 1) / n * rank_parameters(model, layout);
  const double weights = sent != nullptr ? busiest_of(*sent).weights
                                         : rounds.gathers * software_.weight_bytes * parameters;
  const double gradients = sent != nullptr ? busiest_of(*sent).gradients
                                           : rounds.reductions * software_.gradient_bytes *
                                                 parameters * model.learning.all;
  time.gathers = rounds.gathers * start + weights / data_bandwidth(layout);
  time.reductions = rounds.reductions * start + gradients / data_bandwidth(layout);
  return time;
}

double StepPredictor::exposed_data(const TimedModel& model, const Layout& layout,
                                   const DataTime& work, double passes,
                                   double last_backward) const {
  if (layout.zero == 3) {
    const double hidden = (hides(software_.overlaps_gathers) ? work.gathers : 0) +
                          (hides(software_.overlaps_gradients) ? work.reductions : 0);
    return work.others + work.gathers + work.reductions - std::min(hidden, passes);
  }
  const double before = work.others + work.gathers;
  if (!hides(software_.overlaps_gradients)) return before + work.reductions;
  // The gradient of the embeddings is complete at the end.
  const double last = model.learning.has_embedding
                          ? work.reductions * model.embedding_parameters() / layout.tensor /
                                learning_parameters(model, layout)
                          : 0;
  return before + last + std::max(0.0, work.reductions - last - last_backward);
}

const OrderedSchedule& StepPredictor::schedule_of(const Layout& layout) {
  const PipelineShape shape{.ranks = layout.pipeline,
                            .micro_batches = static_cast<int>(layout.micro_batches),
                            .chunks = layout.chunks};
  const std::tuple key(shape.ranks, shape.micro_batches, shape.chunks);
  const auto known = schedules_.find(key);
  if (known != schedules_.end()) return known->second;
  return schedules_.emplace(key, OrderedSchedule(pipeline_schedule(shape), shape)).first->second;
}

double StepPredictor::updated_parameters(const TimedModel& model, const Layout& layout) const {
  return learning_parameters(model, layout) / (layout.zero > 0 ? layout.shard_ranks : 1);
}

double StepPredictor::optimizer_time(const TimedModel& model, const Layout& layout) const {
  return updated_parameters(model, layout) * software_.optimizer_bytes * machine_.optimizer_scale /
         machine_.memory_bandwidth;
}

double StepPredictor::host_time(const TimedModel& model, const Layout& layout, double passes,
                                const SentBytes* sent) const {
  if (machine_.host_bandwidth == 0) return 0;
  if (sent != nullptr) {
    double longest = 0;
    for (const SentBytes::OfRank& rank : sent->ranks) {
      const double time = rank.host_update / machine_.host_bandwidth +
                          std::max(0.0, rank.host_passes / machine_.host_bandwidth - passes);
      longest = std::max(longest, time);
    }
    return longest;
  }
  // The master weight and both moments come and leave.
  constexpr double kStateBytes = 12;
  return layout.offloads_optimizer
             ? 2 * kStateBytes * updated_parameters(model, layout) / machine_.host_bandwidth
             : 0;
}

// The mean of all micro-batches.
double StepPredictor::accumulation(const TimedModel& model, const Layout& layout, double layers,
                                   bool has_head) const {
  const double blocks =
      layers * model.block_parameters() * (model.learning.blocks + model.learning.adapters);
  const double parameters =
      blocks + (has_head && model.learning.has_embedding ? model.embedding_parameters() : 0);
  const auto m = static_cast<double>(layout.micro_batches);
  return (m - 1) / m * software_.accumulation_bytes * parameters / layout.tensor /
         machine_.memory_bandwidth;
}

StepPredictor::Passes StepPredictor::passes_of(const TimedModel& model, const Layout& layout,
                                               const std::vector<std::int64_t>& bounds,
                                               const SentBytes* sent) const {
  const PassTime forward = layer_forward(model, layout), backward = layer_backward(model, layout);
  const ComputeTime head = head_forward(model, layout);
  ComputeTime head_backward = head * 2;
  if (!model.learning.has_embedding) head_backward.products = head.products;
  // The sum of the embeddings, and that of the gradient of the head's input.
  const double sum = tensor_sums(model, layout, 1);
  const int stages = layout.pipeline * layout.chunks;
  Passes passes;
  passes.ranks.resize(static_cast<std::size_t>(layout.pipeline));
  for (int stage = 0; stage < stages; ++stage) {
    const auto s = static_cast<std::size_t>(stage);
    const auto layers = static_cast<double>(bounds[s + 1] - bounds[s]);
    const bool is_first = stage == 0, is_last = stage + 1 == stages;
    const auto learning_layers = static_cast<double>(
        std::max<std::int64_t>(0, bounds[s + 1] - std::max(bounds[s], model.learning.first_layer)));
    const double times = is_last ? 1 : 0;
    passes.forward.push_back(forward * layers + PassTime{head * times, is_first ? sum : 0});
    passes.backward.push_back(backward * learning_layers +
                              PassTime{head_backward * times, is_last ? sum : 0});
    passes.backward[s].compute.others += accumulation(model, layout, learning_layers, is_last);
    if (sent != nullptr && layout.tensor > 1) {
      const double start = 2 * collective_start(layout.tensor), rate = tensor_bandwidth(layout);
      passes.forward[s].tensor = start * layers + sent->forward[s] / rate;
      passes.backward[s].tensor = start * learning_layers + sent->backward[s] / rate;
    }
    PassTime& rank = passes.ranks[static_cast<std::size_t>(stage % layout.pipeline)];
    rank =
        rank + (passes.forward[s] + passes.backward[s]) * static_cast<double>(layout.micro_batches);
  }
  return passes;
}

StepPredictor::Passes StepPredictor::passes_of(const TimedModel& model, const Layout& layout,
                                               const SentBytes* sent) const {
  return passes_of(model, layout, even_stages(model.layers, layout.pipeline * layout.chunks), sent);
}

const StepPredictor::PassTime& StepPredictor::Passes::busiest() const {
  return *std::ranges::max_element(ranks, {}, &PassTime::all);
}

PassCosts StepPredictor::Passes::costs(double message, bool overlaps) const {
  return {.pass =
              [this](const PipelinePass& pass) {
                const auto& passes = pass.kind == PassKind::forward ? forward : backward;
                return passes[static_cast<std::size_t>(pass.stage)].all();
              },
          .message = message,
          .overlaps_messages = overlaps};
}

StepTime StepPredictor::predict(const TimedModel& model, const Layout& layout,
                                const SentBytes* sent) {
  const Passes passes = passes_of(model, layout, sent);
  const PassTime& busiest = passes.busiest();
  StepTime time{.compute = busiest.compute.all(), .tensor = busiest.tensor};
  if (layout.pipeline > 1) {
    const PassCosts costs =
        passes.costs(message(model, layout, sent), hides(software_.overlaps_messages));
    time.pipeline = schedule_of(layout).duration(costs) - busiest.all();
  }
  time.data = exposed_data(model, layout, data_work(model, layout, sent),
                           busiest.all() + time.pipeline, passes.backward.front().all());
  time.optimizer =
      optimizer_time(model, layout) + host_time(model, layout, busiest.all() + time.pipeline, sent);
  time.total = busiest.all() + time.pipeline + time.data + time.optimizer;
  return time;
}

PipelineTimeline StepPredictor::timeline(const TimedModel& model, const Layout& layout,
                                         const std::vector<std::int64_t>& bounds,
                                         const OrderedSchedule& schedule) const {
  const Passes passes = passes_of(model, layout, bounds, nullptr);
  return schedule.timeline(
      passes.costs(message(model, layout), hides(software_.overlaps_messages)));
}

GroupBytes StepPredictor::simulated_bytes(const Layout& layout, const SentBytes& sent) {
  struct OfRank {
    double tensor = 0, messages = 0;
  };
  std::vector<OfRank> ranks(sent.ranks.size());
  const auto add_pass = [&](std::size_t rank, const PipelinePass& pass, double times) {
    const auto& bytes = pass.kind == PassKind::forward ? sent.forward : sent.backward;
    ranks[rank].tensor += times * bytes[static_cast<std::size_t>(pass.stage)];
  };
  if (layout.pipeline == 1) {
    const auto m = static_cast<double>(layout.micro_batches);
    add_pass(0, PipelinePass{.kind = PassKind::forward}, m);
    add_pass(0, PipelinePass{.kind = PassKind::backward}, m);
  } else {
    const PassCosts costs{.pass = [](const PipelinePass&) { return 1.0; }, .message = 1};
    const PipelineTimeline timeline = schedule_of(layout).timeline(costs);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      for (const TimedPass& timed : timeline.ranks[rank]) add_pass(rank, timed.pass, 1);
      ranks[rank].messages = sent.message * static_cast<double>(timeline.messages[rank].size());
    }
  }
  GroupBytes most;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    most.tensor = std::max(most.tensor, ranks[rank].tensor + sent.ranks[rank].tensor);
    most.pipeline = std::max(most.pipeline, ranks[rank].messages + sent.ranks[rank].pipeline);
    most.data = std::max(most.data, sent.ranks[rank].data());
  }
  return most;
}

StepTime StepPredictor::lower_bound(const TimedModel& model, const Layout& layout) const {
  const Passes passes = passes_of(model, layout);
  // A rank begins after the first micro-batch has passed the ranks before it, which compute the
  // backward pass of its last one.
  double before = 0, longest = 0;
  for (std::size_t rank = 0; rank < passes.ranks.size(); ++rank) {
    longest = std::max(longest, before + passes.ranks[rank].all());
    before += passes.forward[rank].all() + passes.backward[rank].all();
  }
  StepTime time{.compute = passes.busiest().compute.all(), .tensor = passes.busiest().tensor};
  time.pipeline = longest - passes.busiest().all();
  time.optimizer = optimizer_time(model, layout);
  time.total = longest + time.optimizer;
  return time;
}

ComputeTime StepPredictor::compute_time(const TimedModel& model, const Layout& layout) const {
  return passes_of(model, layout).busiest().compute;
}

}  // namespace llmc
