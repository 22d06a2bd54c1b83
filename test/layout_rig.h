// Trains a small model with a layout of ranks, which are threads, with one rank, and with the fp64
// oracle, and compares what they computed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "llmc/comm/thread_ranks.h"
#include "llmc/models/trainable_set.h"
#include "llmc/parallel/pipeline_runner.h"
#include "test/layouts.h"
#include "test/model_rig.h"
#include "test/oracle/gpt2.h"
#include "test/qat_rig.h"

namespace llmc_test {

using namespace llmc;

// The means of a run to need less memory.
struct MemoryOptions {
  Recompute recompute = Recompute::none;
  std::int64_t blocks = 0;  // of a stage, that are recomputed; 0: all
  OffloadPlaces offload = {};

  std::string text() const {
    return std::string("recompute ") + choice_name(recompute) +
           (blocks == 0 ? "" : " of " + std::to_string(blocks) + " blocks") +
           place_text("optimizer", offload.optimizer) + place_text("gradients", offload.gradients) +
           place_text("parameters", offload.parameters) +
           place_text("activations", offload.activations);
  }

 private:
  static std::string place_text(const std::string& kind, const OffloadPlace& place) {
    return place.place == Place::device
               ? ""
               : ", " + kind + " on " + (place.place == Place::host ? "host" : "disk");
  }
};

struct LayoutOptions {
  std::int64_t vocabulary = 211, steps = 1;
  DropoutRates dropout = {};
  bool stochastic_rounding = false;
  double grad_clip = 0;
  std::int64_t heads = 3, layers = tiny_shapes() ? 2 : 3;
  double eps = 1e-4;  // a smaller one turns differences of rounding into steps of +-lr
  bool masks_targets = false, documents = false;
  std::int64_t labels = 0;  // of a classifier, whose targets are labels of padded texts
  std::int64_t B = 1;
  std::int64_t logits_rows = 0;  // rows of a chunk of logits; 0: all
  bool standard_attention = false;
  QatMode qat = QatMode::none;
  bool zero_points = false;
  std::vector<std::string> frozen = {};  // names of parameters
  AdapterShape adapters = {};
  bool base_codes = false;
  // Every property in which models of GPT-2's family differ has another value than in GPT-2.
  bool differs_from_gpt2 = false;
  MemoryOptions memory = {};

  ModelConfig config() const {
    ModelConfig config{.vocabulary = vocabulary,
                       .context = 16,
                       .layers = layers,
                       .heads = heads,
                       .channels = 8 * heads,
                       .labels = labels};
    if (!differs_from_gpt2) return config;
    config.inner = 16 * heads;
    config.activation = Activation::gelu;
    config.norm_epsilon = 3e-3;
    config.scale_attention = false;
    config.scale_attention_by_layer = true;
    config.tied_head = false;
    return config;
  }
};

// Everything that ranks must agree on with one rank, as read on rank 0.
struct Results {
  std::vector<float> losses, norms;
  NamedFloats gradients;  // of the first step
  NamedFloats weights, first_moments, second_moments;
  std::array<std::int64_t, 4> offload_bytes{};  // of the last step
};

inline constexpr std::int64_t kSequence = 12;
inline constexpr std::uint64_t kSeed = 5;
inline constexpr double kLearningRate = 1e-3;

// Micro-batch `index` of a step: samples index * B to index * B + B - 1. With masked targets,
// samples have different numbers of targets, and one of five has none.
inline oracle::Batch batch_of(std::int64_t step, std::int64_t index, const LayoutOptions& options) {
  oracle::Batch batch{options.B, kSequence, {}, {}, {}};
  for (std::int64_t b = 0; b < options.B; ++b) {
    const std::int64_t sample = index * options.B + b;
    const auto seed = static_cast<std::uint64_t>(1000 * step + sample);
    const auto tokens = random_ints(kSequence, seed, options.vocabulary);
    auto targets = random_ints(kSequence, seed + 7'000'000, options.vocabulary);
    if (options.masks_targets) {
      const std::int64_t keep = sample % 5 == 3 ? 0 : kSequence - 3 * (sample % 4);
      std::fill(targets.begin() + keep, targets.end(), -1);
    }
    if (options.labels > 0) {  // the label at the last of 2 to 12 tokens
      // Two of three texts share theirs. With as many texts of each label, the gradient of the last
      // norm's bias would be a sum of terms that cancel, whose rounding exceeds any bound relative
      // to the sum.
      const std::int64_t label = (sample % 3 == 2 ? sample + step : step) % options.labels;
      targets.assign(static_cast<std::size_t>(kSequence), -1);
      targets[static_cast<std::size_t>(1 + 5 * sample % (kSequence - 1))] =
          static_cast<std::int32_t>(label);
    }
    batch.tokens.insert(batch.tokens.end(), tokens.begin(), tokens.end());
    batch.targets.insert(batch.targets.end(), targets.begin(), targets.end());
    for (std::int64_t t = 0; options.documents && t < kSequence; ++t) {
      batch.doc_start.push_back(t < 5 ? 0 : 5);  // a second document begins at position 5
    }
  }
  return batch;
}

inline std::int64_t targets_of_step(std::int64_t step, std::int64_t batches,
                                    const LayoutOptions& options) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < batches; ++i) {
    const oracle::Batch batch = batch_of(step, i, options);
    count += std::ssize(batch.targets) - std::ranges::count(batch.targets, -1);
  }
  return count;
}

// Biases and norms get random values too: if they began at 0, three updates would be all of them,
// and an error of an update all of their error.
template <class T>
void initialise(TrainingState<T>& state, Stream& stream) {
  state.initialise(kSeed, stream);
  for (const ParameterSpec& spec : state.table().specs()) {
    if (spec.initializer == Initializer::normal) continue;
    state.set_weight(spec, random_floats(spec.size(), spec.id, 0.1).data(), stream);
  }
}

template <class T>
void read_results(ModelRig<T>& rig, Results& results) {
  results.weights = rig.weights();
  for (const ParameterSpec& spec : rig.state().table().specs()) {
    auto& first = results.first_moments[spec.name];
    auto& second = results.second_moments[spec.name];
    first.resize(static_cast<std::size_t>(spec.size()));
    second.resize(first.size());
    rig.state().get_moments(spec, first.data(), second.data(), rig.stream());
  }
}

inline OptimizerOptions optimizer_of(const LayoutOptions& options) {
  OptimizerOptions optimizer = default_optimizer();
  optimizer.eps = options.eps;
  optimizer.grad_clip = options.grad_clip;
  return optimizer;
}

inline RunShape shape_of(const Layout& layout, const LayoutOptions& options) {
  RunShape shape{.B = options.B, .T = kSequence, .logits_rows = options.logits_rows};
  if (options.standard_attention) shape.attention = Attention::standard;
  shape.recompute = options.memory.recompute;
  shape.recompute_blocks = options.memory.blocks;
  shape.offload = options.memory.offload;
  shape.zero_stage = layout.stage;
  shape.sequence_parallel = layout.sequence_parallel;
  shape.qat = options.qat;
  shape.pipeline = layout.pipeline(options.layers);
  shape.adapters = options.adapters;
  shape.base_codes = options.base_codes;
  return with_frozen(std::move(shape), options.config(), options.frozen);
}

// Trains with `batches` micro-batches per step, which are dealt out to the data ranks in turn.
// `observer`, unless null, sees the quantized passes.
template <class T>
Results train(Ranks ranks, const Layout& layout, std::int64_t batches, const LayoutOptions& options,
              QuantizationObserver* observer = nullptr) {
  const RunShape shape = shape_of(layout, options);
  const std::int64_t first = ranks.data_rank(), data_ranks = ranks.mesh().data_ranks();
  ModelRig<T> rig(options.config(), shape, std::move(ranks));
  TrainingState<T>& state = rig.state();
  Stream& stream = rig.stream();
  initialise(state, stream);
  if (options.stochastic_rounding) state.enable_stochastic_rounding(kSeed);
  rig.set_loss_scale(1024);
  FakeQuantization& quantization = rig.engine().context().quantization;
  quantization.set(quantized_pass(options.qat, options.zero_points));
  quantization.observe(observer);
  PipelineRunner<T> passes(rig.runner());
  Results results;
  for (std::int64_t step = 0; step < options.steps; ++step) {
    const auto moved = rig.engine().context().offload_bytes();
    state.begin_step(stream, layout.micro_batches);
    const auto targets = static_cast<float>(targets_of_step(step, batches, options));
    std::int64_t next = first;  // of this rank's micro-batches, by their numbers in the step
    passes.run(
        {.count = layout.micro_batches,
         .next =
             [&] {
               const std::int64_t i = std::exchange(next, next + data_ranks);
               return rig.prepared(batch_of(step, i, options));
             },
         .options =
             [&](std::int64_t j) {
               DropoutRates dropout = options.dropout;
               dropout.adapter = options.adapters.dropout;
               return PassOptions{.dropout = dropout,
                                  .seed = kSeed,
                                  .step = step,
                                  .first_sample = (first + j * data_ranks) * options.B};
             },
         .loss = {.scale = 1.0f / targets, .sum = state.loss(), .factor = state.loss_scale()}});
    state.finish_gradients(stream);
    results.losses.push_back(state.loss_value(stream));
    if (step == 0) results.gradients = rig.gradients();
    state.apply_gradients(optimizer_of(options), kLearningRate, stream);
    results.norms.push_back(state.optimizer_state(stream).gradient_norm);
    results.offload_bytes = rig.engine().context().offload_bytes();
    for (std::size_t i = 0; i < moved.size(); ++i) results.offload_bytes[i] -= moved[i];
  }
  read_results(rig, results);
  return results;
}

template <class T>
Results train_one_rank(std::int64_t batches, const LayoutOptions& options) {
  return train<T>({}, {.micro_batches = batches}, batches, options);
}

template <class T>
Results train_ranks(const Layout& layout, const LayoutOptions& options) {
  Results on_rank_0;
  run_thread_ranks(layout.ranks, [&](World& world) {
    Results results = train<T>(Ranks(world, layout.mesh(), layout.message_streams), layout,
                               layout.batches(), options);
    if (world.rank() == 0) on_rank_0 = std::move(results);
  });
  return on_rank_0;
}

inline bool same_bits(const NamedFloats& a, const NamedFloats& b, const std::string& except = {}) {
  return std::ranges::all_of(a, [&](const auto& entry) {
    return entry.first == except || llmc_test::same_bits(entry.second, b.at(entry.first));
  });
}

inline bool same_bits(const Results& a, const Results& b) {
  return llmc_test::same_bits(a.losses, b.losses) && llmc_test::same_bits(a.norms, b.norms) &&
         same_bits(a.gradients, b.gradients) && same_bits(a.weights, b.weights) &&
         same_bits(a.first_moments, b.first_moments) &&
         same_bits(a.second_moments, b.second_moments);
}

inline double relative(float a, float b) {
  return std::abs(static_cast<double>(a) - static_cast<double>(b)) /
         std::abs(static_cast<double>(b));
}

// The bounds of DESIGN for other orders of the same sums: `units` fp32 roundings of 2^-24.
inline void check_close(const Results& ranks, const Results& one, double gradients,
                        double after_steps) {
  for (std::size_t i = 0; i < one.losses.size(); ++i) {
    CHECK(relative(ranks.losses[i], one.losses[i]) <= after_steps);
    CHECK(relative(ranks.norms[i], one.norms[i]) <= after_steps);
  }
  CHECK(worst_difference(ranks.gradients, one.gradients) <= gradients);
  CHECK(worst_difference(ranks.weights, one.weights) <= after_steps);
  CHECK(worst_difference(ranks.first_moments, one.first_moments) <= after_steps);
  CHECK(worst_difference(ranks.second_moments, one.second_moments) <= after_steps);
}

}  // namespace llmc_test
