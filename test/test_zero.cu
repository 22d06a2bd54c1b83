// ZeRO: ranks that shard the training state compute the steps of one rank. Ranks are threads.
#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "llmc/comm/thread_ranks.h"
#include "test/model_rig.h"

using namespace llmc;
using namespace llmc_test;

namespace {

struct Layout {
  int ranks = 1, stage = 0, shard_ranks = 1;
  std::int64_t micro_batches = 1;  // per rank

  std::string text() const {
    return std::to_string(ranks) + " ranks, stage " + std::to_string(stage) + ", shard groups of " +
           std::to_string(shard_ranks) + ", " + std::to_string(micro_batches) + " micro-batches";
  }
  std::int64_t batches() const { return ranks * micro_batches; }
};

// All stages, shard groups and one or three micro-batches per rank. Under sanitizers, only one
// size.
std::vector<Layout> layouts(const std::vector<int>& numbers_of_ranks) {
  std::vector<Layout> all;
  for (const int ranks : numbers_of_ranks) {
    for (const std::int64_t micro_batches : {1, 3}) {
      if (tiny_shapes() && micro_batches == 1) continue;
      for (const int stage : {0, 1, 2, 3}) {
        for (int shard_ranks = 1; shard_ranks <= ranks; ++shard_ranks) {
          // Stage 0 shards nothing, the others have at least two shards.
          if (ranks % shard_ranks != 0 || (stage == 0) != (shard_ranks == 1)) continue;
          all.push_back({ranks, stage, shard_ranks, micro_batches});
        }
      }
    }
  }
  return all;
}

// Layouts whose sums have the same order: the first number is equal for layouts of equal bits.
std::tuple<int, int, std::int64_t, bool> order_of(const Layout& layout) {
  const bool every_micro_batch = layout.stage >= 2 && layout.micro_batches > 1;
  const int shards = layout.stage == 0 ? layout.ranks : layout.shard_ranks;
  return {layout.ranks, shards, layout.micro_batches, every_micro_batch};
}

struct Options {
  std::int64_t vocabulary = 211, steps = 1;
  DropoutRates dropout = {};
  bool stochastic_rounding = false;
  double grad_clip = 0;
};

// Everything that ranks must agree on with one rank, as read on rank 0.
struct Results {
  std::vector<float> losses, norms;
  NamedFloats gradients;  // of the first step
  NamedFloats weights, first_moments, second_moments;
};

constexpr std::int64_t kB = 1, kT = 12;
constexpr double kClip = 0.015;  // less than half of the norms of these gradients

oracle::Batch batch_of(std::int64_t step, std::int64_t index, std::int64_t vocabulary) {
  const std::uint64_t seed = static_cast<std::uint64_t>(1000 * step + index);
  const auto tokens = random_ints(kB * kT, seed, vocabulary);
  const auto targets = random_ints(kB * kT, seed + 7'000'000, vocabulary);
  return {kB, kT, {tokens.begin(), tokens.end()}, {targets.begin(), targets.end()}, {}};
}

// Biases and norms get random values too: if they began at 0, three updates would be all of them,
// and an error of an update all of their error.
template <class T>
void initialise(TrainingState<T>& state, Stream& stream) {
  state.initialise(5, stream);
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

// Trains with `batches` micro-batches per step, of which this rank has every ranks-th one.
template <class T>
Results train(Ranks ranks, const Layout& layout, std::int64_t batches, const Options& options) {
  RunShape shape{.B = kB, .T = kT};
  shape.zero_stage = layout.stage;
  const std::int64_t rank = ranks.rank();
  const Gpt2Config config{.vocabulary = options.vocabulary,
                          .context = 16,
                          .layers = tiny_shapes() ? 2 : 3,
                          .heads = 3,
                          .channels = 24};
  ModelRig<T> rig(config, shape, std::move(ranks));
  TrainingState<T>& state = rig.state();
  Stream& stream = rig.stream();
  initialise(state, stream);
  if (options.stochastic_rounding) state.enable_stochastic_rounding(5);
  rig.set_loss_scale(1024);
  OptimizerOptions optimizer = default_optimizer();
  optimizer.eps = 1e-4;  // a smaller one turns differences of rounding into steps of +-lr
  optimizer.grad_clip = options.grad_clip;
  Results results;
  for (std::int64_t step = 0; step < options.steps; ++step) {
    state.begin_step(stream, layout.micro_batches);
    for (std::int64_t i = rank; i < batches; i += layout.ranks) {
      const LossOptions loss{.scale = 1.0f / static_cast<float>(batches * kB * kT),
                             .sum = state.loss(),
                             .factor = state.loss_scale()};
      const PassOptions pass{
          .dropout = options.dropout, .seed = 5, .step = step, .first_sample = i * kB};
      rig.runner().forward_backward(rig.put(batch_of(step, i, options.vocabulary)), loss, pass);
    }
    state.finish_gradients(stream);
    results.losses.push_back(state.loss_value(stream));
    if (step == 0) results.gradients = rig.gradients();
    state.apply_gradients(optimizer, 1e-3, stream);
    results.norms.push_back(state.optimizer_state(stream).gradient_norm);
  }
  read_results(rig, results);
  return results;
}

template <class T>
Results train_one_rank(std::int64_t batches, const Options& options) {
  return train<T>({}, {.micro_batches = batches}, batches, options);
}

template <class T>
Results train_ranks(const Layout& layout, const Options& options) {
  Results on_rank_0;
  run_thread_ranks(layout.ranks, [&](World& world) {
    Ranks ranks(world, make_mesh(layout.ranks, layout.shard_ranks));
    Results results = train<T>(std::move(ranks), layout, layout.batches(), options);
    if (world.rank() == 0) on_rank_0 = std::move(results);
  });
  return on_rank_0;
}

bool same_bits(const NamedFloats& a, const NamedFloats& b, const std::string& except = {}) {
  for (const auto& [name, values] : a) {
    if (name != except && !llmc_test::same_bits(values, b.at(name))) return false;
  }
  return true;
}

bool same_bits(const Results& a, const Results& b) {
  return llmc_test::same_bits(a.losses, b.losses) && llmc_test::same_bits(a.norms, b.norms) &&
         same_bits(a.gradients, b.gradients) && same_bits(a.weights, b.weights) &&
         same_bits(a.first_moments, b.first_moments) &&
         same_bits(a.second_moments, b.second_moments);
}

double relative(float a, float b) {
  return std::abs(static_cast<double>(a) - static_cast<double>(b)) /
         std::abs(static_cast<double>(b));
}

// The bounds of DESIGN for other orders of the same sums: `units` fp32 roundings of 2^-24.
void check_close(const Results& ranks, const Results& one, double gradients, double after_steps) {
  for (std::size_t i = 0; i < one.losses.size(); ++i) {
    CHECK(relative(ranks.losses[i], one.losses[i]) <= after_steps);
    CHECK(relative(ranks.norms[i], one.norms[i]) <= after_steps);
  }
  CHECK(worst_difference(ranks.gradients, one.gradients) <= gradients);
  CHECK(worst_difference(ranks.weights, one.weights) <= after_steps);
  CHECK(worst_difference(ranks.first_moments, one.first_moments) <= after_steps);
  CHECK(worst_difference(ranks.second_moments, one.second_moments) <= after_steps);
}

// Trains with every layout: equal bits where the sums are the same, and in fp32 within the bounds
// of one rank. Every rank clips.
template <class T>
void compare_layouts(const std::vector<Layout>& all, const Options& options) {
  std::map<std::int64_t, Results> one_rank;
  std::map<decltype(order_of({})), Results> with_order;
  for (const Layout& layout : all) {
    CAPTURE(layout.text());
    const Results ranks = train_ranks<T>(layout, options);
    const auto [same_order, is_first] = with_order.try_emplace(order_of(layout), ranks);
    if (!is_first) CHECK(same_bits(ranks, same_order->second));
    if (sizeof(T) != 4) continue;
    Results& one = one_rank[layout.batches()];
    if (one.losses.empty()) one = train_one_rank<T>(layout.batches(), options);
    CHECK(one.norms[0] > 2 * kClip);  // clipping has an effect
    check_close(ranks, one, 5e-7, 2e-6);
  }
}

// More ranks and GPT-2's vocabulary take minutes.
bool long_run() {
  return std::getenv("LLMC_LONG") != nullptr;
}

std::vector<int> numbers_of_ranks() {
  if (tiny_shapes()) return {2};
  if (long_run()) return {2, 3, 4, 5, 8};
  return {2, 3, 4};
}

std::vector<std::int64_t> vocabularies() {
  if (long_run()) return {211, 50257};
  return {211};
}

}  // namespace

TEST_SUITE("zero") {
  TEST_CASE("one micro-batch on each rank adds up like as many micro-batches on one rank") {
    for (const Layout& layout : layouts(numbers_of_ranks())) {
      if (layout.micro_batches > 1 || (layout.stage > 0 && layout.shard_ranks < layout.ranks)) {
        continue;
      }
      CAPTURE(layout.text());
      const Results one = train_one_rank<float>(layout.ranks, {});
      const Results ranks = train_ranks<float>(layout, {});
      CHECK(llmc_test::same_bits(ranks.losses, one.losses));
      // A micro-batch adds to the gradient of wte twice.
      CHECK(same_bits(ranks.gradients, one.gradients, "wte.weight"));
      CHECK(relative_l2(ranks.gradients.at("wte.weight"), one.gradients.at("wte.weight")) <= 2e-7);
    }
  }

  TEST_CASE_TEMPLATE("every layout trains like one rank, and like the layouts with the same sums",
                     T, float, bf16, fp16) {
    const std::vector<Layout> all = layouts(numbers_of_ranks());
    const std::size_t expected = tiny_shapes() ? 4 : numbers_of_ranks().size() > 3 ? 58 : 30;
    CHECK(all.size() == expected);
    if (tiny_shapes() && sizeof(T) != 4) return;  // half precision differs only in kernels
    for (const std::int64_t vocabulary : vocabularies()) {
      for (const bool dropout : {false, true}) {
        if (tiny_shapes() && !dropout) continue;
        CAPTURE(vocabulary);
        CAPTURE(dropout);
        Options options{
            .vocabulary = vocabulary, .steps = tiny_shapes() ? 1 : 3, .grad_clip = kClip};
        if (dropout) {
          options.dropout = {.embedding = 0.1, .attention = 0.1, .residual = 0.1};
          options.stochastic_rounding = sizeof(T) == 2;
        }
        compare_layouts<T>(all, options);
      }
    }
  }

  TEST_CASE("GPT-2's vocabulary, which pads wte, and more ranks") {
    if (tiny_shapes()) return;
    for (const Layout& layout : {Layout{.ranks = 3, .stage = 3, .shard_ranks = 3},
                                 Layout{.ranks = 5, .stage = 1, .shard_ranks = 5},
                                 Layout{.ranks = 8, .stage = 2, .shard_ranks = 4}}) {
      CAPTURE(layout.text());
      const Options options{.vocabulary = 50257, .grad_clip = kClip};
      const Results one = train_one_rank<float>(layout.ranks, options);
      CHECK(one.norms[0] > 2 * kClip);
      check_close(train_ranks<float>(layout, options), one, 5e-7, 2e-6);
    }
  }

  TEST_CASE("two runs of a layout have the same bits") {
    if (tiny_shapes()) return;
    const Layout layout{.ranks = 4, .stage = 2, .shard_ranks = 2, .micro_batches = 2};
    CHECK(same_bits(train_ranks<bf16>(layout, {.steps = 2}),
                    train_ranks<bf16>(layout, {.steps = 2})));
  }
}
