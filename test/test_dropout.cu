// Dropout in addition to its cases in dev/ops/dropout.h: the statistics of a mask, its independence
// of the batch and of the rank's part of rows and heads, and the whole model with dropout: against
// the oracle, with any split of a step, and resumed.
#include <doctest/doctest.h>

#include <cmath>
#include <iterator>
#include <string>
#include <vector>

#include "dev/harness/arrays.h"
#include "llmc/config/resolve.h"
#include "llmc/models/pretrained.h"
#include "llmc/ops/attention/attention.h"
#include "llmc/ops/attention/standard_attention.h"
#include "llmc/ops/dropout.h"
#include "llmc/train/checkpoint/training_checkpoint.h"
#include "test/model_rig.h"
#include "test/oracle/dropout.h"
#include "test/oracle/finite_difference.h"

using namespace llmc;
using namespace llmc_test;
using oracle::Fixture;
using oracle::load_fixture;

namespace {

constexpr std::uint64_t kSeed = 0xfedcba9876543210;
constexpr std::int64_t kStep = 9, kSite = 300, kFirstSample = (std::int64_t{1} << 32) - 2;

// Dropout of ones (rows, C), on the device: the factor of each element.
std::vector<float> factors(std::int64_t rows, std::int64_t T_seq, std::int64_t C,
                           const Dropout& dropout) {
  Stream stream;
  const llmc_dev::DeviceArray<float> x(std::vector<float>(static_cast<std::size_t>(rows * C), 1),
                                       stream);
  const auto view = make_tensor(x.data(), rows, C);
  apply_dropout<float>(view, view, T_seq, dropout, stream);
  CHECK(x.guards_intact());
  return x.stored();
}
std::vector<float> factors(std::int64_t rows, std::int64_t T_seq, std::int64_t C, double rate,
                           std::int64_t first_sample = kFirstSample) {
  return factors(rows, T_seq, C, make_dropout(rate, kSeed, kStep, kSite, first_sample));
}

// The dropped elements of the probabilities (B, heads, T, T), as attention computes them. With
// queries and keys of zeros every visible probability of a query is the same. With the unit vector
// of dimension j as value j, element j of an output is therefore the probability of key j.
template <class Forward>
std::vector<bool> dropped_probabilities(std::int64_t B, std::int64_t T, std::int64_t heads,
                                        const Forward& forward) {
  Stream stream;
  const std::int64_t HS = round_up(T, 8), C = heads * HS;
  std::vector<float> qkv(static_cast<std::size_t>(B * T * 3 * C));
  for (std::int64_t row = 0; row < B * T; ++row) {
    for (std::int64_t h = 0; h < heads; ++h) qkv[(row * 3 + 2) * C + h * HS + row % T] = 1;
  }
  const llmc_dev::DeviceArray<float> inp(qkv, stream);
  const llmc_dev::DeviceArray<float> out(std::vector<float>(static_cast<std::size_t>(B * T * C)),
                                         stream);
  const llmc_dev::DeviceArray<float> lse(
      std::vector<float>(static_cast<std::size_t>(B * heads * T)), stream);
  forward(make_tensor(out.data(), B, T, C), make_tensor(lse.data(), B, heads, T),
          make_tensor(inp.data(), B, T, 3 * C), stream);
  const std::vector<float> factors = out.stored();
  std::vector<bool> dropped;
  for (std::int64_t b = 0; b < B; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t i = 0; i < T; ++i) {
        for (std::int64_t j = 0; j < T; ++j) {
          dropped.push_back(j <= i && factors[((b * T + i) * heads + h) * HS + j] == 0);
        }
      }
    }
  }
  return dropped;
}

oracle::Dropout oracle_dropout() {
  return {.embedding = 0.2,
          .attention = 0.3,
          .residual = 0.15,
          .seed = kSeed,
          .step = kStep,
          .first_sample = kFirstSample};
}

PassOptions pass_options() {
  const oracle::Dropout o = oracle_dropout();
  return {.dropout = {.embedding = o.embedding, .attention = o.attention, .residual = o.residual},
          .seed = kSeed,
          .step = kStep,
          .first_sample = kFirstSample};
}

RunShape shape_of(const Fixture& fixture) {
  RunShape run;
  run.B = fixture.integer("B");
  run.T = fixture.integer("T");
  return run;
}

struct Result {
  float loss;
  NamedFloats gradients;
};

template <class T>
Result result_of(const Fixture& fixture, const PassOptions& options, std::int64_t pieces = 1,
                 Attention attention = Attention::flash) {
  RunShape run = shape_of(fixture);
  run.attention = attention;
  ModelRig<T> rig(engine_config(fixture.config()), run);
  rig.set_parameters(fixture.parameters());
  rig.set_loss_scale(fixture.number("fp16_loss_scale"));
  const float loss = rig.gradients_of(pieces_of(fixture.batch(), pieces), options);
  return {loss, rig.gradients()};
}

// The oracle's loss and gradients, rounded to fp32.
Result oracle_result(const Fixture& fixture) {
  const auto parameters = fixture.parameters();
  const oracle::Batch batch = fixture.batch();
  const auto a = oracle::forward(fixture.config(), parameters, batch, oracle_dropout());
  Result result{static_cast<float>(a.classifier.loss), {}};
  for (const auto& [name, d] :
       oracle::backward(fixture.config(), parameters, batch, a, oracle_dropout())) {
    result.gradients[name] = std::vector<float>(d.begin(), d.end());
  }
  return result;
}

// Relative L2 error of all gradients as one vector.
double difference(const NamedFloats& got, const NamedFloats& expected) {
  std::vector<float> a, b;
  for (const auto& [name, values] : expected) {
    b.insert(b.end(), values.begin(), values.end());
    a.insert(a.end(), got.at(name).begin(), got.at(name).end());
  }
  return relative_l2(a, b);
}

}  // namespace

TEST_SUITE("dropout") {
  TEST_CASE("the rate and the mean are as expected, and neighbours are independent") {
    const std::int64_t T_seq = 10, C = tiny_shapes() ? 64 : 1024, rows = tiny_shapes() ? 20 : 200;
    const auto n = static_cast<double>(rows * C);
    for (const double rate : {0.1, 0.5, 0.9}) {
      CAPTURE(rate);
      double left_out = 0, sum = 0, products[4] = {};
      std::vector<double> z;
      for (const float y : factors(rows, T_seq, C, rate)) {
        left_out += y == 0;
        sum += static_cast<double>(y);
        z.push_back((y == 0 ? 1 - rate : -rate) / std::sqrt(rate * (1 - rate)));
      }
      const std::int64_t lags[4] = {1, 2, 4, C};
      for (int k = 0; k < 4; ++k) {
        for (std::int64_t i = lags[k]; i < std::ssize(z); ++i) products[k] += z[i] * z[i - lags[k]];
      }
      // The bounds are five standard errors of a Bernoulli mean and of the mean product of
      // independent unit variables.
      CHECK(std::abs(left_out / n - rate) < 5 * std::sqrt(rate * (1 - rate) / n));
      CHECK(std::abs(sum / n - 1) < 5 * std::sqrt(rate / (1 - rate) / n));
      for (const double product : products) CHECK(std::abs(product / n) < 5 / std::sqrt(n));
    }
  }

  TEST_CASE("a sample's mask does not depend on its batch") {
    const std::int64_t B = 3, T_seq = 4, C = 32;
    const auto all = factors(B * T_seq, T_seq, C, 0.5);
    for (std::int64_t b = 0; b < B; ++b) {
      const auto alone = factors(T_seq, T_seq, C, 0.5, kFirstSample + b);
      CHECK(std::equal(alone.begin(), alone.end(), all.begin() + b * T_seq * C));
    }
    CHECK(factors(T_seq, T_seq, C, 0.5, 0) != factors(T_seq, T_seq, C, 0.5, 1));
  }

  TEST_CASE("the masks of a part of the rows are those of the whole batch") {
    const std::int64_t B = 3, T_seq = 5, C = 32, layer = 2;
    PassOptions options = pass_options();
    options.dropout = {.embedding = 0.5, .attention = 0, .residual = 0.5};
    for (const Dropout& whole :
         {embedding_dropout(options), branch_dropout(options, layer, Branch::attention),
          branch_dropout(options, layer, Branch::mlp)}) {
      const auto all = factors(B * T_seq, T_seq, C, whole);
      // Parts begin and end inside sequences; one of them has no rows.
      const std::int64_t cuts[] = {0, 4, 4, 11, B * T_seq};
      for (int i = 0; i + 1 < static_cast<int>(std::size(cuts)); ++i) {
        Dropout part = whole;
        part.first_row = cuts[i];
        CHECK(factors(cuts[i + 1] - cuts[i], T_seq, C, part) ==
              std::vector<float>(all.begin() + cuts[i] * C, all.begin() + cuts[i + 1] * C));
      }
    }
  }

  TEST_CASE("the masks of a part of the heads are those of the whole model") {
    const std::int64_t B = 2, T = 16, NH = 4;
    PassOptions options = pass_options();
    options.dropout = {.embedding = 0, .attention = 0.5, .residual = 0};
    const Dropout whole = attention_dropout(options, 2);
    const auto check_with = [&](const auto& attention) {
      const auto masks = [&](std::int64_t first, std::int64_t end) {
        Dropout dropout = whole;
        dropout.first_plane = static_cast<std::uint32_t>(first);
        return dropped_probabilities(B, T, end - first,
                                     [&](auto out, auto lse, auto qkv, Stream& stream) {
                                       attention(out, lse, qkv, end - first, dropout, stream);
                                     });
      };
      const auto all = masks(0, NH);
      CHECK(masks(0, 1) != masks(1, 2));
      const std::int64_t cuts[] = {0, 1, NH};
      for (int i = 0; i < 2; ++i) {
        const auto part = masks(cuts[i], cuts[i + 1]);
        const std::int64_t one = T * T, heads = cuts[i + 1] - cuts[i];
        for (std::int64_t b = 0; b < B; ++b) {
          CHECK(std::equal(part.begin() + b * heads * one, part.begin() + (b + 1) * heads * one,
                           all.begin() + (b * NH + cuts[i]) * one));
        }
      }
      return all;
    };
    const auto flash = check_with(
        [](auto out, auto lse, auto qkv, std::int64_t NH, const Dropout& dropout, Stream& stream) {
          flash_attention_forward<float>(out, lse, qkv, NH, nullptr, stream, dropout);
        });
    const auto standard = check_with([&](auto out, auto lse, auto qkv, std::int64_t NH,
                                         const Dropout& dropout, Stream& stream) {
      const Buffer<float> probabilities(B * NH * T * T);
      standard_attention_forward<float>(out, lse, make_tensor(probabilities.data(), B, NH, T, T),
                                        qkv, NH, nullptr, stream, dropout);
      stream.synchronize();  // `probabilities` is freed on return
    });
    CHECK(flash == standard);
  }

  TEST_CASE("probabilities outside [0, 1) are rejected") {
    CHECK(!make_dropout(0, 1, 1, 1, 1).enabled());
    CHECK_THROWS_WITH_AS(make_dropout(1, 1, 1, 1, 1), doctest::Contains("probability 1.0"), Error);
    CHECK_THROWS_AS(make_dropout(-0.1, 1, 1, 1, 1), Error);
  }

  TEST_CASE("the oracle's gradients with dropout match finite differences") {
    const oracle::Config config{.T_max = 6, .V = 11, .L = 2, .NH = 2, .C = tiny_shapes() ? 4 : 16};
    const oracle::Batch batch{
        2, 5, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {2, 3, 4, 5, 6, 7, 8, 9, 10, 0}, {}};
    oracle::Tensors p;
    std::uint64_t seed = 40;
    for (const auto& shape : oracle::parameter_shapes(config)) {
      const auto values = random_floats(oracle::element_count(shape.shape), ++seed, 0.4);
      p[shape.name] = oracle::Vec(values.begin(), values.end());
    }
    const oracle::Dropout dropout = oracle_dropout();
    const auto d =
        oracle::backward(config, p, batch, oracle::forward(config, p, batch, dropout), dropout);
    for (const char* name : {"wpe.weight", "h.0.attn.c_attn.weight", "h.1.attn.c_proj.bias",
                             "h.0.mlp.c_proj.bias", "h.1.ln_1.weight"}) {
      CAPTURE(name);
      oracle::Vec& x = p.at(name);
      const oracle::Vec expected = oracle::finite_difference(
          x, [&] { return oracle::mean_loss(config, p, batch, dropout); });
      CHECK(relative_l2(d.at(name), expected) < 1e-7);
    }
  }

  TEST_CASE("loss and gradients of the model match the oracle") {
    for (const std::string name : {"odd", "head64"}) {
      if (tiny_shapes()) break;
      CAPTURE(name);
      const Fixture fixture = load_fixture(name);
      const Result expected = oracle_result(fixture);
      const auto follows = [&]<class T>(T, Attention attention) {
        const Result got = result_of<T>(fixture, pass_options(), 1, attention);
        // The error allowed without dropout, times the largest scale of kept elements.
        const double allowed = oracle::allowed_error(fixture, "all", kDtypeOf<T>) /
                               (1 - pass_options().dropout.attention);
        CHECK(difference(got.gradients, expected.gradients) < allowed);
        CHECK(std::abs(got.loss / expected.loss - 1) <
              2 * oracle::allowed_error(fixture, "loss", kDtypeOf<T>));
      };
      follows(float{}, Attention::flash);
      follows(float{}, Attention::standard);
      follows(bf16{}, Attention::flash);
      follows(fp16{}, Attention::flash);
    }
  }

  TEST_CASE("each rate alone changes the loss") {
    const Fixture fixture = load_fixture("one_row");
    const Result none = result_of<float>(fixture, {});
    for (int i = 0; i < 3; ++i) {
      PassOptions options = pass_options();
      options.dropout = {};
      (i == 0   ? options.dropout.embedding
       : i == 1 ? options.dropout.attention
                : options.dropout.residual) = 0.5;
      CHECK(result_of<float>(fixture, options).loss != none.loss);
    }
  }

  TEST_CASE("loss and gradients do not depend on the micro-batch") {
    const Fixture fixture = load_fixture(tiny_shapes() ? "one_row" : "odd");
    const Result whole = result_of<float>(fixture, pass_options());
    const Result cut = result_of<float>(fixture, pass_options(), fixture.integer("B"));
    CHECK(cut.loss == doctest::Approx(whole.loss).epsilon(1e-6));
    // The effect that reordering an fp32 sum may have (test/oracle/README.md).
    CHECK(worst_difference(cut.gradients, whole.gradients) < 3e-6);
    PassOptions other = pass_options();
    ++other.step;
    CHECK(result_of<float>(fixture, other).loss != whole.loss);
  }

  TEST_CASE_TEMPLATE("rates of 0 are bitwise equal to no dropout", T, float, bf16) {
    const Fixture fixture = load_fixture(tiny_shapes() ? "one_row" : "odd");
    PassOptions off = pass_options();
    off.dropout = {};
    const Result with = result_of<T>(fixture, off), without = result_of<T>(fixture, {});
    CHECK(with.loss == without.loss);
    CHECK(with.gradients == without.gradients);
  }

  TEST_CASE_TEMPLATE("a run resumed at any step is bitwise equal to the uninterrupted run", T,
                     float, bf16, fp16) {
    const Fixture fixture = load_fixture("adamw50");
    const std::int64_t steps = tiny_shapes() ? 2 : 5;
    ModelConfig model = engine_config(fixture.config());
    if (tiny_shapes()) model.layers = 1;
    const HuggingFaceConfig config = to_huggingface(model, std::nullopt);
    const auto train_step = [&](ModelRig<T>& rig, std::int64_t step) {
      PassOptions options = pass_options();
      options.step = step;
      options.first_sample = step * fixture.integer("B");
      const float loss = rig.gradients_of(batches_of_step(fixture, step, 2), options);
      rig.state().apply_gradients(default_optimizer(), 1e-3, rig.stream());
      return loss;
    };
    TemporaryDirectory folder;
    ModelRig<T> straight(model, shape_of(fixture));
    straight.set_parameters(fixture.parameters());
    std::vector<float> losses;
    for (std::int64_t step = 0; step < steps; ++step) {
      save_checkpoint(folder.path(), config, {step, step, step}, 1, straight.state(),
                      straight.stream());
      losses.push_back(train_step(straight, step));
    }
    // Interrupted after every step: each run resumes from the checkpoint of the previous run.
    for (std::int64_t step = 0; step < steps; ++step) {
      ModelRig<T> resumed(model, shape_of(fixture));
      load_checkpoint(folder.path() / checkpoint_name(step), 1, resumed.state(), resumed.stream());
      CHECK(train_step(resumed, step) == losses[step]);
      if (step + 1 == steps) {
        CHECK(resumed.weights() == straight.weights());
      } else {
        save_checkpoint(folder.path(), config, {step + 1, step + 1, step + 1}, 1, resumed.state(),
                        resumed.stream());
      }
    }
  }

  TEST_CASE("--dropout sets the rates that no other flag sets") {
    Request request;
    CHECK(resolve(request, {}).dropout.embedding == 0);
    request.dropout.all = 0.1;
    request.dropout.attention = 0;
    const DropoutRates rates = resolve(request, {}).dropout_rates();
    CHECK(rates.embedding == 0.1);
    CHECK(rates.attention == 0);
    CHECK(rates.residual == 0.1);
  }
}
