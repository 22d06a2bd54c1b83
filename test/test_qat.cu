// Quantization-aware training on one rank: sums of codes are exact, and losses and gradients are
// those of the fp64 definition (oracle/quantized_gpt2.h).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <vector>

#include "test/layout_errors.h"
#include "test/oracle/quantized_gpt2.h"

using namespace llmc;
using namespace llmc_test;
using Kind = ObservedMatrix::Kind;

namespace {

const LayoutOptions kOptions{.vocabulary = 61, .heads = 2, .layers = 2, .B = 4};

struct Mode {
  QatMode qat;
  bool zero_points;
};
constexpr Mode kModes[] = {{QatMode::w8, false}, {QatMode::w8a8, false}, {QatMode::w8a8, true}};

RunShape shape_of(QatMode qat) {
  return {.B = kOptions.B, .T = kSequence, .qat = qat};
}

template <class T>
class QatRig : public ModelRig<T> {
 public:
  explicit QatRig(const Mode& mode, RunShape shape = {})
      : ModelRig<T>(kOptions.config(), shape.qat == QatMode::none ? shape_of(mode.qat) : shape) {
    initialise(this->state(), this->stream());
    this->set_loss_scale(1024);
    quantization().set(quantized_pass(mode.qat, mode.zero_points));
  }
  FakeQuantization& quantization() { return this->engine().context().quantization; }
};

// How far the oracle's number may be from a boundary between codes that fp32 sees on the other
// side, in steps of codes: rounding errors of activations of up to 2^8 steps.
constexpr double kBoundary = 2e-3;

// Whether x is rounded to this code, or to the other side of a close boundary.
bool may_have_code(double steps, double code) {
  return std::fabs(steps - code) <= 0.5 + kBoundary;
}

// The numbers that the codes of a weight (rows, columns) stand for, by the oracle's scales.
oracle::Vec weight_values(const std::vector<float>& weight, std::int64_t columns,
                          const std::vector<double>& codes, bool per_row) {
  const auto scale_index = [&](std::size_t i) {
    return per_row ? i / static_cast<std::size_t>(columns) : i % static_cast<std::size_t>(columns);
  };
  std::vector<double> largest(weight.size());
  for (std::size_t i = 0; i < weight.size(); ++i) {
    double& max = largest[scale_index(i)];
    max = std::max(max, std::fabs(static_cast<double>(weight[i])));
  }
  oracle::Vec values;
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const double scale = largest[scale_index(i)] / 127;
    wrong += may_have_code(static_cast<double>(weight[i]) / scale, codes[i]) ? 0 : 1;
    values.push_back(scale * codes[i]);
  }
  CHECK(wrong == 0);
  return values;
}

// The parameters of the oracle: matrices and token embeddings by their codes in fp32.
oracle::Tensors quantized_parameters(QatRig<float>& rig, const MatrixRecorder& recorder) {
  oracle::Tensors parameters;
  for (const ParameterSpec& spec : rig.state().table().specs()) {
    std::vector<float> values(static_cast<std::size_t>(spec.size()));
    rig.state().get_weight(spec, values.data(), rig.stream());
    const bool is_matrix = spec.shape.size() > 1 && spec.name != "wpe.weight";
    if (!is_matrix) {
      parameters[spec.name] = {values.begin(), values.end()};
      continue;
    }
    std::vector<double> codes = recorder.of(Kind::weight_codes, spec.name)[0];
    codes.resize(values.size());  // without the padding of wte
    parameters[spec.name] = weight_values(values, spec.shape[1], codes, spec.name == "wte.weight");
  }
  return parameters;
}

// Quantizes inputs by their codes in fp32, after checking these.
oracle::QuantizeInput quantizer_of(const Mode& mode, const MatrixRecorder& recorder,
                                   std::int64_t& clamped) {
  return [=, &recorder, &clamped](const std::string& name, const oracle::Vec& x, oracle::Index rows,
                                  oracle::Index columns) {
    oracle::ProductInput input{x, oracle::Vec(x.size(), 1.0)};
    if (mode.qat == QatMode::w8) return input;
    const std::vector<double>& codes = recorder.of(Kind::input_codes, name + ".weight")[0];
    std::int64_t wrong = 0;
    for (oracle::Index r = 0; r < rows; ++r) {
      const auto first = r * columns;
      double min = 0, max = 0, least_code = 0;
      for (auto i = first; i < first + columns; ++i) {
        min = std::min(min, x[i]);
        max = std::max(max, x[i]);
        least_code = std::min(least_code, codes[i]);
      }
      const double scale = mode.zero_points ? (max - min) / 255 : std::max(max, -min) / 127;
      const double zero = mode.zero_points ? -128 - least_code : 0;
      if (mode.zero_points) wrong += may_have_code(-128 - min / scale, zero) ? 0 : 1;
      for (auto i = first; i < first + columns; ++i) {
        const double steps = std::clamp(x[i] / scale, -128 - zero, 127 - zero);
        wrong += may_have_code(steps, codes[i]) ? 0 : 1;
        const double rounded = std::nearbyint(x[i] / scale + zero);
        if (rounded < -128 || rounded > 127) input.passes[i] = 0, ++clamped;
        input.values[i] = scale * codes[i];
      }
    }
    CHECK(wrong == 0);
    return input;
  };
}

// Makes the output of a norm its bias, with a range of which one end is a tie between codes: with
// zero points, the largest number is clamped.
void set_tied_range(QatRig<float>& rig) {
  const auto set = [&](const std::string& name, std::vector<float> values) {
    rig.state().set_weight(rig.state().table().find(name), values.data(), rig.stream());
  };
  const std::int64_t C = kOptions.config().channels;
  set("h.0.ln_2.weight", std::vector<float>(static_cast<std::size_t>(C)));
  std::vector<float> bias = random_floats(C, 77, 0.2);
  bias[3] = 127.5f / 64;
  bias[9] = -127.5f / 64;
  set("h.0.ln_2.bias", bias);
}

}  // namespace

TEST_SUITE("qat") {
  TEST_CASE("losses and gradients match the definition in fp64") {
    std::int64_t clamped = 0;
    for (const Mode& mode : kModes) {
      CAPTURE(choice_name(mode.qat));
      CAPTURE(mode.zero_points);
      QatRig<float> rig(mode);
      set_tied_range(rig);
      MatrixRecorder recorder;
      rig.quantization().observe(&recorder);
      const oracle::Batch batch = batch_of(0, 0, kOptions);
      const float loss = rig.gradients_of({batch});
      const oracle::Config config = oracle_config(kOptions.config());
      const oracle::QuantizedGpt2 model(config, quantized_parameters(rig, recorder),
                                        quantizer_of(mode, recorder, clamped));
      oracle::Tensors expected = oracle::zeros_like_parameters(config);
      const double expected_loss = model.loss_and_gradients(batch, expected);
      CHECK(std::fabs(static_cast<double>(loss) / expected_loss - 1) < 1e-6);
      for (const auto& [name, gradient] : rig.gradients()) {
        CAPTURE(name);
        std::vector<double> actual(gradient.begin(), gradient.end()), exact = expected.at(name);
        if (name.ends_with("c_attn.bias")) {  // the gradient of the keys' part is 0
          for (auto* values : {&actual, &exact}) {
            const auto third = static_cast<std::ptrdiff_t>(values->size()) / 3;
            values->erase(values->begin() + third, values->begin() + 2 * third);
          }
        }
        CHECK(oracle::relative_l2(actual, exact) < 3e-6);
      }
    }
    CHECK(clamped > 0);  // or the derivative of clamped codes is not tested
  }

  TEST_CASE_TEMPLATE("sums of codes have the bits of integers in every dtype", T, float, bf16,
                     fp16) {
    for (const Mode& mode : {kModes[1], kModes[2]}) {
      QatRig<T> rig(mode);
      MatrixRecorder recorder;
      LargeSumCounter counter;
      rig.quantization().observe(&recorder);
      rig.gradients_of({batch_of(0, 0, kOptions)});
      rig.quantization().observe(&counter);
      rig.gradients_of({batch_of(0, 0, kOptions)});
      CHECK(counter.sums > 0);
      CHECK(counter.large == 0);
      std::int64_t compared = 0, wrong = 0;
      for (const ParameterSpec& spec : rig.state().table().specs()) {
        if (spec.shape.size() < 2 || spec.block == 0) continue;
        const std::int64_t K = spec.shape[0], N = spec.shape[1];
        const auto& inputs = recorder.of(Kind::input_codes, spec.name)[0];
        const auto& codes = recorder.of(Kind::weight_codes, spec.name)[0];
        const auto& sums = recorder.of(Kind::sums, spec.name)[0];
        for (std::int64_t i = 0; i < std::ssize(sums); ++i, ++compared) {
          double sum = 0;
          for (std::int64_t k = 0; k < K; ++k) sum += inputs[i / N * K + k] * codes[k * N + i % N];
          wrong += sum == sums[i] ? 0 : 1;
        }
        wrong += std::ranges::all_of(codes, [](double c) { return std::fabs(c) <= 127; }) ? 0 : 1;
      }
      CHECK(compared > 1000);
      CHECK(wrong == 0);
    }
  }

  TEST_CASE("sums are exact up to 1040 symmetric products, 518 with zero points, not one more") {
    CHECK(1040.0 * 127 * 127 < 0x1p24);
    CHECK(1041.0 * 127 * 127 > 0x1p24);
    CHECK(518.0 * 255 * 127 < 0x1p24);
    CHECK(519.0 * 255 * 127 > 0x1p24);
    Context context;
    for (const auto& [K, input] : {std::pair(1040, 127), std::pair(518, 255)}) {
      for (const std::int64_t terms : {K, K + 1}) {
        const Buffer<float> a(terms), b(8 * terms), out(8);
        std::vector<float> ones(static_cast<std::size_t>(terms), static_cast<float>(input));
        ones.back() -= 1;  // so that no power of two divides the sum
        copy_to_device(a.data(), ones.data(), terms, context.stream);
        const std::vector<float> codes(static_cast<std::size_t>(8 * terms), 127.0f);
        copy_to_device(b.data(), codes.data(), 8 * terms, context.stream);
        constexpr const float* kNoBias = nullptr;
        matmul(make_tensor(out.data(), 1, 8), Tensor<const float, 2>{a.data(), {1, terms}},
               Transpose::no, Tensor<const float, 2>{b.data(), {terms, 8}}, Transpose::no, 0.0f,
               kNoBias, context.gemm, context.stream);
        float sum = 0;
        copy_to_host(&sum, static_cast<const float*>(out.data()), 1, context.stream);
        context.stream.synchronize();
        const double exact = (static_cast<double>(terms) * input - 1) * 127;
        if (terms == K) CHECK(static_cast<double>(sum) == exact);
        if (terms > K) CHECK(std::fabs(exact) >= 0x1p24);  // LargeSumCounter reports it
      }
    }
  }

  TEST_CASE("micro-batches have the gradients of one batch") {
    for (const Mode& mode : kModes) {
      QatRig<float> rig(mode);
      const oracle::Batch batch = batch_of(0, 0, kOptions);
      const float loss = rig.gradients_of({batch});
      const NamedFloats whole = rig.gradients();
      MatrixRecorder recorder;
      rig.quantization().observe(&recorder);
      CHECK(relative(rig.gradients_of(pieces_of(batch, 4)), loss) < 1e-6);
      CHECK(worst_difference(rig.gradients(), whole) < 3e-6);
      // All micro-batches of a step have the same codes of weights.
      for (const auto& [key, matrices] : recorder.all()) {
        if (key.first != Kind::weight_codes) continue;
        for (const auto& matrix : matrices) CHECK(matrix == matrices[0]);
      }
    }
  }

  TEST_CASE("scales follow an update of the weights, and passes without quantization need none") {
    QatRig<float> rig(kModes[2]);
    const oracle::Batch batch = batch_of(0, 0, kOptions);
    const auto losses_of_new_rig = [&](const NamedFloats& weights) {
      QatRig<float> other(kModes[2]);
      for (const ParameterSpec& spec : other.state().table().specs()) {
        other.state().set_weight(spec, weights.at(spec.name).data(), other.stream());
      }
      return other.losses(batch);
    };
    for (int step = 0; step < 2; ++step) {
      rig.gradients_of({batch});
      rig.state().apply_gradients(default_optimizer(), 1e-2, rig.stream());
      CHECK(llmc_test::same_bits(rig.losses(batch), losses_of_new_rig(rig.weights())));
    }
    const std::vector<float> quantized = rig.losses(batch);
    rig.quantization().set({});
    const std::vector<float> plain = rig.losses(batch);
    CHECK_FALSE(llmc_test::same_bits(plain, quantized));
    ModelRig<float> other(kOptions.config(), shape_of(QatMode::none));
    for (const auto& [name, values] : rig.weights()) {
      other.state().set_weight(other.state().table().find(name), values.data(), other.stream());
    }
    CHECK(llmc_test::same_bits(plain, other.losses(batch)));
  }

  TEST_CASE("evaluation computes the losses of the training pass, in chunks of logits too") {
    for (const Mode& mode : kModes) {
      RunShape shape = shape_of(mode.qat);
      shape.logits_rows = 5;
      QatRig<bf16> rig(mode, shape);
      const oracle::Batch batch = batch_of(0, 0, kOptions);
      const float loss = rig.gradients_of({batch});
      double sum = 0;
      for (const float x : rig.losses(batch)) sum += static_cast<double>(x);
      CHECK(sum / static_cast<double>(batch.B * batch.T) == doctest::Approx(loss).epsilon(1e-5));
    }
  }

  TEST_CASE("a model without buffers for them refuses quantized passes") {
    ModelRig<float> plain(kOptions.config(), shape_of(QatMode::none));
    CHECK_THROWS_WITH_AS(plain.engine().context().quantization.set({.weights = true}),
                         doctest::Contains("built for them"), Error);
    ModelRig<float> weights(kOptions.config(), shape_of(QatMode::w8));
    CHECK_THROWS_WITH_AS(
        weights.engine().context().quantization.set({.weights = true, .activations = true}),
        doctest::Contains("quantized activations"), Error);
  }
}
