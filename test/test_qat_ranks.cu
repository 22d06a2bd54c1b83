// Quantization-aware training on several ranks, which are threads: they compute the steps of one
// rank, with its codes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "test/layout_rig.h"

using namespace llmc;
using namespace llmc_test;
using Kind = ObservedMatrix::Kind;

namespace {

struct Mode {
  QatMode qat;
  bool zero_points;
};
constexpr Mode kModes[] = {{QatMode::w8, false}, {QatMode::w8a8, false}, {QatMode::w8a8, true}};

LayoutOptions options_of(const Mode& mode) {
  LayoutOptions options{.vocabulary = 61, .steps = 3, .heads = 4, .layers = 2, .B = 2};
  if (tiny_shapes()) options.steps = options.layers = 1;
  options.qat = mode.qat;
  options.zero_points = mode.zero_points;
  return options;
}

std::string text_of(const Mode& mode) {
  return choice_name(mode.qat) + std::string(mode.zero_points ? " with zero points" : "");
}

// Finds the matrix of one rank that corresponds to a matrix of a rank of a layout.
class Correspondence {
 public:
  Correspondence(const MatrixRecorder& one, const Layout& layout, std::int64_t steps,
                 std::int64_t data_rank)
      : one_(one), layout_(layout), steps_(steps), data_rank_(data_rank) {}

  // The matrix that one rank wrote when it computed what this rank computes now. Call once for each
  // matrix of the rank.
  const std::vector<double>& next(const ObservedMatrix& matrix) {
    const auto& all = one_.of(matrix.kind, matrix.weight.name);
    const std::int64_t batches = layout_.batches();
    const std::int64_t per_batch = std::ssize(all) / (steps_ * batches);
    const std::int64_t n = count_[{matrix.kind, matrix.weight.name}]++;
    const std::int64_t batch_of_rank = n / per_batch;  // of all steps
    const std::int64_t step = batch_of_rank / layout_.micro_batches;
    const std::int64_t micro_batch = batch_of_rank % layout_.micro_batches;
    const std::int64_t batch = micro_batch * layout_.mesh().data_ranks() + data_rank_;
    return all[static_cast<std::size_t>((step * batches + batch) * per_batch + n % per_batch)];
  }

  // The index in one rank's matrix of element i of this rank's part, or -1 for padding.
  static std::int64_t index_of(const ObservedMatrix& matrix, std::int64_t i) {
    const LocalParameter& part = matrix.weight.part;
    if (matrix.kind == Kind::weight_codes || matrix.kind == Kind::weight_values) {
      return i < part.size() ? part.index(i) : -1;
    }
    // The columns of an input are the rows of the weight.
    const std::int64_t row = i / matrix.columns, column = i % matrix.columns;
    const std::int64_t first_column = part.index(0) / matrix.weight.shape[1];
    const bool splits_rows = part.shape[0] != matrix.weight.shape[0];
    return row * matrix.weight.shape[0] + column + (splits_rows ? first_column : 0);
  }

 private:
  const MatrixRecorder& one_;
  Layout layout_;
  std::int64_t steps_, data_rank_;
  std::map<MatrixRecorder::Key, std::int64_t> count_;
};

// Compares the codes of a rank with those of one rank, and replaces them by those if `imposes`.
class CodeComparer final : public QuantizationObserver {
 public:
  CodeComparer(Correspondence one, bool imposes) : one_(std::move(one)), imposes_(imposes) {}

  void written(const ObservedMatrix& matrix, Stream& stream) override {
    if (matrix.kind == Kind::sums) return;
    const std::vector<double>& expected = one_.next(matrix);
    const bool are_codes = matrix.kind == Kind::input_codes || matrix.kind == Kind::weight_codes;
    std::vector<double> values = values_of(matrix, stream);
    for (std::int64_t i = 0; i < std::ssize(values); ++i) {
      const std::int64_t index = Correspondence::index_of(matrix, i);
      if (index < 0) continue;
      const double value = expected[static_cast<std::size_t>(index)];
      if (are_codes) {
        ++codes;
        different += values[i] != value ? 1 : 0;
        largest = std::max(largest, std::fabs(values[i] - value));
      }
      values[i] = value;
    }
    if (!imposes_) return;
    const std::vector<float> floats(values.begin(), values.end());
    copy_to_device(static_cast<float*>(matrix.data), floats.data(), std::ssize(floats), stream);
    stream.synchronize();
  }

  std::int64_t codes = 0, different = 0;
  double largest = 0;

 private:
  Correspondence one_;
  bool imposes_;
};

struct Compared {
  Results ranks, one;
  std::int64_t codes = 0, different = 0;
  double largest = 0;
};

Compared compare(const Layout& layout, const LayoutOptions& options, bool imposes) {
  Compared compared;
  MatrixRecorder recorder;
  compared.one =
      train<float>({}, {.micro_batches = layout.batches()}, layout.batches(), options, &recorder);
  std::vector<std::unique_ptr<CodeComparer>> comparers(static_cast<std::size_t>(layout.ranks));
  run_thread_ranks(layout.ranks, [&](World& world) {
    Ranks ranks(world, layout.mesh());
    auto& comparer = comparers[static_cast<std::size_t>(world.rank())];
    comparer = std::make_unique<CodeComparer>(
        Correspondence(recorder, layout, options.steps, ranks.data_rank()), imposes);
    Results results =
        train<float>(std::move(ranks), layout, layout.batches(), options, comparer.get());
    if (world.rank() == 0) compared.ranks = std::move(results);
  });
  for (const auto& comparer : comparers) {
    compared.codes += comparer->codes;
    compared.different += comparer->different;
    compared.largest = std::max(compared.largest, comparer->largest);
  }
  return compared;
}

}  // namespace

TEST_SUITE("qat ranks") {
  TEST_CASE("data-parallel ranks have the codes of one rank and train like it") {
    std::vector<Layout> layouts = {
        {.ranks = 2, .stage = 1, .shard_ranks = 2, .micro_batches = 2},
        {.ranks = 2, .stage = 0, .micro_batches = 1},
        {.ranks = 4, .stage = 2, .shard_ranks = 2, .micro_batches = 1},
        {.ranks = 4, .stage = 3, .shard_ranks = 4, .micro_batches = 2},
    };
    if (tiny_shapes()) layouts = {{.ranks = 2, .stage = 3, .shard_ranks = 2}};
    for (const Mode& mode : kModes) {
      for (const Layout& layout : layouts) {
        if (tiny_shapes() && !mode.zero_points) continue;
        CAPTURE(text_of(mode));
        CAPTURE(layout.text());
        const Compared compared = compare(layout, options_of(mode), false);
        CHECK(compared.codes > 1000);
        CHECK(compared.different == 0);
        check_close(compared.ranks, compared.one, 5e-7, 2e-6);
      }
    }
  }

  TEST_CASE("pipeline ranks have the codes of one rank and train like it") {
    std::vector<Layout> layouts = {
        {.ranks = 2, .micro_batches = 1, .pipeline_ranks = 2},
        {.ranks = 4, .stage = 3, .shard_ranks = 2, .micro_batches = 1, .pipeline_ranks = 2}};
    if (tiny_shapes()) layouts = {{.ranks = 2, .pipeline_ranks = 2}};
    for (const Mode& mode : kModes) {
      for (const Layout& layout : layouts) {
        if (tiny_shapes() && !mode.zero_points) continue;
        CAPTURE(text_of(mode));
        CAPTURE(layout.text());
        LayoutOptions options = options_of(mode);
        options.layers = 2;
        options.steps = 1;  // the sum of wte's gradients has another order, so its next codes may
        const Compared compared = compare(layout, options, false);
        CHECK(compared.codes > 1000);
        CHECK(compared.different == 0);
        check_close(compared.ranks, compared.one, 5e-7, 2e-6);
      }
    }
  }

  TEST_CASE("with several micro-batches in a pipeline, quantized passes have the same bits") {
    if (tiny_shapes()) return;
    for (const Mode& mode : kModes) {
      for (const bool sequence_parallel : {false, true}) {
        for (const int tensor_ranks : {1, 2}) {
          if (sequence_parallel && tensor_ranks == 1) continue;
          const Layout without{.ranks = tensor_ranks,
                               .micro_batches = 4,
                               .tensor_ranks = tensor_ranks,
                               .sequence_parallel = sequence_parallel};
          Layout with = without;
          with.ranks *= 2;
          with.pipeline_ranks = 2;
          CAPTURE(text_of(mode));
          CAPTURE(with.text());
          LayoutOptions options = options_of(mode);
          options.steps = 1;
          const Results expected = train_ranks<float>(without, options);
          const Results results = train_ranks<float>(with, options);
          CHECK(llmc_test::same_bits(results.losses, expected.losses));
          CHECK(same_bits(results.gradients, expected.gradients, "wte.weight"));
        }
      }
    }
  }

  TEST_CASE("tensor ranks train like one rank if they have its codes") {
    for (const Mode& mode : kModes) {
      for (const int ranks : {2, 4}) {
        for (const bool sequence_parallel : {false, true}) {
          if (tiny_shapes() && (ranks == 4 || !mode.zero_points || !sequence_parallel)) continue;
          const Layout layout{.ranks = ranks,
                              .stage = ranks == 4 ? 3 : 0,
                              .shard_ranks = ranks / 2,
                              .micro_batches = 2,
                              .tensor_ranks = 2,
                              .sequence_parallel = sequence_parallel};
          CAPTURE(text_of(mode));
          CAPTURE(layout.text());
          const Compared compared = compare(layout, options_of(mode), true);
          CHECK(compared.codes > 1000);
          CHECK(compared.largest <= 1);
          check_close(compared.ranks, compared.one, 2e-6, 2e-6);
        }
      }
    }
  }

  TEST_CASE("codes of tensor ranks differ from those of one rank only by rounding") {
    if (tiny_shapes()) return;
    std::cout << "mode | layout | codes | different | largest difference of a loss\n";
    for (const Mode& mode : kModes) {
      for (const int tensor_ranks : {2, 4}) {
        for (const bool sequence_parallel : {false, true}) {
          const Layout layout{.ranks = 4,
                              .stage = 0,
                              .micro_batches = 2,
                              .tensor_ranks = tensor_ranks,
                              .sequence_parallel = sequence_parallel};
          CAPTURE(text_of(mode));
          CAPTURE(layout.text());
          const Compared compared = compare(layout, options_of(mode), false);
          double loss = 0;
          for (std::size_t i = 0; i < compared.one.losses.size(); ++i) {
            loss = std::max(loss, relative(compared.ranks.losses[i], compared.one.losses[i]));
          }
          std::cout << text_of(mode) << " | " << layout.text() << " | " << compared.codes << " | "
                    << compared.different << " | " << loss << std::endl;
          CHECK(compared.largest <= 1);
          CHECK(compared.different * 10000 <= compared.codes);
          CHECK(loss <= 1e-4);
        }
      }
    }
  }
}
