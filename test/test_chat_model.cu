// Conversations against GPT2LMHeadModel of transformers with labels -100
// (test/oracle/chat_fixtures.py).
#include <doctest/doctest.h>

#include <numeric>
#include <string>
#include <vector>

#include "llmc/io/data/conversations.h"
#include "llmc/io/data/padded_batches.h"
#include "llmc/io/tokenizer/byte_tokenizer.h"
#include "test/model_rig.h"
#include "test/oracle/compare.h"
#include "test/oracle/fixture.h"

using namespace llmc;
using namespace llmc_test;
using oracle::Comparison;
using oracle::Fixture;

namespace {

constexpr int kIgnored = -100;  // of transformers
constexpr std::int32_t kEnd = 256;

std::string fixture_file(const std::string& name) {
  return oracle::fixtures_dir() + "/chat/" + name;
}

// All conversations of the fixture's file in one batch, as training reads and pads them.
PaddedBatch fixture_batch(const Fixture& fixture) {
  const Conversations conversations =
      read_conversations(fixture_file("conversations.jsonl"), "--train");
  const std::int64_t T = fixture.integer("T");
  ConversationTokens tokens =
      tokenize_conversations(conversations, ByteTokenizer(), fixture.integer("T_max"));
  const PaddedSequences sequences(std::move(tokens.sequences), {.T = T, .pad_token = kEnd},
                                  "the fixture");
  std::vector<std::int64_t> order(static_cast<std::size_t>(sequences.count()));
  std::iota(order.begin(), order.end(), 0);
  return sequences.batch(order, T);
}

// Labels (B, T + 1) of transformers as targets (B, T): each token's target is the label after it.
std::vector<int> targets_of(const Fixture& fixture) {
  const std::vector<int> labels = fixture.ints("labels");
  const std::int64_t T = fixture.integer("T");
  std::vector<int> targets;
  for (std::int64_t b = 0; b < fixture.integer("B"); ++b) {
    for (std::int64_t t = 1; t <= T; ++t) {
      const int label = labels[static_cast<std::size_t>(b * (T + 1) + t)];
      targets.push_back(label == kIgnored ? -1 : label);
    }
  }
  return targets;
}

// Tokens (B, T + 1) without the last of each row. A row ends before its last target's token.
std::vector<int> inputs_of(const Fixture& fixture, const std::vector<std::int64_t>& lengths) {
  const std::vector<int> tokens = fixture.ints("tokens");
  const std::int64_t T = fixture.integer("T");
  std::vector<int> inputs;
  for (std::int64_t b = 0; b < fixture.integer("B"); ++b) {
    for (std::int64_t t = 0; t < T; ++t) {
      inputs.push_back(t < lengths[static_cast<std::size_t>(b)]
                           ? tokens[static_cast<std::size_t>(b * (T + 1) + t)]
                           : kEnd);
    }
  }
  return inputs;
}

void check_comparison(const Comparison& c) {
  CHECK_MESSAGE(c.ok(), describe(c));
}

}  // namespace

TEST_SUITE("chat model") {
  TEST_CASE("tokens and targets of conversations are those of transformers' labels") {
    const Fixture fixture(fixture_file("expected.fixture"));
    const PaddedBatch padded = fixture_batch(fixture);
    CHECK(padded.batch.T == fixture.integer("T"));
    CHECK(padded.batch.targets == targets_of(fixture));
    CHECK(padded.batch.inputs == inputs_of(fixture, padded.lengths));
  }

  TEST_CASE_TEMPLATE("loss and every gradient of answers are those of transformers", T, float, bf16,
                     fp16) {
    const Fixture fixture(fixture_file("expected.fixture"));
    const PaddedBatch padded = fixture_batch(fixture);
    std::int64_t num_targets = 0;
    for (const std::int32_t target : padded.batch.targets) num_targets += target >= 0;
    for (const std::int64_t logits_rows : {0, 24}) {
      RunShape shape;
      shape.B = padded.batch.B;
      shape.T = padded.batch.T;
      shape.logits_rows = logits_rows;
      ModelRig<T> rig(engine_config(fixture.config()), shape);
      rig.set_parameters(fixture.parameters());
      rig.set_loss_scale(1024);
      TrainingState<T>& state = rig.state();
      state.begin_step(rig.stream(), 1);
      PipelineRunner<T>(rig.runner())
          .run({.count = 1,
                .next = [&] { return prepare(padded.batch); },
                .options = [](std::int64_t) { return PassOptions{}; },
                .loss = {.scale = 1.0f / static_cast<float>(num_targets),
                         .sum = state.loss(),
                         .factor = state.loss_scale()}});
      state.finish_gradients(rig.stream());
      const double loss = static_cast<double>(state.loss_value(rig.stream()));
      check_comparison(compare_loss(fixture, loss, kDtypeOf<T>));
      const NamedFloats gradients = rig.gradients();
      for (const Comparison& c : compare_gradients(fixture, gradients, kDtypeOf<T>)) {
        check_comparison(c);
      }
      CHECK(gradients.size() == fixture.shapes().size());
    }
  }
}
