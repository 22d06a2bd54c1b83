// Classifiers of texts against GPT2ForSequenceClassification of transformers
// (test/oracle/classifier_fixtures.py), their padding, and ranks that divide them.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/io/data/padded_batches.h"
#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/models/load_weights.h"
#include "llmc/models/pretrained.h"
#include "test/layout_cases.h"
#include "test/model_rig.h"
#include "test/oracle/compare.h"
#include "test/oracle/fixture.h"

using namespace llmc;
using namespace llmc_test;
using oracle::Comparison;
using oracle::Fixture;

namespace {

std::string fixture_file(const std::string& name) {
  return oracle::fixtures_dir() + "/classifier/" + name;
}

ModelConfig classifier_config(const Fixture& fixture) {
  ModelConfig config = engine_config(fixture.config());
  config.labels = fixture.integer("labels");
  return config;
}

// The texts of the fixture as training pads them, each with its label at its last token.
PaddedBatch fixture_batch(const Fixture& fixture) {
  const std::int64_t B = fixture.integer("B"), T = fixture.integer("T");
  const std::vector<int> tokens = fixture.ints("tokens"), lengths = fixture.ints("lengths");
  std::vector<TokenSequence> texts;
  std::vector<std::int64_t> order;
  for (std::int64_t b = 0; b < B; ++b) {
    const auto begin = tokens.begin() + b * T;
    texts.push_back({.tokens = {begin, begin + lengths[static_cast<std::size_t>(b)]}});
    order.push_back(b);
  }
  const PaddingOptions options{.T = T,
                               .pad_token = static_cast<std::int32_t>(fixture.integer("pad"))};
  PaddedBatch padded = PaddedSequences(texts, options, "the fixture").batch(order, T);
  padded.batch.targets.assign(tokens.size(), -1);
  const std::vector<int> labels = fixture.ints("targets");
  for (std::int64_t b = 0; b < B; ++b) {
    padded.batch.targets[static_cast<std::size_t>(
        b * T + padded.last_tokens[static_cast<std::size_t>(b)])] =
        labels[static_cast<std::size_t>(b)];
  }
  return padded;
}

// An engine with the fixture's parameters.
template <class T>
struct ClassifierRig {
  explicit ClassifierRig(const Fixture& fixture, RunShape shape = {}, Ranks ranks = {})
      : data_ranks(ranks.mesh().data_ranks()),
        rig(classifier_config(fixture), with_sizes(shape, fixture), std::move(ranks)) {
    rig.set_parameters(fixture.parameters());
  }

  // The mean loss over the texts, and its gradients. Data ranks have the same texts.
  float gradients_of(const Batch& batch) {
    rig.set_loss_scale(1024);
    TrainingState<T>& state = rig.state();
    state.begin_step(rig.stream(), 1);
    PipelineRunner<T>(rig.runner())
        .run({.count = 1,
              .next = [&] { return prepare(batch); },
              .options = [](std::int64_t) { return PassOptions{}; },
              .loss = {.scale = 1.0f / static_cast<float>(batch.B * data_ranks),
                       .sum = state.loss(),
                       .factor = state.loss_scale()}});
    state.finish_gradients(rig.stream());
    return rig.state().loss_value(rig.stream());
  }

  // The logits (B, labels) at the last token of each text.
  oracle::Vec logits(const PaddedBatch& padded) {
    rig.runner().forward(rig.runner().put(prepare(padded.batch)));
    oracle::Vec all;
    std::vector<float> row;
    for (std::size_t b = 0; b < padded.last_tokens.size(); ++b) {
      const std::int64_t first = static_cast<std::int64_t>(b) * padded.batch.T;
      rig.runner().read_logits(first + padded.last_tokens[b], row);
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }

  static RunShape with_sizes(RunShape shape, const Fixture& fixture) {
    shape.B = fixture.integer("B");
    shape.T = fixture.integer("T");
    return shape;
  }

  std::int64_t data_ranks;
  ModelRig<T> rig;
};

// Tensor ranks, of which all but the first have none of 3 labels, and stages of a pipeline.
std::vector<Layout> divided_layouts() {
  const Layout tensor{.ranks = 2, .tensor_ranks = 2};
  Layout spread = tensor, shards = tensor, both = tensor;
  spread.sequence_parallel = true;
  shards = {.ranks = 4, .stage = 3, .shard_ranks = 2, .tensor_ranks = 2, .sequence_parallel = true};
  both = {.ranks = 4, .tensor_ranks = 2, .pipeline_ranks = 2};
  return {tensor, spread, {.ranks = 2, .pipeline_ranks = 2}, both, shards};
}

void check_comparison(const Comparison& c) {
  CHECK_MESSAGE(c.ok(), describe(c));
}

}  // namespace

TEST_SUITE("text classifier") {
  TEST_CASE_TEMPLATE("logits, loss and every gradient are those of transformers", T, float, bf16,
                     fp16) {
    const Fixture fixture(fixture_file("expected.fixture"));
    const PaddedBatch padded = fixture_batch(fixture);
    CHECK(padded.batch.inputs == fixture.ints("tokens"));
    CHECK(padded.last_tokens == std::vector<std::int64_t>{12, 0, 4, 7, 9});
    for (const std::int64_t logits_rows : {0, 4}) {
      RunShape shape;
      shape.logits_rows = logits_rows;
      ClassifierRig<T> classifier(fixture, shape);
      check_comparison({"logits", relative_l2(classifier.logits(padded), fixture.doubles("logits")),
                        oracle::allowed_error(fixture, "logits", kDtypeOf<T>)});
      const float loss = classifier.gradients_of(padded.batch);
      check_comparison(compare_loss(fixture, static_cast<double>(loss), kDtypeOf<T>));
      const NamedFloats gradients = classifier.rig.gradients();
      for (const Comparison& c : compare_gradients(fixture, gradients, kDtypeOf<T>)) {
        check_comparison(c);
      }
      CHECK(gradients.size() == fixture.shapes().size());
    }
  }

  TEST_CASE("a directory of GPT2ForSequenceClassification is loaded as a classifier") {
    const Fixture fixture(fixture_file("expected.fixture"));
    const std::string model = fixture_file("model");
    const HuggingFaceConfig config = read_pretrained_config(model);
    CHECK(config.label_names == std::vector<std::string>{"negative", "neutral", "positive"});
    CHECK(config.pad_token_id == fixture.integer("pad"));
    CHECK(pretrained_shape(model, config) == classifier_config(fixture));
    ClassifierRig<float> classifier(fixture);
    const NamedFloats expected = classifier.rig.weights();
    for (const ParameterSpec& spec : classifier.rig.state().table().specs()) {
      const std::vector<float> zeros(static_cast<std::size_t>(spec.size()));
      classifier.rig.state().set_weight(spec, zeros.data(), classifier.rig.stream());
    }
    load_weights(model, classifier.rig.state(), classifier.rig.stream());
    CHECK(classifier.rig.weights() == expected);
  }

  TEST_CASE_TEMPLATE("tokens in the place of padding change no bit of loss and gradients", T, float,
                     bf16) {
    const Fixture fixture(fixture_file("expected.fixture"));
    const PaddedBatch padded = fixture_batch(fixture);
    ClassifierRig<T> classifier(fixture);
    const float loss = classifier.gradients_of(padded.batch);
    NamedFloats gradients = classifier.rig.gradients();
    const oracle::Vec logits = classifier.logits(padded);
    for (const std::uint64_t seed : {1, 2, 3}) {
      PaddedBatch other = padded;
      for (std::size_t b = 0; b < padded.lengths.size(); ++b) {
        const auto row = other.batch.inputs.begin() + static_cast<std::int64_t>(b) * other.batch.T;
        const std::vector<int> garbage =
            random_ints(other.batch.T, seed + 10 * b, fixture.integer("V"));
        std::copy(garbage.begin() + padded.lengths[b], garbage.end(), row + padded.lengths[b]);
      }
      CHECK(other.batch.inputs != padded.batch.inputs);
      CHECK(llmc_test::same_bits(std::vector<float>{classifier.gradients_of(other.batch)},
                                 std::vector<float>{loss}));
      CHECK(same_bits(classifier.rig.gradients(), gradients));
      CHECK(classifier.logits(other) == logits);
    }
    // A token inside a text does change them.
    PaddedBatch other = padded;
    other.batch.inputs[1] = (other.batch.inputs[1] + 1) % 31;
    classifier.gradients_of(other.batch);
    CHECK_FALSE(same_bits(classifier.rig.gradients(), gradients));
  }

  TEST_CASE("ranks that divide a classifier have the loss and the gradients of transformers") {
    if (tiny_shapes()) return;
    const Fixture fixture(fixture_file("expected.fixture"));
    const PaddedBatch padded = fixture_batch(fixture);
    for (const Layout& layout : divided_layouts()) {
      CAPTURE(layout.text());
      run_thread_ranks(layout.ranks, [&](World& world) {
        RunShape shape;
        shape.sequence_parallel = layout.sequence_parallel;
        shape.pipeline = layout.pipeline(fixture.integer("L"));
        ClassifierRig<float> classifier(fixture, shape, Ranks(world, layout.mesh()));
        const oracle::Vec logits = classifier.logits(padded);
        const float loss = classifier.gradients_of(padded.batch);
        const NamedFloats gradients = classifier.rig.gradients();
        if (world.rank() != 0) return;
        check_comparison({"logits", relative_l2(logits, fixture.doubles("logits")),
                          oracle::allowed_error(fixture, "logits", Dtype::fp32)});
        check_comparison(compare_loss(fixture, static_cast<double>(loss), Dtype::fp32));
        for (const Comparison& c : compare_gradients(fixture, gradients, Dtype::fp32)) {
          check_comparison(c);
        }
      });
    }
  }

  TEST_CASE("ranks that divide a classifier train like one") {
    if (tiny_shapes()) return;
    for (const std::int64_t labels : {3, 19}) {
      for (Layout layout : divided_layouts()) {
        layout.micro_batches = layout.pipeline_ranks;
        CAPTURE(layout.text());
        CAPTURE(labels);
        const LayoutOptions options{.vocabulary = 31,
                                    .steps = 3,
                                    .dropout = kDropout,
                                    .grad_clip = 0.5,
                                    .heads = 4,
                                    .layers = 2,
                                    .labels = labels,
                                    .B = 3};
        const Results one = train_one_rank<float>(layout.batches(), options);
        CHECK(one.gradients.at("score.weight").size() == static_cast<std::size_t>(32 * labels));
        // Twice the bound for vocabularies: the few terms of a loss leave more of their rounding.
        // Second moments have squares of gradients.
        check_close(train_ranks<float>(layout, options), one, 4e-6, 1e-5);
      }
    }
  }
}
