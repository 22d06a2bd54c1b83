// The oracle against finite differences and against PyTorch's fp64 results: the reference for the
// kernels and the model must itself be right.

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "llmc/device/device.h"
#include "test/oracle/compare.h"
#include "test/oracle/finite_difference.h"
#include "test/oracle/fixture.h"
#include "test/oracle/gpt2.h"
#include "test/oracle/ops.h"
#include "test/oracle/transformers.h"
#include "test/support.h"

using namespace llmc::oracle;

namespace {

Vec random_vec(Index n, std::uint64_t seed, double scale = 1.0) {
  return to_double(llmc_test::random_floats(n, seed, scale));
}

// Checks `gradient` against finite differences of f, which reads x.
template <class F>
void check_gradient(const char* name, const Vec& gradient, Vec& x, const F& f) {
  CHECK_MESSAGE(gradient_error(gradient, x, f) < kDifferenceTolerance, name);
}

// The first key of each position of a packed batch; documents begin at about every third position.
Ints document_starts(Index B, Index T) {
  Ints first(B * T);
  for (Index b = 0; b < B; ++b) {
    for (Index t = 0; t < T; ++t) {
      const bool is_start = t == 0 || (b + 2 * t) % 3 == 0;
      first[b * T + t] = is_start ? static_cast<int>(t) : first[b * T + t - 1];
    }
  }
  return first;
}

Tensors random_parameters(const Config& config, std::uint64_t seed) {
  Tensors p;
  for (const NamedShape& s : parameter_shapes(config)) {
    p[s.name] = random_vec(element_count(s.shape), seed++, 0.4);
  }
  return p;
}

std::vector<std::string> case_names() {
  if (llmc_test::tiny_shapes()) return {"one_row"};
  return {"odd", "wide_vocab", "head64", "one_row"};
}

// fp32 rounding if the fixture is stored in fp32, else fp64 rounding of a few thousand additions.
double stored_precision(const std::string& case_name) {
  return case_name == "head64" ? 1e-7 : 1e-12;
}

Trainer fixture_trainer(const Fixture& f) {
  const AdamW options{f.number("lr"), f.number("beta1"), f.number("beta2"), f.number("eps"),
                      f.number("weight_decay")};
  return Trainer(f.config(), f.parameters(), options, f.number("max_norm"));
}

}  // namespace

TEST_SUITE("oracle") {
  TEST_CASE("embedding gradients match finite differences") {
    const Index B = 2, T = 3, C = 5, V = 4, T_max = 4;
    const Ints tokens = {3, 0, 3, 1, 3, 0};
    Vec wte = random_vec(V * C, 1);
    Vec wpe = random_vec(T_max * C, 2);
    const Vec d_out = random_vec(B * T * C, 3);
    const auto f = [&] { return dot(embedding_forward(tokens, wte, wpe, B, T, C), d_out); };
    const EmbeddingGradients d = embedding_backward(d_out, tokens, B, T, C, V, T_max);
    check_gradient("wte", d.wte, wte, f);
    check_gradient("wpe", d.wpe, wpe, f);
  }

  TEST_CASE("LayerNorm normalises, and its gradients match finite differences") {
    const Index N = 3, C = 7;
    Vec x = random_vec(N * C, 1, 2.0);
    Vec weight = random_vec(C, 2);
    Vec bias = random_vec(C, 3);
    const Vec d_out = random_vec(N * C, 4);
    const LayerNorm y = layernorm_forward(x, Vec(C, 1.0), Vec(C, 0.0), N, C, 0.0);
    for (Index n = 0; n < N; ++n) {
      const Vec row(y.out.begin() + n * C, y.out.begin() + (n + 1) * C);
      CHECK(std::accumulate(row.begin(), row.end(), 0.0) == doctest::Approx(0).epsilon(1e-12));
      CHECK(sum_of_squares(row) == doctest::Approx(C).epsilon(1e-12));
    }
    const auto f = [&] { return dot(layernorm_forward(x, weight, bias, N, C).out, d_out); };
    const LayerNormGradients d = layernorm_backward(d_out, x, weight, N, C);
    check_gradient("x", d.x, x, f);
    check_gradient("weight", d.weight, weight, f);
    check_gradient("bias", d.bias, bias, f);
  }

  TEST_CASE("residual + LayerNorm gradients match finite differences") {
    const Index N = 2, C = 5;
    Vec a = random_vec(N * C, 1);
    Vec b = random_vec(N * C, 2);
    Vec weight = random_vec(C, 3);
    const Vec bias = random_vec(C, 4);
    const Vec d_out = random_vec(N * C, 5);
    const Vec d_sum = random_vec(N * C, 6);
    const auto f = [&] {
      const ResidualLayerNorm y = residual_layernorm_forward(a, b, weight, bias, N, C);
      return dot(y.norm.out, d_out) + dot(y.sum, d_sum);
    };
    const LayerNormGradients d =
        residual_layernorm_backward(d_out, d_sum, residual_forward(a, b), weight, N, C);
    check_gradient("a", d.x, a, f);
    check_gradient("b", d.x, b, f);
    check_gradient("weight", d.weight, weight, f);
  }

  TEST_CASE("linear gradients match finite differences") {
    const Index M = 3, K = 4, N = 5;
    Vec x = random_vec(M * K, 1);
    Vec w = random_vec(K * N, 2);
    Vec b = random_vec(N, 3);
    const Vec d_y = random_vec(M * N, 4);
    const auto f = [&] { return dot(linear_forward(x, w, b, M, K, N), d_y); };
    const LinearGradients d = linear_backward(d_y, x, w, M, K, N);
    check_gradient("x", d.x, x, f);
    check_gradient("w", d.w, w, f);
    check_gradient("b", d.b, b, f);
    CHECK(linear_forward(x, w, {}, M, K, N) == linear_forward(x, w, Vec(N), M, K, N));
  }

  TEST_CASE("LM head gradients match finite differences") {
    const Index N = 3, C = 4, V = 6;
    Vec h = random_vec(N * C, 1);
    Vec wte = random_vec(V * C, 2);
    const Vec d_logits = random_vec(N * V, 3);
    const auto f = [&] { return dot(lm_head_forward(h, wte, N, C, V), d_logits); };
    const LmHeadGradients d = lm_head_backward(d_logits, h, wte, N, C, V);
    check_gradient("h", d.h, h, f);
    check_gradient("wte", d.wte, wte, f);
  }

  TEST_CASE("GELU gradients match finite differences") {
    Vec x = {-30, -4, -1, -0.1, 0, 0.3, 1, 2.5, 30};
    const Vec d_y = random_vec(static_cast<Index>(x.size()), 1);
    const auto f = [&] { return dot(gelu_forward(x), d_y); };
    check_gradient("x", gelu_backward(d_y, x), x, f);
  }

  TEST_CASE("attention gradients match finite differences, with and without documents") {
    const Index B = 2, T = 5, NH = 3, HS = 2;
    Vec qkv = random_vec(B * T * 3 * NH * HS, 1, 1.5);
    const Vec d_out = random_vec(B * T * NH * HS, 2);
    for (const Ints& documents : {Ints{}, document_starts(B, T)}) {
      const auto f = [&] {
        return dot(attention_forward(qkv, B, T, NH, HS, documents).out, d_out);
      };
      check_gradient("qkv", attention_backward(d_out, qkv, B, T, NH, HS, documents), qkv, f);
    }
  }

  TEST_CASE("attention over packed documents equals attention over each document") {
    const Index T = 7, NH = 2, HS = 3, C = NH * HS;
    const Ints first = {0, 0, 0, 3, 3, 5, 5};
    const Vec qkv = random_vec(T * 3 * C, 1);
    const Attention packed = attention_forward(qkv, 1, T, NH, HS, first);
    const Ints bounds = {0, 3, 5, 7};
    for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
      const Index length = bounds[i + 1] - bounds[i];
      const Vec document(qkv.begin() + bounds[i] * 3 * C, qkv.begin() + bounds[i + 1] * 3 * C);
      const Vec out(packed.out.begin() + bounds[i] * C, packed.out.begin() + bounds[i + 1] * C);
      CHECK(relative_l2(attention_forward(document, 1, length, NH, HS).out, out) < 1e-14);
    }
    CHECK_THROWS_AS(attention_forward(qkv, 1, T, NH, HS, Ints(T, 1)), std::invalid_argument);
  }

  TEST_CASE("attention of only the last queries equals their part of the full result") {
    const Index T = 7, NH = 2, HS = 3, C = NH * HS, first = 4;
    const Vec qkv = random_vec(T * 3 * C, 1), d_out = random_vec(T * C, 2);
    const auto tail = [](const Vec& x, Index width) {
      return Vec(x.begin() + first * width, x.end());
    };
    const Vec out = attention_forward(qkv, 1, T, NH, HS, {}, {}, first).out;
    CHECK(tail(out, C) == tail(attention_forward(qkv, 1, T, NH, HS).out, C));
    const Vec partial = attention_backward(d_out, qkv, 1, T, NH, HS, {}, {}, first);
    const Vec full = attention_backward(d_out, qkv, 1, T, NH, HS);
    CHECK(tail(partial, 3 * C) == tail(full, 3 * C));
    CHECK(partial != full);
  }

  TEST_CASE("classifier gradients match finite differences, mean and weighted") {
    const Index N = 4, V = 5;
    Vec logits = random_vec(N * V, 1, 3.0);
    const Ints targets = {4, 0, 2, 4};
    for (const Vec& weights : {Vec{}, Vec{0.5, 0.0, 2.0, 0.1}}) {
      const auto f = [&] { return classifier(logits, targets, N, V, weights).loss; };
      check_gradient("logits", classifier(logits, targets, N, V, weights).d_logits, logits, f);
    }
    const Classifier confident = classifier(Vec{1000, 0, -1000}, {0}, 1, 3);
    CHECK(confident.loss == 0);
  }

  TEST_CASE("global norm, clipping and one AdamW step match values computed by hand") {
    CHECK(global_norm({{3}, {0, 4}}) == 5);
    CHECK(clip_factor(5, 1) == doctest::Approx(0.2).epsilon(1e-6));
    CHECK(clip_factor(0.5, 1) == 1);
    CHECK(clip_factor(5, 0) == 1);
    Vec p = {2, -1}, m = {0, 0}, v = {0, 0};
    adamw_step(p, m, v, {0.5, -3}, 1, {0.1, 0.9, 0.95, 1e-8, 0.1});
    // Bias correction makes the first update lr * sign(gradient), after the decay by 1 - lr * 0.1.
    CHECK(p[0] == doctest::Approx(2 * 0.99 - 0.1).epsilon(1e-7));
    CHECK(p[1] == doctest::Approx(-1 * 0.99 + 0.1).epsilon(1e-7));
    CHECK(m[1] == doctest::Approx(-0.3));
    CHECK(v[1] == doctest::Approx(0.45));
  }

  TEST_CASE("the model's gradients match finite differences") {
    const Config config{5, 11, 2, 3, 6};
    Tensors p = random_parameters(config, 10);
    const Batch batch{
        2, 4, {1, 10, 1, 3, 0, 5, 5, 2}, {10, 1, 3, 3, 5, 5, 2, 0}, document_starts(2, 4)};
    const auto f = [&] { return mean_loss(config, p, batch); };
    const Tensors d = backward(config, p, batch, forward(config, p, batch));
    for (auto& [name, values] : p) {
      std::vector<std::size_t> indices;
      const std::size_t stride = std::max<std::size_t>(1, values.size() / 19);
      for (std::size_t i = 0; i < values.size(); i += stride) indices.push_back(i);
      Vec analytic;
      for (const std::size_t i : indices) analytic.push_back(d.at(name)[i]);
      CHECK_MESSAGE(relative_l2(analytic, finite_difference(values, f, indices)) < 1e-8, name);
    }
  }

  TEST_CASE("loss, logits and every gradient match PyTorch's in fp64") {
    for (const std::string& name : case_names()) {
      const Fixture fixture = load_fixture(name);
      const Config config = fixture.config();
      const Batch batch = fixture.batch();
      const Tensors p = fixture.parameters();
      const Activations a = forward(config, p, batch);
      std::vector<Comparison> all =
          compare_gradients(fixture, backward(config, p, batch, a), llmc::Dtype::fp32);
      const std::vector<Comparison> logits = compare_logits(fixture, a.logits, llmc::Dtype::fp32);
      all.insert(all.end(), logits.begin(), logits.end());
      for (const Comparison& c : all) {
        CHECK_MESSAGE(c.error < stored_precision(name), name << " " << describe(c));
        CHECK_MESSAGE(c.ok(), name << " " << describe(c));
      }
      CHECK(compare_loss(fixture, a.classifier.loss, llmc::Dtype::fp32).error < 1e-13);
    }
  }

  TEST_CASE("the parameter table matches PyTorch's names, shapes and order") {
    const Fixture fixture = load_fixture("odd");
    const std::vector<NamedShape> expected = fixture.shapes();
    const std::vector<NamedShape> actual = parameter_shapes(fixture.config());
    REQUIRE(actual.size() == expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      CHECK(actual[i].name == expected[i].name);
      CHECK(actual[i].shape == expected[i].shape);
    }
  }

  TEST_CASE("AdamW training matches PyTorch's in fp64, with and without accumulation") {
    const Fixture fixture = load_fixture("adamw50");
    const Index steps = llmc_test::tiny_shapes() ? 2 : fixture.integer("steps");
    for (const Index num_micro_batches : {Index{1}, fixture.integer("micro_batches")}) {
      const std::string key = num_micro_batches == 1 ? "fp64" : "fp64_accumulated";
      const Vec expected_losses = fixture.doubles("losses." + key);
      const Vec expected_norms = fixture.doubles("grad_norms." + key);
      Trainer trainer = fixture_trainer(fixture);
      Vec losses, norms;
      for (Index step = 0; step < steps; ++step) {
        const StepResult r = trainer.step(training_batches(fixture, step, num_micro_batches));
        losses.push_back(r.loss);
        norms.push_back(r.grad_norm);
        CHECK(r.loss == doctest::Approx(expected_losses[step]).epsilon(1e-11));
        CHECK(r.grad_norm == doctest::Approx(expected_norms[step]).epsilon(1e-10));
      }
      if (steps < fixture.integer("steps")) continue;
      for (const llmc::Dtype dtype : {llmc::Dtype::fp32, llmc::Dtype::bf16}) {
        for (const Comparison& c : compare_training(fixture, losses, norms, dtype)) {
          CHECK_MESSAGE(c.ok(), describe(c));
          CHECK(c.allowed_error < 0.1);
        }
      }
      losses.back() *= 1.000003;
      CHECK(!compare_training(fixture, losses, norms, llmc::Dtype::fp32)[0].ok());
      const Tensors initial = fixture.parameters();
      for (const auto& [name, values] : trainer.parameters()) {
        const double update = fixture.doubles("update." + key + "." + name)[0];
        CHECK_MESSAGE(
            norm(difference(values, initial.at(name))) == doctest::Approx(update).epsilon(1e-8),
            name);
      }
    }
  }

  TEST_CASE("the comparison accepts fp32 rounding and rejects larger errors") {
    const Fixture fixture = load_fixture("one_row");
    const Tensors p = fixture.parameters();
    const Tensors d = backward(fixture.config(), p, fixture.batch(),
                               forward(fixture.config(), p, fixture.batch()));
    std::map<std::string, std::vector<float>> rounded;
    for (const auto& [name, values] : d) rounded[name] = {values.begin(), values.end()};
    const auto failures = [&](const auto& gradients, llmc::Dtype dtype) {
      std::string names;
      for (const Comparison& c : compare_gradients(fixture, gradients, dtype)) {
        if (!c.ok()) names += c.name + ";";
      }
      return names;
    };
    CHECK(failures(rounded, llmc::Dtype::fp32) == "");
    auto wrong = rounded;
    for (float& x : wrong["h.1.ln_2.bias"]) x *= 1.00001F;
    CHECK(failures(wrong, llmc::Dtype::fp32) == "h.1.ln_2.bias;");
    CHECK(failures(wrong, llmc::Dtype::bf16) == "");
    for (float& x : wrong["h.1.ln_2.bias"]) x *= 1.1F;
    CHECK(failures(wrong, llmc::Dtype::bf16) == "h.1.ln_2.bias;");
    wrong = rounded;
    wrong["wpe.weight"][3] = std::nanf("");
    CHECK(failures(wrong, llmc::Dtype::fp32) == "wpe.weight;");
    wrong = rounded;
    wrong["h.0.attn.c_attn.bias"][fixture.integer("C")] = 0.01F;
    CHECK(failures(wrong, llmc::Dtype::fp32) == "h.0.attn.c_attn.bias.key;");
    wrong.erase("ln_f.bias");
    CHECK_THROWS_AS(failures(wrong, llmc::Dtype::fp32), std::out_of_range);
  }

  TEST_CASE("the comparison of a sampled gradient detects errors in rows that are not stored") {
    if (llmc_test::tiny_shapes()) return llmc_test::skip("V = 50257 is slow here");
    const Fixture fixture = load_fixture("wide_vocab");
    const Tensors p = fixture.parameters();
    const Activations a = forward(fixture.config(), p, fixture.batch());
    Tensors d = backward(fixture.config(), p, fixture.batch(), a);
    const Index C = fixture.config().C;
    const Ints stored = fixture.ints("grad.wte.weight.rows");
    int row = 1000;
    while (std::count(stored.begin(), stored.end(), row) > 0) ++row;
    for (Index c = 0; c < C; ++c) d.at("wte.weight")[row * C + c] = 0;
    std::string failures;
    for (const Comparison& c : compare_gradients(fixture, d, llmc::Dtype::fp32)) {
      if (!c.ok()) failures += c.name + ";";
    }
    CHECK(failures == "wte.weight.column_sums;wte.weight.blocks;");
  }

  TEST_CASE("the oracle's loss on the Hugging Face directories matches transformers'") {
    const std::string tiny = fixtures_dir() + "/hf_tiny";
    const Fixture expected(tiny + "/expected.fixture");
    const double loss = mean_loss(expected.config(), expected.parameters(), expected.batch());
    CHECK(loss == doctest::Approx(expected.number("loss")).epsilon(1e-13));
    if (llmc_test::tiny_shapes()) return;
    const std::string openai = fixtures_dir() + "/hf_tiny_openai";
    const TransformersCheck check =
        check_transformers({openai, "--tokens", tiny + "/tokens.txt", "--tensors", tiny});
    if (!check.available) return llmc_test::skip("transformers is not installed (live part only)");
    CHECK_MESSAGE(check.passed, check.output);
    CHECK(check.loss == doctest::Approx(loss).epsilon(1e-6));
  }

  TEST_CASE("the error names a fixture that is missing, foreign or truncated") {
    const llmc_test::TemporaryDirectory folder;
    const std::string path = folder.file("broken.fixture");
    CHECK_THROWS_WITH_AS(Fixture{path}, doctest::Contains("broken.fixture cannot be read"),
                         llmc::Error);
    std::ofstream(path) << "something else\n";
    CHECK_THROWS_WITH_AS(Fixture{path}, doctest::Contains("is not a fixture"), llmc::Error);
    std::filesystem::copy_file(fixtures_dir() + "/one_row.fixture", path,
                               std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 64);
    CHECK_THROWS_WITH_AS(Fixture{path}, doctest::Contains("is truncated"), llmc::Error);
    CHECK_THROWS_WITH_AS(load_fixture("one_row").number("colour"), doctest::Contains("colour"),
                         llmc::Error);
  }
}
