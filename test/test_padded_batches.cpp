// Batches of sequences of different lengths: their padding, their order, and their last tokens.
#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "llmc/io/data/padded_batches.h"
#include "test/python.h"
#include "test/support.h"

TEST_SUITE_BEGIN("padded_batches");

using namespace llmc;
using namespace llmc_test;

namespace {

constexpr std::int32_t kPad = 99;

using Ids = std::vector<std::int32_t>;
using Numbers = std::vector<std::int64_t>;

PaddedSequences padded(const std::vector<Ids>& tokens, std::int64_t T,
                       std::int64_t length_multiple = 1) {
  std::vector<TokenSequence> sequences;
  for (const Ids& ids : tokens) sequences.push_back({.tokens = ids});
  return {std::move(sequences), {T, kPad, length_multiple}, "texts"};
}

// n sequences; sequence i has 1 to `max_length` copies of the token i.
PaddedSequences random_lengths(std::int64_t n, std::int64_t max_length) {
  const Ids lengths = random_ints(n, 3, max_length);
  std::vector<Ids> tokens;
  for (std::int64_t i = 0; i < n; ++i) {
    tokens.emplace_back(static_cast<std::size_t>(lengths[i] + 1),
                        static_cast<std::int32_t>(i + 100));
  }
  return padded(tokens, max_length);
}

// The fraction of padding in the global batches begin .. end - 1.
double padding(const PaddedSequences& sequences, const ShuffledSequences& order, std::int64_t begin,
               std::int64_t end) {
  std::int64_t used = 0, all = 0;
  for (std::int64_t step = begin; step < end; ++step) {
    const Numbers rows = order.global_batch(step);
    all += sequences.padded_length(rows) * std::ssize(rows);
    for (const std::int64_t i : rows) used += sequences.length(i);
  }
  return 1 - static_cast<double>(used) / static_cast<double>(all);
}

// How transformers' GPT2ForSequenceClassification finds the last token: the first maximum of the
// positions of other tokens, where padding counts as 0.
std::int64_t last_token_of(const std::int32_t* row, std::int64_t length) {
  std::int64_t best = 0;
  const auto score = [&](std::int64_t t) { return row[t] != kPad ? t : 0; };
  for (std::int64_t t = 1; t < length; ++t) best = score(t) > score(best) ? t : best;
  return best;
}

}  // namespace

TEST_CASE("rows are padded on the right, and know their length and their last token") {
  const PaddedSequences sequences = padded({{1, 2, 3}, {4}, {5, 6}}, 8);
  const PaddedBatch batch = sequences.batch(Numbers{2, 0, 1}, 4);
  CHECK(batch.batch.B == 3);
  CHECK(batch.batch.T == 4);
  CHECK(batch.batch.inputs == Ids{5, 6, kPad, kPad, 1, 2, 3, kPad, 4, kPad, kPad, kPad});
  CHECK(batch.batch.targets.empty());
  CHECK(batch.batch.doc_start.empty());
  CHECK(batch.sequences == Numbers{2, 0, 1});
  CHECK(batch.lengths == Numbers{2, 3, 1});
  CHECK(batch.last_tokens == Numbers{1, 2, 0});
  CHECK(sequences.num_ending_in_padding() == 0);
}

TEST_CASE("targets are padded by -1") {
  const PaddedSequences sequences({{{1, 2, 3}, {-1, 3, 4}}, {{5}, {6}}}, {2, kPad}, "texts");
  const PaddedBatch batch = sequences.batch(Numbers{1, 0}, 2);
  CHECK(batch.batch.inputs == Ids{5, kPad, 1, 2});
  CHECK(batch.batch.targets == Ids{6, -1, -1, 3});
  CHECK(sequences.num_cut() == 1);
}

TEST_CASE("a sequence that is too long loses its end, and is counted") {
  const PaddedSequences sequences = padded({{1, 2, 3, 4}, {5, 6, 7}, {8, kPad, 9, 9}}, 3);
  CHECK(sequences.num_cut() == 2);
  CHECK(sequences.length(0) == 3);
  CHECK(sequences.batch(Numbers{0, 1}, 3).batch.inputs == Ids{1, 2, 3, 5, 6, 7});
  CHECK(padded({{1, 2}, {3}}, 2).num_cut() == 0);
}

TEST_CASE("the last token is before pad tokens that end the sequence itself") {
  const PaddedSequences sequences =
      padded({{1, kPad}, {kPad, kPad}, {kPad, 2, kPad, kPad}, {kPad, 3}, {kPad}, {4, 5}}, 8);
  const PaddedBatch batch = sequences.batch(Numbers{0, 1, 2, 3, 4, 5}, 5);
  CHECK(batch.last_tokens == Numbers{0, 0, 1, 1, 0, 1});
  CHECK(batch.lengths == Numbers{2, 2, 4, 2, 1, 2});
  CHECK(sequences.num_ending_in_padding() == 4);
  for (std::int64_t b = 0; b < 6; ++b) {
    CHECK(batch.last_tokens[b] == last_token_of(batch.batch.inputs.data() + b * 5, 5));
  }
}

TEST_CASE("the length of a batch is that of its longest sequence, rounded up, and at most T") {
  const PaddedSequences sequences = padded({Ids(3, 1), Ids(5, 1), Ids(9, 1)}, 10, 4);
  CHECK(sequences.padded_length(Numbers{0}) == 4);
  CHECK(sequences.padded_length(Numbers{0, 1}) == 8);
  CHECK(sequences.padded_length(Numbers{1, 2}) == 10);
  CHECK(padded({Ids(3, 1)}, 10).padded_length(Numbers{0}) == 3);
}

TEST_CASE("each epoch contains each sequence once, for any number of sequences") {
  for (const std::int64_t n : {1, 2, 7, 8, 9, 15, 16, 100, 301}) {
    for (const std::int64_t G : {1, 3, 8, 20}) {
      CAPTURE(n);
      CAPTURE(G);
      const PaddedSequences sequences = random_lengths(n, 12);
      const ShuffledSequences order(sequences, G, 5);
      Numbers samples;
      for (std::int64_t step = 0; std::ssize(samples) < 3 * n; ++step) {
        const Numbers batch = order.global_batch(step);
        REQUIRE(std::ssize(batch) == G);
        samples.insert(samples.end(), batch.begin(), batch.end());
      }
      for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
        Numbers sorted(samples.begin() + epoch * n, samples.begin() + (epoch + 1) * n);
        std::ranges::sort(sorted);
        for (std::int64_t i = 0; i < n; ++i) CHECK(sorted[i] == i);
      }
    }
  }
}

TEST_CASE("the order depends on the seed and the epoch") {
  const PaddedSequences sequences = random_lengths(320, 12);
  const auto epoch = [&](std::uint64_t seed, std::int64_t number) {
    std::vector<Numbers> batches;
    for (std::int64_t step = 40 * number; step < 40 * (number + 1); ++step) {
      batches.push_back(ShuffledSequences(sequences, 8, seed).global_batch(step));
    }
    return batches;
  };
  CHECK(epoch(7, 0) == epoch(7, 0));
  CHECK(epoch(7, 0) != epoch(8, 0));
  CHECK(epoch(7, 0) != epoch(7, 1));
  // Batches of short and of long sequences alternate: a sorted order would have 1 change of
  // direction or none, a random one has two thirds of 38.
  std::vector<std::int64_t> lengths;
  for (const Numbers& batch : epoch(7, 0)) lengths.push_back(sequences.padded_length(batch));
  int turns = 0;
  for (std::size_t i = 2; i < lengths.size(); ++i) {
    turns += (lengths[i] - lengths[i - 1]) * (lengths[i - 1] - lengths[i - 2]) < 0 ? 1 : 0;
  }
  CHECK(turns > 12);
  // A batch has other sequences in another epoch, not only another place.
  std::set<std::set<std::int64_t>> first;
  for (const Numbers& batch : epoch(7, 0)) first.emplace(batch.begin(), batch.end());
  int repeated = 0;
  for (const Numbers& batch : epoch(7, 1)) {
    repeated += first.contains({batch.begin(), batch.end()}) ? 1 : 0;
  }
  CHECK(repeated == 0);
}

TEST_CASE("the global batch of a step is the same for any number of ranks and micro-batches") {
  constexpr std::int64_t kGlobal = 12;
  const PaddedSequences sequences = random_lengths(100, 30);
  const ShuffledSequences order(sequences, kGlobal, 11);
  for (std::int64_t step = 0; step < 20; ++step) {
    const PaddedBatch whole = order.batch(step * kGlobal, kGlobal);
    CHECK(whole.sequences == order.global_batch(step));
    CHECK(whole.batch.T == *std::ranges::max_element(whole.lengths));
    for (const std::int64_t B : {1, 2, 3, 4, 6}) {
      PaddedBatch joined;
      for (std::int64_t first = 0; first < kGlobal; first += B) {
        // A rank has its own object, and calls it in any order.
        const ShuffledSequences of_rank(sequences, kGlobal, 11);
        const PaddedBatch part = of_rank.batch(step * kGlobal + first, B);
        CHECK(part.batch.T == whole.batch.T);
        CHECK(part.batch.B == B);
        joined.batch.inputs.insert(joined.batch.inputs.end(), part.batch.inputs.begin(),
                                   part.batch.inputs.end());
        joined.last_tokens.insert(joined.last_tokens.end(), part.last_tokens.begin(),
                                  part.last_tokens.end());
      }
      CHECK(joined.batch.inputs == whole.batch.inputs);
      CHECK(joined.last_tokens == whole.last_tokens);
    }
  }
  CHECK(contains(complaint([&] { order.batch(kGlobal - 1, 2); }), "one global batch"));
}

TEST_CASE("grouping by length leaves little padding") {
  // Random batches of 8 lengths from 1 to 200 are about 44% padding: the mean of the largest of 8
  // is 8/9 of 200, the mean of all is half of it.
  const PaddedSequences sequences = random_lengths(1'000, 200);
  const ShuffledSequences order(sequences, 8, 1);
  CHECK(padding(sequences, order, 0, 125) < 0.04);
  CHECK(padding(sequences, order, 125, 250) < 0.04);
  // With a global batch that does not divide an epoch, one batch per epoch is ungrouped.
  CHECK(padding(sequences, ShuffledSequences(sequences, 7, 1), 0, 5 * 142) < 0.04);
}

TEST_CASE("evaluation takes each sequence once, from the longest, and ends with a smaller batch") {
  const PaddedSequences sequences = padded({{1}, {2, 2}, {3, 3, 3}, {4, 4}, {5}}, 8);
  const SortedSequences order(sequences);
  CHECK(order.count() == 5);
  const PaddedBatch first = order.batch(0, 3), second = order.batch(3, 3);
  CHECK(first.sequences == Numbers{2, 1, 3});
  CHECK(first.batch.T == 3);
  CHECK(second.sequences == Numbers{0, 4});
  CHECK(second.batch.B == 2);
  CHECK(second.batch.inputs == Ids{1, 5});
}

TEST_CASE("no sequences, and a sequence without tokens, are errors") {
  CHECK(contains(complaint([] { padded({}, 4); }), "texts has no sequences"));
  CHECK(contains(complaint([] { padded({{1}, {}}, 4); }), "texts: sequence 1 has no tokens"));
  CHECK(contains(complaint([] { padded({{1}}, 0); }), "need a length"));
}

TEST_CASE("last tokens are the positions whose logits transformers returns") {
  if (tiny_shapes()) return skip("too slow in this build, and the library is not under test");
  if (!python_has("torch, transformers")) {
    return skip("no Python with torch, transformers (set PYTHON)");
  }
  constexpr std::int64_t kRows = 64, kLength = 9;
  std::vector<Ids> tokens;
  for (std::int64_t i = 0; i < kRows; ++i) {
    Ids ids = random_ints(1 + i % kLength, static_cast<std::uint64_t>(i), 4);
    for (std::int32_t& id : ids) id = id == 3 ? kPad : id;  // a quarter are the pad token
    tokens.push_back(ids);
  }
  const PaddedSequences sequences = padded(tokens, kLength);
  const PaddedBatch batch = SortedSequences(sequences).batch(0, kRows);
  std::ostringstream rows;
  for (const std::int32_t id : batch.batch.inputs) rows << id << ",";
  const TemporaryDirectory directory;
  std::istringstream positions(run_python(
      "import torch, transformers\n"
      "torch.manual_seed(1)\n"
      "config = transformers.GPT2Config(vocab_size=100, n_positions=16, n_embd=8, n_layer=1,\n"
      "                                 n_head=2, num_labels=3, pad_token_id=99)\n"
      "model = transformers.GPT2ForSequenceClassification(config).eval().double()\n"
      "rows = torch.tensor([" +
          rows.str() +
          "]).view(64, 9)\n"
          "with torch.no_grad():\n"
          "    result = model(rows).logits\n"
          "    logits = model.score(model.transformer(rows).last_hidden_state)\n"
          "print(*(logits - result[:, None]).abs().sum(-1).argmin(1).tolist())\n",
      directory.path()));
  for (std::int64_t b = 0; b < kRows; ++b) {
    std::int64_t position = -1;
    positions >> position;
    CHECK(batch.last_tokens[b] == position);
  }
}

TEST_SUITE_END();
