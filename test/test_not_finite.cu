// Steps that are not finite: the operation, layer, ranks and sample that a second run of the step
// finds, faults that do not repeat, and that the second run changes nothing. Ranks are threads.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "llmc/comm/thread_ranks.h"
#include "llmc/train/watch/finite_check.h"
#include "test/state_rig.h"

using namespace llmc;
using namespace llmc_test;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<Layout> some_layouts() {
  if (tiny_shapes()) return {layout_of(1, 1), layout_of(2, 1, 1, 2)};
  return {layout_of(1, 1),
          layout_of(2, 1, 0),
          layout_of(2, 1, 1, 2),
          layout_of(2, 2),
          layout_of(2, 2, 0, 1, true),
          layout_of(4, 2, 3, 2, true),
          with_pipeline(layout_of(2, 1), 2),
          with_pipeline(layout_of(4, 1, 2, 2), 2, 2)};
}

// A run of 4 layers with 4 samples per step, in micro-batches of one.
RunConfig small_config(Layout layout) {
  layout.micro_batches = 4 / layout.mesh().data_ranks();
  RunConfig config = state_config(layout);
  config.shape.layers = 4;
  config.shape.heads = 2;
  config.shape.channels = 16;
  config.batch.grad_accum = layout.micro_batches;
  config.pipeline = layout.pipeline(config.shape.layers);
  return config;
}

// Replaces an element of a weight on all ranks.
template <class T>
void set_element(Rank<T>& rank, const std::string& parameter, std::int64_t index, float value) {
  const ParameterSpec& spec = rank.state().table().find(parameter);
  std::vector<float> values(static_cast<std::size_t>(spec.size()));
  rank.state().get_weight(spec, values.data(), rank.stream());
  const std::size_t bytes = values.size() * sizeof(float);
  const std::string all =
      rank.exchange.broadcast(std::string(reinterpret_cast<const char*>(values.data()), bytes));
  std::memcpy(values.data(), all.data(), bytes);
  values[static_cast<std::size_t>(index)] = value;
  rank.state().set_weight(spec, values.data(), rank.stream());
}

struct Fault {
  std::string operation, layer;
  std::int64_t micro_batch = 0;
};

// Replaces the first element of an operation's output by NaN.
class Poison final : public OutputObserver {
 public:
  explicit Poison(const Fault& fault) : fault_(fault) {}

  void begin_pass(bool) override {}
  void output(const OperationOutput& output, Stream& stream) override {
    if (output.operation != fault_.operation || output.layer.text() != fault_.layer) return;
    if (num_outputs_++ != fault_.micro_batch) return;
    dispatch_dtype(output.dtype, [&]<class T>() {
      const T value = from_float<T>(kNan);
      copy_to_device(static_cast<T*>(const_cast<void*>(output.values)), &value, 1, stream);
      stream.synchronize();
    });
  }
  bool is_done() const { return num_outputs_ > fault_.micro_batch; }

 private:
  Fault fault_;
  std::int64_t num_outputs_ = 0;
};

// The results of a run of four steps, of which the second is poisoned on one rank.
struct PoisonedRun {
  std::vector<float> kept;
  std::vector<double> losses;
  OptimizerState optimizer{};
  NotFinite cause;
};

template <class T>
PoisonedRun poisoned_run(const RunConfig& config, int ranks, int poisoned_rank, bool diagnoses,
                         const Fault& fault) {
  PoisonedRun result;
  run_thread_ranks(ranks, [&](World& world) {
    Rank<T> rank(world, config);
    TrainStep step(rank.config, rank.engine, rank.exchange, samples_below(kVocabulary));
    RunPosition position;
    step.read_ahead(position);
    PoisonedRun own;
    for (int i = 0; i < 4; ++i) {
      Poison poison(fault);
      const bool is_poisoned = i == 1 && world.rank() == poisoned_rank;
      if (is_poisoned) rank.engine.context().outputs.observe(&poison);
      const StepResult of_step = step.run(position);
      rank.engine.context().outputs.observe(nullptr);
      if (is_poisoned) CHECK(poison.is_done());
      CHECK((of_step.optimizer.finite == 0) == (i == 1));
      if (i == 1 && diagnoses) {
        own.cause = step.diagnose(position, of_step);
        const OptimizerState after = rank.state().optimizer_state(rank.stream());
        CHECK(std::memcmp(&after, &of_step.optimizer, sizeof after) == 0);
      }
      own.losses.push_back(of_step.loss);
    }
    own.optimizer = rank.state().optimizer_state(rank.stream());
    own.kept = kept_values(rank.state(), rank.stream());
    if (world.rank() == 0) result = std::move(own);
  });
  return result;
}

// The error-free parts of a description.
std::string text_of(const NotFinite& cause) {
  return not_finite_text(3, "the loss is nan", cause);
}

}  // namespace

TEST_SUITE("not_finite") {
  TEST_CASE("a step of a healthy run has no output that is not finite, in any layout") {
    const auto check = [](RunConfig config, int ranks, auto type) {
      using T = decltype(type);
      config.dropout.residual = 0.1;
      run_thread_ranks(ranks, [&](World& world) {
        Rank<T> rank(world, config);
        FiniteCheck check(rank.engine.context().tensor);
        check.begin_micro_batch(0, kB, kT);
        rank.engine.context().outputs.observe(&check);
        train(rank, samples_below(kVocabulary), 1);
        rank.engine.context().outputs.observe(nullptr);
        const NotFinite cause = check.agree(false, true, rank.exchange);
        CHECK(text_of(cause).starts_with("step 3: the loss is nan: the outputs of all operations"));
      });
    };
    for (const Layout& layout : some_layouts()) {
      CAPTURE(layout.text());
      RunConfig config = small_config(layout);
      check(config, layout.ranks, float{});
      config.memory.recompute = Recompute::full;
      check(config, layout.ranks, bf16{});
      config.memory.recompute = Recompute::selective;
      check(config, layout.ranks, fp16{});
    }
  }

  TEST_CASE_TEMPLATE(
      "the layer with a weight that is not finite is named, and the ranks that have it", T, float,
      bf16, fp16) {
    for (const Layout& layout : some_layouts()) {
      CAPTURE(layout.text());
      for (const char* layer : {"h.0.attn.c_attn", "h.2.mlp.c_fc"}) {
        run_thread_ranks(layout.ranks, [&](World& world) {
          RunConfig config = small_config(layout);
          if (sizeof(T) == 2) config.memory.recompute = Recompute::full;
          Rank<T> rank(world, config);
          const std::string name = std::string(layer) + ".weight";
          const ParameterSpec& spec = rank.state().table().find(name);
          set_element(rank, name, spec.size() - 1, kNan);
          TrainStep step(rank.config, rank.engine, rank.exchange, samples_below(kVocabulary));
          RunPosition position;
          step.read_ahead(position);
          const StepResult result = step.run(position);
          CHECK(result.optimizer.finite == 0);
          const NotFinite cause = step.diagnose(position, result);
          std::vector<int> expected;
          const Mesh mesh = layout.mesh();
          const auto holders = rank.exchange.all_gather({spec.is_held ? 1 : 0});
          for (int r = 0; r < layout.ranks; ++r) {
            const bool has_last_column = mesh.tensor_rank(r) == mesh.tensor_ranks - 1;
            if (holders[static_cast<std::size_t>(r)] == 1 && has_last_column) expected.push_back(r);
          }
          CHECK(cause.operation == "linear forward");
          CHECK(cause.layer == layer);
          CHECK(cause.ranks == expected);
          CHECK(cause.micro_batch == 0);
          CHECK(cause.sample == 0);
          CHECK(!cause.is_transient);
        });
      }
    }
  }

  TEST_CASE("the sample whose token has an embedding that is not finite is named") {
    for (const Layout& layout : some_layouts()) {
      CAPTURE(layout.text());
      RunConfig config = small_config(layout);
      config.batch.batch_size = 4;
      config.batch.grad_accum = layout.pipeline_ranks;
      Layout shape = layout;
      shape.micro_batches = config.batch.grad_accum;
      config.pipeline = shape.pipeline(config.shape.layers);
      // A token that is only in sample 2 of the first micro-batch of the last data rank.
      const int rank_of_sample = (layout.mesh().data_ranks() - 1) * layout.tensor_ranks;
      const std::int64_t sample = (layout.mesh().data_ranks() - 1) * 4 + 2;
      const auto samples = [&](std::int64_t first, std::int64_t B) {
        Batch batch = batch_below(first, B, kVocabulary - 1);
        for (auto* ids : {&batch.inputs, &batch.targets}) {
          for (std::int32_t& id : *ids) id = std::min<std::int32_t>(id, kVocabulary - 2);
        }
        if (first <= sample && sample < first + B) {
          batch.inputs[static_cast<std::size_t>((sample - first) * kT + 5)] = kVocabulary - 1;
        }
        return batch;
      };
      run_thread_ranks(layout.ranks, [&](World& world) {
        Rank<float> rank(world, config);
        set_element(rank, "wte.weight", rank.state().table().find("wte.weight").size() - 1,
                    kInfinity);
        TrainStep step(rank.config, rank.engine, rank.exchange, {samples});
        RunPosition position;
        step.read_ahead(position);
        const StepResult result = step.run(position);
        const NotFinite cause = step.diagnose(position, result);
        CHECK(cause.operation == "embedding forward");
        CHECK(cause.layer == "wte");
        CHECK(cause.micro_batch == 0);
        CHECK(cause.sample == 2);
        REQUIRE(!cause.ranks.empty());
        const int last = rank_of_sample + layout.tensor_ranks - 1;  // has the last token
        CHECK(cause.ranks == std::vector<int>{last});
      });
    }
  }

  TEST_CASE("a run continues with the same bits after a second run of a skipped step") {
    for (const Layout& layout : some_layouts()) {
      CAPTURE(layout.text());
      RunConfig config = small_config(layout);
      config.dropout.residual = 0.1;
      const std::int64_t last = config.batch.grad_accum - 1;
      const auto compare = [&](const Fault& fault, auto type) {
        using T = decltype(type);
        // The layers of the fault are on the last pipeline rank and on the first, in this order.
        const bool is_last = fault.layer == "h.3.attn.c_attn";
        const int rank = is_last || layout.pipeline_ranks == 1 ? layout.ranks - 1 : 0;
        const auto run = [&](bool diagnoses) {
          return poisoned_run<T>(config, layout.ranks, rank, diagnoses, fault);
        };
        const PoisonedRun with = run(true), without = run(false);
        CHECK(with.cause.is_transient);
        // A backward pass leaves a trace only if no other one follows.
        const bool has_trace = is_last || fault.micro_batch == last;
        if (layout.tensor_ranks == 1 && layout.pipeline_ranks == 1) {
          CHECK(with.cause.ranks.size() == static_cast<std::size_t>(has_trace ? 1 : layout.ranks));
          if (has_trace) CHECK(with.cause.ranks[0] == rank);
        }
        CHECK(same_bits(with.kept, without.kept));
        CHECK(with.losses[2] == without.losses[2]);
        CHECK(with.losses[3] == without.losses[3]);
        CHECK(std::memcmp(&with.optimizer, &without.optimizer, sizeof(OptimizerState)) == 0);
        CHECK(with.optimizer.skipped_updates == 1);
      };
      compare({"linear forward", "h.3.attn.c_attn"}, float{});
      compare({"linear input gradient", "h.0.mlp.c_proj"}, float{});
      compare({"linear input gradient", "h.0.mlp.c_proj", last}, float{});
      compare({"linear forward", "h.3.attn.c_attn"}, fp16{});
      config.memory.recompute = Recompute::full;
      compare({"linear forward", "h.3.attn.c_attn"}, bf16{});
    }
  }

  TEST_CASE("the first operation of all ranks is in the earliest pass") {
    const std::string low = "h.1.ln_1.weight", high = "h.2.ln_1.weight";
    struct Output {
      std::int64_t micro_batch;
      bool is_backward;
      const std::string& layer;
    };
    // The first output of each pair comes before the second.
    const std::vector<std::pair<Output, Output>> pairs = {{{0, true, low}, {1, false, low}},
                                                          {{0, false, high}, {0, true, high}},
                                                          {{0, false, low}, {0, false, high}},
                                                          {{0, true, high}, {0, true, low}}};
    for (const auto& pair : pairs) {
      for (const int first : {0, 1}) {
        run_thread_ranks(2, [&](World& world) {
          Exchange exchange(world);
          Stream stream;
          Ranks ranks;
          const TensorGroup group(ranks);
          FiniteCheck check(group);
          Buffer<float> values(3);
          const float numbers[3] = {1, kInfinity, kNan};
          copy_to_device(values.data(), numbers, 3, stream);
          const auto report = [&](const Output& output) {
            check.begin_micro_batch(output.micro_batch, 3, 1);
            check.begin_pass(output.is_backward);
            check.output({"an operation", output.layer, values.data(), Dtype::fp32, 3, 3}, stream);
          };
          const bool has_first = world.rank() == first;
          report(has_first ? pair.first : pair.second);
          if (has_first) report(pair.second);  // comes later
          const NotFinite cause = check.agree(false, true, exchange);
          CHECK(cause.ranks == std::vector<int>{first});
          CHECK(cause.micro_batch == pair.first.micro_batch);
          CHECK(cause.layer + ".weight" == pair.first.layer);
          CHECK(cause.sample == 1);
        });
      }
    }
  }

  TEST_CASE("the texts name what was found") {
    CHECK(text_of({.ranks = {1}, .operation = "attention forward", .layer = "h.3", .sample = 2}) ==
          "step 3: the loss is nan: first not finite in \"attention forward\" of h.3, rank 1, "
          "micro-batch 0, sample 2");
    CHECK(
        text_of({.ranks = {0, 1}, .operation = "bias gradient", .layer = "x", .micro_batch = 4}) ==
        "step 3: the loss is nan: first not finite in \"bias gradient\" of x, ranks 0, 1, "
        "micro-batch 4");
    CHECK(
        text_of({.is_transient = true, .ranks = {2}}) ==
        "step 3: the loss is nan: a second run of the step is finite: a transient fault of rank 2");
    CHECK(contains(text_of({.is_transient = true, .ranks = {0, 1}}), "fault of one of ranks 0, 1"));
  }
}
