// Dynamic loss scaling: its rules on the optimizer's state, and a model in fp16 trained by them.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "llmc/config/resolve.h"
#include "llmc/models/pretrained.h"
#include "llmc/train/checkpoint/training_checkpoint.h"
#include "test/guarded_state.h"
#include "test/model_rig.h"

using namespace llmc;
using namespace llmc_test;
using llmc_dev::DeviceArray;
using oracle::Fixture;
using oracle::load_fixture;

namespace {

// The state after one step with this loss and this gradient norm, loss scale included.
OptimizerState after_step(const OptimizerState& before, float scaled_norm, float loss,
                          std::int32_t window = 3) {
  Stream stream;
  const GuardedState state(before, stream);
  const DeviceArray<float> partials({scaled_norm * scaled_norm}, stream);
  const DeviceArray<float> device_loss({loss}, stream);
  finish_global_norm(state.data(), partials.data(), 1, 0.0f, device_loss.data(), stream);
  OptimizerOptions options = default_optimizer();
  options.loss_scale_window = window;
  begin_adamw(state.data(), options, stream);
  CHECK(state.guards_intact());
  return state.read();
}

OptimizerState state_with_scale(float scale, std::int32_t good_steps = 0) {
  OptimizerState state{};
  state.loss_scale = scale;
  state.loss_scale_good_steps = good_steps;
  return state;
}

RunShape shape_of(const Fixture& fixture) {
  RunShape run;
  run.B = fixture.integer("B");
  run.T = fixture.integer("T");
  return run;
}

// Applies the gradients of the fixture's batch for step `index`.
void step(ModelRig<fp16>& rig, const Fixture& fixture, std::int64_t index) {
  rig.gradients_of(oracle::training_batches(fixture, index, 1));
  OptimizerOptions options = default_optimizer();
  options.loss_scale_window = 2;
  rig.state().apply_gradients(options, 1e-3, rig.stream());
}

}  // namespace

TEST_SUITE("loss_scale") {
  TEST_CASE("an overflow halves the scale, and consecutive good steps double it") {
    OptimizerState state = state_with_scale(1024, 2);
    state = after_step(state, INFINITY, 1.0f);
    CHECK(state.step_loss_scale == 1024);
    CHECK(state.loss_scale == 512);
    CHECK(state.loss_scale_good_steps == 0);
    CHECK(state.skipped_updates == 1);
    CHECK(state.consecutive_skips == 0);  // a smaller scale may avoid the overflow
    CHECK(state.updates == 0);
    for (int good = 1; good <= 3; ++good) {
      state = after_step(state, 3 * 512.0f, 1.0f);
      CHECK(state.gradient_norm == 3);  // unscaled
      CHECK(state.updates == good);
      CHECK(state.loss_scale == (good == 3 ? 1024 : 512));
    }
    CHECK(state.loss_scale_good_steps == 0);
    CHECK(state.step_loss_scale == 512);
    state = after_step(state, NAN, 1.0f);
    CHECK(state.loss_scale == 512);
  }

  TEST_CASE("the scale stays between 1 and 2^24") {
    CHECK(after_step(state_with_scale(kMaxLossScale, 2), 1.0f, 1.0f).loss_scale == kMaxLossScale);
    OptimizerState state = state_with_scale(2);
    state = after_step(state, INFINITY, 1.0f);
    CHECK(state.loss_scale == 1);
    CHECK(state.consecutive_skips == 0);
    // From here on no smaller scale helps: skipped steps count towards --max-skipped.
    for (int row = 1; row <= 3; ++row) {
      state = after_step(state, INFINITY, 1.0f);
      CHECK(state.loss_scale == 1);
      CHECK(state.consecutive_skips == row);
    }
    CHECK(after_step(state, 1.0f, 1.0f).consecutive_skips == 0);
  }

  TEST_CASE("a loss that is not finite does not change the scale") {
    const OptimizerState state = after_step(state_with_scale(1024), NAN, NAN);
    CHECK(state.loss_scale == 1024);
    CHECK(state.consecutive_skips == 1);
    CHECK(state.skipped_updates == 1);
  }

  TEST_CASE("gradients are not scaled without a loss scale") {
    OptimizerState state = after_step(state_with_scale(0), 3.0f, 1.0f);
    CHECK(state.gradient_norm == 3);
    CHECK(state.gradient_scale == 1);
    CHECK(state.loss_scale == 0);
    state = after_step(state, INFINITY, 1.0f);
    CHECK(state.loss_scale == 0);
    CHECK(state.consecutive_skips == 1);
  }

  TEST_CASE("scaling by a power of two changes no bit of an update") {
    Stream stream;
    const std::int64_t n = 2 * kNormPiece + 5;
    const OptimizerOptions options = default_optimizer();
    const auto update_with_scale = [&](float scale) {
      std::vector<float> scaled = random_floats(n, 3);
      for (float& x : scaled) x *= scale == 0 ? 1 : scale;
      const DeviceArray<float> param(random_floats(n, 4), stream), gradient(scaled, stream);
      const DeviceArray<float> m(std::vector<float>(n), stream), v(std::vector<float>(n), stream);
      const DeviceArray<float> partials(std::vector<float>(squared_norm_count(n)), stream);
      const GuardedState state(state_with_scale(scale), stream);
      squared_norm_partials<float>(partials.data(), gradient.data(), n, stream);
      finish_global_norm(state.data(), partials.data(), partials.size(), 0.5f, nullptr, stream);
      begin_adamw(state.data(), options, stream);
      adamw<float>(param.data(), nullptr, m.data(), v.data(), gradient.data(), n, options, 1e-2,
                   true, state.data(), stream);
      return param.stored();
    };
    const std::vector<float> unscaled = update_with_scale(0);
    CHECK(same_bits(update_with_scale(1), unscaled));
    CHECK(same_bits(update_with_scale(65536), unscaled));
  }

  TEST_CASE("too large a scale falls until updates succeed, and a resumed run has the same bits") {
    const Fixture fixture = load_fixture("adamw50");
    const HuggingFaceConfig config = to_huggingface(engine_config(fixture.config()), std::nullopt);
    const std::int64_t steps = tiny_shapes() ? 2 : 12;
    TemporaryDirectory folder;
    ModelRig<fp16> rig(engine_config(fixture.config()), shape_of(fixture));
    rig.set_parameters(fixture.parameters());
    rig.set_loss_scale(kMaxLossScale);
    const NamedFloats initial = rig.weights();
    std::vector<float> scales;
    for (std::int64_t i = 0; i < steps; ++i) {
      save_checkpoint(folder.path(), config, {i, i, i}, 1, rig.state(), rig.stream());
      step(rig, fixture, i);
      const OptimizerState state = rig.state().optimizer_state(rig.stream());
      scales.push_back(state.step_loss_scale);
      CHECK(state.consecutive_skips == 0);
      if (i == 0) {
        CHECK(state.overflowed == 1);
        CHECK(rig.weights() == initial);
      }
    }
    CHECK(scales[1] == kMaxLossScale / 2);
    if (tiny_shapes()) return;
    const OptimizerState state = rig.state().optimizer_state(rig.stream());
    CHECK(state.updates > 0);
    CHECK(rig.weights() != initial);
    for (const std::int64_t stop : {std::int64_t{1}, steps / 2, steps - 1}) {
      CAPTURE(stop);
      ModelRig<fp16> resumed(engine_config(fixture.config()), shape_of(fixture));
      load_checkpoint(folder.path() / checkpoint_name(stop), 1, resumed.state(), resumed.stream());
      for (std::int64_t i = stop; i < steps; ++i) {
        step(resumed, fixture, i);
        CHECK(resumed.state().optimizer_state(resumed.stream()).step_loss_scale == scales[i]);
      }
      CHECK(resumed.weights() == rig.weights());
      const OptimizerState end = resumed.state().optimizer_state(resumed.stream());
      CHECK(end.loss_scale == state.loss_scale);
      CHECK(end.loss_scale_good_steps == state.loss_scale_good_steps);
    }
  }

  TEST_CASE("--loss-scale is refused with other dtypes and if it is not a power of two") {
    Request request;
    request.precision.dtype = Dtype::bf16;
    request.precision.loss_scale = 1024;
    const auto complaint_of = [&] { return complaint([&] { resolve(request, {}); }); };
    CHECK(contains(complaint_of(), "--loss-scale has no effect with --dtype bf16"));
    request.precision.dtype = Dtype::fp16;
    CHECK(complaint_of() == "");
    request.precision.loss_scale = 1000;
    CHECK(contains(complaint_of(), "not a power of two"));
    request.precision.loss_scale.reset();
    request.optimizer.loss_scale_window = 5;
    CHECK(resolve(request, {}).optimizer.loss_scale_window == 5);
    request.precision.dtype = Dtype::fp32;
    CHECK(contains(complaint_of(), "--loss-scale-window has no effect with --dtype fp32"));
  }
}
