// Quantization-aware training against inference with INT8 weights: the same codes, the same sums,
// the same losses.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "llmc/infer/model_pass.h"
#include "llmc/infer/prompt_runner.h"
#include "llmc/ops/gemm/quantize_weight.h"
#include "test/batch_rig.h"
#include "test/qat_rig.h"

using namespace llmc_test;

namespace {

using Kind = ObservedMatrix::Kind;

template <class T, class State>
void set_weights(const Fixture& fixture, const ParameterTable& table, State& state,
                 Stream& stream) {
  const oracle::Tensors parameters = fixture.parameters();
  for (const ParameterSpec& spec : table.specs()) {
    const auto& values = parameters.at(spec.name);
    std::vector<float> floats(values.begin(), values.end());
    for (float& x : floats) x = to_float(from_float<T>(x));
    state.set_weight(spec, floats.data(), stream);
  }
}

PreparedBatch batch_of(const Fixture& fixture, std::int64_t B, std::int64_t T) {
  const std::int64_t V = fixture.integer("V");
  return {
      .batch = {
          .B = B, .T = T, .inputs = random_ints(B * T, 1, V), .targets = random_ints(B * T, 2, V)}};
}

// A model in the forward pass of quantization-aware training.
template <class T>
struct Trained {
  Trained(const Fixture& fixture, const RunShape& shape, QatMode mode, bool zero_points)
      : engine(engine_config(fixture.config()), shape) {
    engine.allocate();
    set_weights<T>(fixture, engine.table(), engine.state(), engine.stream());
    engine.context().quantization.set(quantized_pass(mode, zero_points));
    engine.context().quantization.observe(&recorder);
  }
  std::vector<float> losses(const PreparedBatch& prepared) {
    const DeviceBatch batch = engine.runner().put(prepared);
    engine.runner().forward(batch);
    std::vector<float> losses;
    engine.runner().read_losses(batch, losses);
    return losses;
  }
  Engine<T> engine;
  MatrixRecorder recorder;
};

// The same weights as INT8, for inference.
template <class T>
struct Deployed {
  Deployed(const Fixture& fixture, const RunShape& shape, QatMode mode, bool zero_points)
      : engine(engine_config(fixture.config()),
               {.B = 1, .T = 1, .training = false, .int8_weights = true}),
        model(engine.runner().model(), engine.context(), PromptRunner::batch_shape(shape),
              engine.memory(),
              {.quantizes_rows = mode == QatMode::w8a8, .zero_points = zero_points}),
        runner(model, engine.context(), shape, engine.memory()) {
    engine.allocate();
    set_weights<T>(fixture, engine.table(), engine.state(), engine.stream());
    model.clear();
  }
  std::vector<float> losses(const PreparedBatch& prepared) {
    std::vector<float> losses;
    runner.run(prepared);
    runner.read_losses(losses);
    return losses;
  }
  Engine<T> engine;
  ModelPass<T> model;
  PromptRunner runner;
};

double mean(const std::vector<float>& values) {
  double sum = 0;
  for (const float x : values) sum += x;
  return sum / static_cast<double>(values.size());
}

struct Mode {
  QatMode qat;
  bool zero_points;
};
constexpr Mode kModes[] = {{QatMode::w8, true}, {QatMode::w8a8, true}, {QatMode::w8a8, false}};

}  // namespace

TEST_SUITE_BEGIN("qat_deployment");

TEST_CASE_TEMPLATE("inference quantizes the weights to the codes of training", T, float, bf16) {
  const Fixture fixture = load_fixture("odd");
  const RunShape shape{.B = 1, .T = 8, .qat = QatMode::w8a8};
  Trained<T> trained(fixture, shape, QatMode::w8a8, true);
  trained.losses(batch_of(fixture, 1, 8));
  const oracle::Tensors parameters = fixture.parameters();
  std::int64_t compared = 0;
  for (const ParameterSpec& spec : trained.engine.table().specs()) {
    if (!is_quantized(spec)) continue;
    std::vector<float> values;
    for (const double x : parameters.at(spec.name))
      values.push_back(to_float(from_float<T>(static_cast<float>(x))));
    const WeightCodes expected =
        quantize_weight(values.data(), spec.shape[0], spec.shape[1], output_axis(spec), spec.name);
    std::vector<double> codes = trained.recorder.of(Kind::weight_codes, spec.name)[0];
    codes.resize(values.size());  // without padding
    CHECK(std::equal(codes.begin(), codes.end(), expected.codes.begin()));
    compared += std::ssize(codes);
  }
  CHECK(compared > 10000);
}

TEST_CASE("the products of layer 0 have the bits of training") {
  if (!kOneThreadBlocks) return;  // other orders of the sums of LayerNorm
  const Fixture fixture = load_fixture("odd");
  constexpr std::int64_t B = 2, T = 8, rows = B * T;
  for (const Mode& mode : kModes) {
    if (mode.qat == QatMode::w8) continue;  // sums of floats, in another order
    Trained<float> trained(fixture, {.B = B, .T = T, .qat = mode.qat}, mode.qat, mode.zero_points);
    const PreparedBatch batch = batch_of(fixture, B, T);
    trained.losses(batch);
    Deployed<float> deployed(fixture, {.B = B, .T = T}, mode.qat, mode.zero_points);
    Stream& stream = deployed.engine.stream();
    const Gpt2<float>& model = deployed.engine.runner().model();
    const std::int64_t C = model.config().channels;
    std::vector<std::int32_t> positions;
    for (std::int64_t r = 0; r < rows; ++r) positions.push_back(static_cast<std::int32_t>(r % T));
    const auto tokens = upload(batch.batch.inputs, stream), place = upload(positions, stream);
    const std::vector<float> zeros(static_cast<std::size_t>(rows * 3 * C));
    const auto x = upload(zeros, stream), out = upload(zeros, stream);
    const Tensor<float, 2> inp = make_tensor(x.data(), rows, C);
    code_embedding<float>(inp, make_tensor(tokens.data(), rows), model.embedding().tokens().codes(),
                          model.embedding().positions().matrix(), make_tensor(place.data(), rows),
                          stream);
    const Block<float>& block = model.blocks()[0];
    InvariantGemm<float> product;
    product.inp = inp;
    product.norm_weight = block.ln_1().weight().vector();
    product.norm_bias = block.ln_1().bias().vector();
    product.codes = block.c_attn().weight().codes();
    product.quantizer = {.enabled = true, .zero_points = mode.zero_points};
    product.bias = block.c_attn().bias().vector();
    invariant_gemm<float>(make_tensor(out.data(), rows, 3 * C), product, stream);
    const Tensor<float, 2> qkv =
        trained.engine.runner().activations().block(0, {rows, 0, rows, rows}).qkv;
    std::vector<float> expected(zeros.size());
    copy_to_host(expected.data(), qkv.data, qkv.size(), trained.engine.stream());
    trained.engine.stream().synchronize();
    CHECK(same_bits(download(out, stream), expected));
  }
}

TEST_CASE_TEMPLATE("the evaluation of a trained model equals that of inference", T, float, bf16) {
  const Fixture fixture = load_fixture("odd");
  const std::int64_t B = 3, T_seq = std::min<std::int64_t>(24, fixture.integer("T_max"));
  const PreparedBatch batch = batch_of(fixture, B, T_seq);
  for (const Mode& mode : kModes) {
    CAPTURE(static_cast<int>(mode.qat));
    CAPTURE(mode.zero_points);
    Trained<T> trained(fixture, {.B = B, .T = T_seq, .qat = mode.qat}, mode.qat, mode.zero_points);
    Trained<T> plain(fixture, {.B = B, .T = T_seq, .qat = mode.qat}, QatMode::none, false);
    Deployed<T> deployed(fixture, {.B = B, .T = T_seq}, mode.qat, mode.zero_points);
    const double expected = mean(trained.losses(batch)), loss = mean(deployed.losses(batch));
    const double difference = std::fabs(loss - expected) / expected;
    const double quantized = std::fabs(mean(plain.losses(batch)) - expected) / expected;
    MESSAGE("loss " << loss << ", in training " << expected << ": " << difference
                    << "; quantization changed it by " << quantized);
    // fp32: no code differs if both normalise in one order of sums; otherwise some do. bf16: the
    // residual stream is rounded in other places.
    const double allowed = std::is_same_v<T, float> ? kOneThreadBlocks ? 1e-5 : 1e-3 : 4e-3;
    CHECK(difference <= allowed);
    if (kOneThreadBlocks && std::is_same_v<T, float>) CHECK(difference < quantized);
  }
}

TEST_SUITE_END();
