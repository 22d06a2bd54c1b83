// The whole model against PyTorch's fp64 results (fixtures), and against itself: however a step is
// cut up, the gradients are those of the plain run.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "llmc/train/run/fitting.h"
#include "llmc/train/watch/speed.h"
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
  if (tiny()) return {"one_row"};
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

// What reordering an fp32 sum may change (test/oracle/README.md).
constexpr double kReordering = 3e-6;

}  // namespace

TEST_SUITE("model") {
  TEST_CASE_TEMPLATE("logits, loss and every gradient follow PyTorch", T, float, bf16, fp16) {
    for (const std::string& name : fixture_names()) {
      CAPTURE(name);
      const Fixture fixture = load_fixture(name);
      ModelRig<T> rig(engine_config(fixture.config()), run_for(fixture));
      rig.set_parameters(fixture.parameters());
      rig.set_loss_scale(fixture.number("fp16_loss_scale"));
      const float loss = rig.gradients_of({fixture.batch()});
      const Comparison compared = compare_loss(fixture, loss, kDtypeOf<T>);
      CHECK_MESSAGE(compared.ok(), describe(compared));
      check_all(compare_gradients(fixture, rig.gradients(), kDtypeOf<T>));
      check_all(compare_logits(fixture, rig.logits(fixture.batch()), kDtypeOf<T>));
    }
  }

  TEST_CASE("evaluation gives the training pass's losses") {
    const Fixture fixture = load_fixture(tiny() ? "one_row" : "odd");
    ModelRig<float> rig(engine_config(fixture.config()), run_for(fixture));
    rig.set_parameters(fixture.parameters());
    const float loss = rig.gradients_of({fixture.batch()});
    double sum = 0;
    const auto losses = rig.losses(fixture.batch());
    for (const float x : losses) sum += static_cast<double>(x);
    CHECK(sum / static_cast<double>(losses.size()) == doctest::Approx(loss).epsilon(1e-6));
  }

  TEST_CASE("micro-batches, larger buffers and standard attention change nothing") {
    if (tiny()) return;  // the kernels themselves are checked on tiny shapes in their own tests
    const Fixture fixture = load_fixture("odd");
    const RunShape plain = run_for(fixture);
    const Result want = result_of(fixture, plain, 1);
    const auto same = [&](const char* what, const Result& got) {
      CAPTURE(what);
      CHECK(got.loss == doctest::Approx(want.loss).epsilon(1e-6));
      CHECK(worst_difference(got.gradients, want.gradients) < kReordering);
    };
    same("micro-batches", result_of(fixture, plain, fixture.integer("B")));
    RunShape roomy = plain;
    roomy.B += 2;
    roomy.T += 3;
    same("buffers larger than the batch", result_of(fixture, roomy, 1));
    RunShape standard = plain;
    standard.attention = Attention::standard;
    same("standard attention", result_of(fixture, standard, 1));
  }

  TEST_CASE_TEMPLATE("any number of logits rows gives the same losses and gradients", T, float,
                     bf16, fp16) {
    const Fixture fixture = load_fixture(tiny() ? "one_row" : "odd");
    const auto run = [&](std::int64_t logits_rows) {
      RunShape shape = run_for(fixture);
      shape.logits_rows = logits_rows;
      ModelRig<T> rig(engine_config(fixture.config()), shape);
      rig.set_parameters(fixture.parameters());
      rig.set_loss_scale(fixture.number("fp16_loss_scale"));
      rig.gradients_of({fixture.batch()});
      return std::pair{rig.gradients(), rig.losses(fixture.batch())};
    };
    // Products with another number of rows may add in another order, which can round a logit of
    // half precision the other way.
    const double loss_tolerance = std::max(1e-6, kSpacing<T>);
    const double gradient_tolerance = std::max(kReordering, kSpacing<T>);
    const auto [gradients, losses] = run(0);
    for (const std::int64_t logits_rows : {1, 7, 4096}) {
      CAPTURE(logits_rows);
      const auto [other_gradients, other_losses] = run(logits_rows);
      CHECK(relative_l2(other_losses, losses) < loss_tolerance);
      CHECK(worst_difference(other_gradients, gradients) < gradient_tolerance);
    }
  }

  TEST_CASE("two runs are equal to the bit") {
    const Fixture fixture = load_fixture(tiny() ? "one_row" : "odd");
    const Result a = result_of(fixture, run_for(fixture), 1);
    const Result b = result_of(fixture, run_for(fixture), 1);
    CHECK(a.loss == b.loss);
    CHECK(a.gradients == b.gradients);
  }

  TEST_CASE("the table names GPT-2's parameters and counts them") {
    const auto count = [](const char* name) {
      return ParameterTable(config_from_name(name)).count();
    };
    CHECK(count("d12") == 124439808);
    CHECK(count("d24") == 354823168);
    CHECK(count("d36") == 774030080);
    CHECK(count("d48") == 1557611200);
    CHECK(ParameterTable(config_from_name("d12")).find("h.11.mlp.c_fc.weight").shape ==
          std::vector<std::int64_t>{768, 3072});
    CHECK_THROWS_WITH_AS(config_from_name("gpt5"), doctest::Contains("--model 'gpt5'"), Error);
  }

  TEST_CASE("FLOP per token count attention as a half and as a whole") {
    const Gpt2Config config = config_from_name("d12");
    const FlopsPerToken flops = flops_per_token(ParameterTable(config), config, 1024);
    // 124,439,808 parameters, of which 1024 x 768 are positions.
    constexpr double kProducts = 6.0 * (124439808 - 1024 * 768);
    CHECK(flops.causal == kProducts + 6.0 * 12 * 1024 * 768);
    CHECK(flops.full == kProducts + 12.0 * 12 * 1024 * 768);
  }

  TEST_CASE("impossible shapes are named") {
    Gpt2Config config;
    config.heads = 7;
    CHECK_THROWS_WITH_AS(check_config(config), doctest::Contains("--channels 768 with --heads 7"),
                         Error);
    config.heads = 0;
    CHECK_THROWS_WITH_AS(check_config(config), doctest::Contains("--heads is 0"), Error);
  }

  TEST_CASE("the memory plan counts the rows of logits that exist at the same time") {
    const Gpt2Config config = config_from_name("d12");
    const ParameterTable table(config);
    const auto logits_bytes = [&](std::int64_t logits_rows) {
      RunShape run{.B = 8, .T = 1024, .logits_rows = logits_rows};
      MemoryPlan plan;
      const Gpt2<bf16> model(config, table, run, plan);
      for (const MemoryPlan::Segment& segment : plan.segments()) {
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

  TEST_CASE("the hint of a run that does not fit is one that fits") {
    const Gpt2Config config = config_from_name("d12");
    const ParameterTable table(config);
    RunShape shape{.B = 8, .T = 1024, .logits_rows = 0};
    RunShape fewer_rows = shape;
    fewer_rows.logits_rows = 4096;
    const std::int64_t bytes = memory_of<bf16>(config, table, fewer_rows);
    CHECK(what_would_fit<bf16>(config, table, shape, bytes) == "--logits-rows 4096 would fit");
    RunShape smaller = shape;
    smaller.B = 3;
    const std::int64_t less = memory_of<bf16>(config, table, smaller);
    const std::string batch = "--batch-size 3 would fit; --grad-accum keeps the batch large";
    CHECK(what_would_fit<bf16>(config, table, shape, less) == batch);
    // Without more rows than the default there is nothing to gain from fewer.
    smaller.logits_rows = fewer_rows.logits_rows = 7;
    CHECK(what_would_fit<bf16>(config, table, fewer_rows,
                               memory_of<bf16>(config, table, smaller)) == batch);
  }

  TEST_CASE("flash attention needs less memory than standard attention") {
    Gpt2Config config = config_from_name("d12");
    const ParameterTable table(config);
    RunShape run;
    run.B = 4;
    run.T = 1024;
    const auto total = [&](Attention attention) {
      MemoryPlan plan;
      run.attention = attention;
      const Gpt2<float> model(config, table, run, plan);
      return plan.total();
    };
    // The (T, T) probabilities: B·NH·T·T fp32 numbers a layer.
    CHECK(total(Attention::standard) - total(Attention::flash) == 12LL * 4 * 12 * 1024 * 1024 * 4);
  }
}
