// The whole model against PyTorch's fp64 results (fixtures), and against itself: however a step is
// split, the gradients equal those of the unsplit run.
#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "llmc/config/model_name.h"
#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/train/watch/flops.h"
#include "test/model_rig.h"

using namespace llmc;
using namespace llmc_test;
using oracle::Comparison;
using oracle::Fixture;
using oracle::load_fixture;

namespace {

RunShape run_for(const Fixture& fixture) {
  RunShape run;
  run.B = fixture.integer("B");
  run.T = fixture.integer("T");
  return run;
}

void check_all(const std::vector<Comparison>& comparisons) {
  for (const Comparison& c : comparisons) CHECK_MESSAGE(c.ok(), describe(c));
}

std::vector<std::string> fixture_names() {
  if (tiny_shapes()) return {"one_row"};
  return {"odd", "wide_vocab", "head64", "one_row"};
}

struct Result {
  float loss;
  NamedFloats gradients;
};

Result result_of(const Fixture& fixture, const RunShape& run, std::int64_t pieces) {
  ModelRig<float> rig(engine_config(fixture.config()), run);
  rig.set_parameters(fixture.parameters());
  const float loss = rig.gradients_of(pieces_of(fixture.batch(), pieces));
  return {loss, rig.gradients()};
}

// The effect that reordering an fp32 sum may have (test/oracle/README.md).
constexpr double kReordering = 3e-6;

// Computes the gradients of several micro-batches, each with its own activations, through
// all stages: first all forward passes, then the backward passes. Returns the mean loss.
template <class T>
float staged_gradients(ModelRig<T>& rig, const std::vector<oracle::Batch>& batches,
                       const std::vector<Stage>& stages, PassOptions options) {
  ModelRunner<T>& runner = rig.runner();
  Gpt2<T>& model = runner.model();
  Context& context = runner.context();
  const RunShape& shape = runner.shape();
  MemoryPlan plan;
  std::vector<std::unique_ptr<BatchStage>> staging;
  const KeptBlocks& kept = model.kept();
  const RecomputeBuffers<T> recomputed(model.config(), shape, kept, context.tensor, plan);
  OffloadedBlocks<T> offloaded(model.config(), shape, kept, context, plan);
  std::vector<std::vector<std::unique_ptr<Activations<T>>>> saved(batches.size());
  for (std::size_t i = 0; i < batches.size(); ++i) {
    staging.push_back(std::make_unique<BatchStage>(shape.B, shape.T, 1, plan));
    for (std::size_t s = 0; s < stages.size(); ++s) {
      saved[i].push_back(
          std::make_unique<Activations<T>>(model.config(), shape, std::vector{stages[s]}, kept,
                                           context.tensor, recomputed, offloaded, plan));
    }
  }
  Tensor<T, 2> message;
  plan.reserve("message", message, shape.rows(), model.config().channels);
  plan.allocate();
  std::int64_t tokens = 0;
  for (const auto& batch : batches) tokens += batch.B * batch.T;
  TrainingState<T>& state = rig.state();
  const LossOptions loss{.scale = 1.0f / static_cast<float>(tokens),
                         .sum = state.loss(),
                         .factor = state.loss_scale()};
  state.begin_step(context.stream);
  std::vector<DeviceBatch> staged;
  const auto options_of = [&](std::size_t i) {
    PassOptions own_options = options;
    for (std::size_t k = 0; k < i; ++k) own_options.first_sample += batches[k].B;
    return own_options;
  };
  const auto copy = [&](Tensor<T, 2> to, Tensor<T, 2> from) {
    copy_on_device(to.data, static_cast<const T*>(from.data), from.size(), context.stream);
  };
  for (std::size_t i = 0; i < batches.size(); ++i) {
    staged.push_back(staging[i]->put(rig.prepared(batches[i]), context.stream));
    const RankRows rows = context.tensor.rows_of_rank(staged[i].rows());
    for (std::size_t s = 0; s < stages.size(); ++s) {
      if (s > 0) {
        copy(model.stage_input(*saved[i][s], rows), model.stage_output(*saved[i][s - 1], rows));
      }
      model.forward(stages[s], *saved[i][s], staged[i], context, options_of(i));
    }
  }
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const Tensor<T, 2> gradient =
        model.residual_gradient(context.tensor.rows_of_rank(staged[i].rows()));
    for (std::size_t s = stages.size(); s-- > 0;) {
      if (s + 1 < stages.size()) {  // as if another rank had sent it
        copy(first_rows(message, gradient.shape[0]), gradient);
        fill_zero(gradient.data, gradient.size(), context.stream);
        copy(gradient, first_rows(message, gradient.shape[0]));
      }
      model.backward(stages[s], *saved[i][s], staged[i], loss, context, options_of(i));
    }
  }
  return state.loss_value(context.stream);
}

using IsFrozen = std::function<bool(const std::string& name)>;

// The parameters of another source, with no gradients for the frozen ones.
class FrozenParameters final : public ParameterSource {
 public:
  FrozenParameters(ParameterSource& source, IsFrozen is_frozen)
      : source_(source), is_frozen_(std::move(is_frozen)) {}
  void acquire(int block, int next) override { source_.acquire(block, next); }
  void release(int block) override { source_.release(block); }
  void gradients_ready(int block) override { source_.gradients_ready(block); }
  WeightView weight(const ParameterSpec& spec) override { return source_.weight(spec); }
  float* gradient(const ParameterSpec& spec) override {
    return is_frozen_(spec.name) ? nullptr : source_.gradient(spec);
  }

 private:
  ParameterSource& source_;
  IsFrozen is_frozen_;
};

// The gradients of a batch in rig's state, computed by a model with frozen parameters.
template <class T>
NamedFloats gradients_with(ModelRig<T>& rig, const IsFrozen& is_frozen,
                           const oracle::Batch& batch) {
  MemoryPlan plan;
  Context context;
  TrainingState<T>& state = rig.state();
  FrozenParameters source(state.source(), is_frozen);
  ModelRunner<T> runner(rig.runner().config(), state.table(), source, rig.runner().shape(), context,
                        plan);
  plan.allocate();
  state.begin_step(rig.stream());
  rig.stream().synchronize();
  const float scale = 1.0f / static_cast<float>(batch.B * batch.T);
  runner.forward_backward(runner.put(rig.prepared(batch)), {.scale = scale, .sum = state.loss()});
  context.stream.synchronize();
  return rig.gradients();
}

}  // namespace

TEST_SUITE("model") {
  TEST_CASE_TEMPLATE("logits, loss and every gradient match PyTorch", T, float, bf16, fp16) {
    for (const std::string& name : fixture_names()) {
      CAPTURE(name);
      const Fixture fixture = load_fixture(name);
      ModelRig<T> rig(engine_config(fixture.config()), run_for(fixture));
      rig.set_parameters(fixture.parameters());
      rig.set_loss_scale(fixture.number("fp16_loss_scale"));
      const float loss = rig.gradients_of({fixture.batch()});
      const Comparison compared = compare_loss(fixture, loss, kDtypeOf<T>);
      CHECK_MESSAGE(compared.ok(), describe(compared));
      // The host adds in short parts.
      const std::int64_t chain = kCudaTarget ? fixture.integer("V") : 0;
      check_all(compare_gradients(fixture, rig.gradients(), kDtypeOf<T>, chain));
      check_all(compare_logits(fixture, rig.logits(fixture.batch()), kDtypeOf<T>));
    }
  }

  TEST_CASE("evaluation computes the losses of the training pass") {
    const Fixture fixture = load_fixture(tiny_shapes() ? "one_row" : "odd");
    ModelRig<float> rig(engine_config(fixture.config()), run_for(fixture));
    rig.set_parameters(fixture.parameters());
    const float loss = rig.gradients_of({fixture.batch()});
    double sum = 0;
    const auto losses = rig.losses(fixture.batch());
    for (const float x : losses) sum += static_cast<double>(x);
    CHECK(sum / static_cast<double>(losses.size()) == doctest::Approx(loss).epsilon(1e-6));
  }

  TEST_CASE(
      "micro-batches, larger buffers and standard attention change the result only by rounding") {
    if (tiny_shapes()) return;  // other tests check the kernels on tiny shapes
    const Fixture fixture = load_fixture("odd");
    const RunShape shape = run_for(fixture);
    const Result expected = result_of(fixture, shape, 1);
    const auto check_equal = [&](const char* what, const Result& actual) {
      CAPTURE(what);
      CHECK(actual.loss == doctest::Approx(expected.loss).epsilon(1e-6));
      CHECK(worst_difference(actual.gradients, expected.gradients) < kReordering);
    };
    check_equal("micro-batches", result_of(fixture, shape, fixture.integer("B")));
    RunShape larger_shape = shape;
    larger_shape.B += 2;
    larger_shape.T += 3;
    check_equal("buffers larger than the batch", result_of(fixture, larger_shape, 1));
    RunShape standard = shape;
    standard.attention = Attention::standard;
    check_equal("standard attention", result_of(fixture, standard, 1));
  }

  TEST_CASE_TEMPLATE("the number of logits rows changes losses and gradients only by rounding", T,
                     float, bf16, fp16) {
    const Fixture fixture = load_fixture(tiny_shapes() ? "one_row" : "odd");
    const auto run = [&](std::int64_t logits_rows) {
      RunShape shape = run_for(fixture);
      shape.logits_rows = logits_rows;
      ModelRig<T> rig(engine_config(fixture.config()), shape);
      rig.set_parameters(fixture.parameters());
      rig.set_loss_scale(fixture.number("fp16_loss_scale"));
      rig.gradients_of({fixture.batch()});
      return std::pair{rig.gradients(), rig.losses(fixture.batch())};
    };
    // A product with another number of rows may sum in another order, which can round a number of
    // half precision the other way. That changes it by twice the largest rounding error.
    const double loss_tolerance = std::max(1e-6, 2 * kRounding<T>);
    const double gradient_tolerance = std::max(kReordering, 2 * kRounding<T>);
    const auto [gradients, losses] = run(0);
    for (const std::int64_t logits_rows : {1, 7, 4096}) {
      CAPTURE(logits_rows);
      const auto [other_gradients, other_losses] = run(logits_rows);
      CHECK(relative_l2(other_losses, losses) < loss_tolerance);
      CHECK(worst_difference(other_gradients, gradients) < gradient_tolerance);
    }
  }

  TEST_CASE("two runs are bitwise equal") {
    const Fixture fixture = load_fixture(tiny_shapes() ? "one_row" : "odd");
    const Result a = result_of(fixture, run_for(fixture), 1);
    const Result b = result_of(fixture, run_for(fixture), 1);
    CHECK(a.loss == b.loss);
    CHECK(a.gradients == b.gradients);
  }

  TEST_CASE_TEMPLATE("consecutive stages of any length are bitwise equal to the whole model", T,
                     float, bf16, fp16) {
    const Fixture fixture = load_fixture(tiny_shapes() ? "one_row" : "odd");
    const std::int64_t L = fixture.integer("L");
    const PassOptions options{.dropout = {.embedding = 0.1, .attention = 0.2, .residual = 0.3}};
    ModelRig<T> rig(engine_config(fixture.config()), run_for(fixture));
    rig.set_parameters(fixture.parameters());
    rig.set_loss_scale(fixture.number("fp16_loss_scale"));
    const float loss = rig.gradients_of({fixture.batch()}, options);
    const NamedFloats expected = rig.gradients();
    for (std::int64_t cut = 1; cut < L; ++cut) {
      CAPTURE(cut);
      const std::vector<Stage> stages = {{.first = 0, .end = cut, .head = false},
                                         {.first = cut, .end = L, .embedding = false}};
      CHECK(staged_gradients(rig, {fixture.batch()}, stages, options) == loss);
      CHECK(rig.gradients() == expected);
    }
  }

  TEST_CASE("micro-batches in flight at the same time have the gradients of sequential ones") {
    const Fixture fixture = load_fixture("odd");
    const std::int64_t B = fixture.integer("B");
    if (tiny_shapes() || B < 2) return;
    const auto batches = pieces_of(fixture.batch(), B);
    ModelRig<float> rig(engine_config(fixture.config()), run_for(fixture));
    rig.set_parameters(fixture.parameters());
    const float loss = rig.gradients_of(batches);
    const NamedFloats expected = rig.gradients();
    const std::vector<Stage> whole = {rig.runner().model().whole()};
    CHECK(staged_gradients(rig, batches, whole, {}) == loss);
    CHECK(rig.gradients() == expected);
  }

  TEST_CASE_TEMPLATE("frozen parameters get no gradient and change no bit of other gradients", T,
                     float, bf16) {
    const Fixture fixture = load_fixture(tiny_shapes() ? "one_row" : "odd");
    ModelRig<T> rig(engine_config(fixture.config()), run_for(fixture));
    rig.set_parameters(fixture.parameters());
    const IsFrozen none = [](const std::string&) { return false; };
    const NamedFloats expected = gradients_with(rig, none, fixture.batch());
    for (const auto& [name, values] : expected) {
      CAPTURE(name);
      CHECK(values != std::vector<float>(values.size()));
    }
    const auto norm = [](const std::string& name) { return name.find("ln_") != name.npos; };
    const auto weight = [](const std::string& name) { return name.ends_with(".weight"); };
    using Name = const std::string&;
    const std::vector<std::pair<std::string, IsFrozen>> cases = {
        {"wte", [](Name name) { return name == "wte.weight"; }},
        {"wpe", [](Name name) { return name == "wpe.weight"; }},
        {"norms", norm},
        {"norm weights", [&](Name name) { return norm(name) && weight(name); }},
        {"norm biases", [&](Name name) { return norm(name) && !weight(name); }},
        {"linear weights",
         [&](Name name) { return name.starts_with("h.") && !norm(name) && weight(name); }},
        {"biases", [&](Name name) { return !weight(name); }},
        {"all but one", [](Name name) { return name != "h.0.attn.c_attn.weight"; }},
        {"all", [](Name) { return true; }},
    };
    for (const auto& [what, is_frozen] : cases) {
      CAPTURE(what);
      for (const auto& [name, values] : gradients_with(rig, is_frozen, fixture.batch())) {
        CAPTURE(name);
        const std::vector<float> zeros(values.size());
        CHECK(values == (is_frozen(name) ? zeros : expected.at(name)));
      }
    }
  }

  TEST_CASE("the table names GPT-2's parameters and counts them") {
    const auto count = [](const char* name) {
      return gpt2_parameters(config_from_name(name)).count();
    };
    CHECK(count("d12") == 124439808);
    CHECK(count("d24") == 354823168);
    CHECK(count("d36") == 774030080);
    CHECK(count("d48") == 1557611200);
    // 12 L C^2 + 13 L C + 2 C, and the embeddings with GPT-2's vocabulary and context.
    CHECK(count("megatron-1.2b") == 1212031488);
    CHECK(count("megatron-2.5b") == 2488598400);
    CHECK(count("megatron-4.2b") == 4196936448);
    CHECK(count("megatron-8.3b") == 8314143744);
    CHECK(gpt2_parameters(config_from_name("d12")).find("h.11.mlp.c_fc.weight").shape ==
          std::vector<std::int64_t>{768, 3072});
    CHECK_THROWS_WITH_AS(config_from_name("gpt5"), doctest::Contains("--model 'gpt5'"), Error);
  }

  TEST_CASE("FLOP per token count causal attention and full attention") {
    const ModelConfig config = config_from_name("d12");
    const FlopsPerToken flops = flops_per_token(gpt2_parameters(config), config, 1024);
    // 124,439,808 parameters, of which 1024 x 768 are position embeddings.
    constexpr double kProducts = 6.0 * (124439808 - 1024 * 768);
    CHECK(flops.causal == kProducts + 6.0 * 12 * 1024 * 768);
    CHECK(flops.full == kProducts + 12.0 * 12 * 1024 * 768);
  }

  TEST_CASE("errors name impossible shapes") {
    ModelConfig config;
    config.heads = 7;
    CHECK_THROWS_WITH_AS(check_config(config), doctest::Contains("--channels 768 with --heads 7"),
                         Error);
    config.heads = 0;
    CHECK_THROWS_WITH_AS(check_config(config), doctest::Contains("--heads is 0"), Error);
  }

  TEST_CASE("the memory plan counts the rows of logits that exist at the same time") {
    const ModelConfig config = config_from_name("d12");
    const auto logits_bytes = [&](std::int64_t logits_rows) {
      Engine<bf16> engine(config, {.B = 8, .T = 1024, .logits_rows = logits_rows});
      for (const MemoryPlan::Segment& segment : engine.memory().segments()) {
        if (segment.name == "logits") return segment.bytes;
      }
      return std::int64_t{-1};
    };
    constexpr std::int64_t kRow = 50304 * 2, kLosses = 8 * 1024 * 4;  // bytes
    CHECK(logits_bytes(1) == kRow + kLosses);
    CHECK(logits_bytes(7) == round_up(7 * kRow, 256) + kLosses);
    CHECK(logits_bytes(4096) == 4096 * kRow + kLosses);
    for (const std::int64_t all : {0, 8192, 1000000})
      CHECK(logits_bytes(all) == 8192 * kRow + kLosses);
  }

  TEST_CASE("flash attention needs less memory than standard attention") {
    ModelConfig config = config_from_name("d12");
    RunShape run;
    run.B = 4;
    run.T = 1024;
    const auto total = [&](Attention attention) {
      run.attention = attention;
      return Engine<float>(config, run).memory().total();
    };
    // The (T, T) probabilities: B·NH·T·T fp32 numbers per layer.
    CHECK(total(Attention::standard) - total(Attention::flash) == 12LL * 4 * 12 * 1024 * 1024 * 4);
  }
}
