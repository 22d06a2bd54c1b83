// Documents packed into one sequence, with attention only inside each document. The loss and all
// gradients equal those of the documents run separately, each at its positions in the sequence.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "llmc/io/data/batches.h"
#include "test/model_rig.h"

using namespace llmc;
using namespace llmc_test;
using oracle::Index;
using oracle::Ints;
using oracle::Tensors;

namespace {

constexpr std::int32_t kEnd = 10;  // end of text
constexpr oracle::Config kConfig{.T_max = 24, .V = 11, .L = 2, .NH = 2, .C = 16};

Tensors parameters() {
  Tensors all;
  std::uint64_t seed = 1;
  for (const auto& [name, shape] : oracle::parameter_shapes(kConfig)) {
    const bool norm = name.find("ln_") != name.npos && name.ends_with("weight");
    oracle::Vec& values = all[name];
    for (const float x : random_floats(oracle::element_count(shape), ++seed, 0.3)) {
      values.push_back((norm ? 1.0 : 0.0) + static_cast<double>(x));
    }
  }
  return all;
}

// A text of two windows. The first begins inside a document and has documents of one token and of
// several; no document begins in the second.
TokenSource text() {
  Ints tokens = {1, 2, 10, 3, 4, 5, 6, 10, 10, 7, 8, 9, 1, 10, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 1};
  for (Index i = 0; i < 24; ++i) tokens.push_back((5 * i + 3) % 10);
  TokenSource source("text", kConfig.V, kEnd);
  source.add("text", TokenData({tokens.begin(), tokens.end()}));
  return source;
}

// `table` (T_max, C) moved up by `first` rows and filled with zeros: a document that starts at
// position `first` then runs from position 0.
oracle::Vec shift_rows(const oracle::Vec& table, Index first) {
  oracle::Vec out(table.begin() + first * kConfig.C, table.end());
  out.resize(table.size());
  return out;
}

struct Result {
  double loss = 0;
  Tensors gradients;
};

// The oracle's result: each document runs separately; losses and gradients are weighted by its
// number of tokens.
Result result_of_separate_documents(const Batch& batch, const Tensors& parameters) {
  Result sum{0, oracle::zeros_like_parameters(kConfig)};
  const Index T = batch.T, rows = batch.B * T;
  for (Index begin = 0; begin < rows;) {
    Index end = begin + 1;
    while (end % T != 0 && batch.doc_start[end] == batch.doc_start[begin]) ++end;
    const auto part = [&](const std::vector<std::int32_t>& ids) {
      return Ints(ids.begin() + begin, ids.begin() + end);
    };
    const oracle::Batch document{1, end - begin, part(batch.inputs), part(batch.targets), {}};
    Tensors shifted_parameters = parameters;
    shifted_parameters["wpe.weight"] = shift_rows(parameters.at("wpe.weight"), begin % T);
    const oracle::Activations a = oracle::forward(kConfig, shifted_parameters, document);
    const double fraction = static_cast<double>(end - begin) / static_cast<double>(rows);
    sum.loss += fraction * a.classifier.loss;
    for (const auto& [name, gradient] :
         oracle::backward(kConfig, shifted_parameters, document, a)) {
      const Index offset = name == "wpe.weight" ? begin % T * kConfig.C : 0;
      for (std::size_t i = 0; i + offset < gradient.size(); ++i) {
        sum.gradients.at(name)[i + offset] += fraction * gradient[i];
      }
    }
    begin = end;
  }
  return sum;
}

NamedFloats as_floats(const Tensors& tensors) {
  NamedFloats all;
  for (const auto& [name, values] : tensors) all[name] = {values.begin(), values.end()};
  return all;
}

}  // namespace

TEST_SUITE("document_mask") {
  TEST_CASE("packed documents equal separate documents") {
    const Batch batch = ConsecutiveWindows(Windows({text()}, 24, true, "")).batch(0, 2);
    REQUIRE(batch.doc_start[1] == 0);
    REQUIRE(batch.doc_start[3] == 2);
    const Tensors values = parameters();
    const Result expected = result_of_separate_documents(batch, values);
    const auto to_ints = [](const std::vector<std::int32_t>& ids) {
      return Ints(ids.begin(), ids.end());
    };
    const oracle::Batch packed{batch.B, batch.T, to_ints(batch.inputs), to_ints(batch.targets),
                               to_ints(batch.doc_start)};
    for (const Attention attention : {Attention::flash, Attention::standard}) {
      CAPTURE(static_cast<int>(attention));
      RunShape run;
      run.B = 2;
      run.T = 24;
      run.attention = attention;
      ModelRig<float> rig(engine_config(kConfig), run);
      rig.set_parameters(values);
      const float loss = rig.gradients_of({packed});
      // Sums of a few dozen fp32 terms, each rounded to 6e-8.
      CHECK(loss == doctest::Approx(expected.loss).epsilon(2e-6));
      // Three times the error of PyTorch in fp32 on small models (test/oracle/README.md).
      CHECK(worst_difference(rig.gradients(), as_floats(expected.gradients)) < 3 * 1.2e-6);
      // Without the mask the loss is different.
      const float loss_without_mask =
          rig.gradients_of({{packed.B, packed.T, packed.tokens, packed.targets, {}}});
      CHECK(std::abs(static_cast<double>(loss_without_mask) - expected.loss) > 1e-4);
    }
  }
}
