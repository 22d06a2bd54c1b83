// Several ranks: checkpoints under other layouts, targets that are masked, equal copies, memory,
// traffic, and communication next to the passes. Ranks are threads.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "llmc/comm/thread_ranks.h"
#include "llmc/config/model_name.h"
#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/models/pretrained.h"
#include "llmc/plan/fit_hint.h"
#include "llmc/plan/plan_text.h"
#include "llmc/plan/step_traffic.h"
#include "llmc/train/checkpoint/training_checkpoint.h"
#include "llmc/train/watch/replica_check.h"
#include "test/rank_rig.h"
#include "test/write_file.h"

using namespace llmc;
using namespace llmc_test;

namespace {

// Notes how many collectives of a kind were issued before each launch on a stream.
class CollectiveTrace final : public LaunchObserver {
 public:
  CollectiveTrace(Communicator& communicator, CommKind kind)
      : communicator_(communicator), kind_(kind) {}
  void on_launch(const void*, int, std::size_t) override {
    counts_.push_back(communicator_.traffic(kind_).calls);
  }
  // Whether there was a launch after exactly `count` collectives.
  bool has(std::int64_t count) const { return std::ranges::find(counts_, count) != counts_.end(); }
  const std::vector<std::int64_t>& counts() const { return counts_; }

 private:
  Communicator& communicator_;
  CommKind kind_;
  std::vector<std::int64_t> counts_;
};

}  // namespace

TEST_SUITE("rank state") {
  TEST_CASE("an error in common work is the same on all ranks, and named unless all have it") {
    run_thread_ranks(3, [](World& world) {
      Exchange exchange(world);
      const auto error_of = [&](const std::vector<std::string>& errors) {
        const std::string& own = errors[static_cast<std::size_t>(world.rank())];
        return complaint([&] {
          exchange.together([&] {
            if (!own.empty()) fail(own);
          });
        });
      };
      CHECK(error_of({"", "", ""}) == "");
      CHECK(error_of({"", "no paper", "no ink"}) == "rank 1: no paper");
      CHECK(error_of({"no ink", "no ink", "no ink"}) == "no ink");
      CHECK_THROWS_AS(exchange.together([] { fail_usage("wrong", ""); }), CommonUsageError);
      // One rank per machine is first, so the others do not work.
      std::atomic<int> num_called{0};
      CHECK_THROWS_AS(exchange.one_per_machine_first([&] {
        ++num_called;
        fail("no paper");
      }),
                      CommonError);
      CHECK(num_called == (world.local_rank() == 0 ? 1 : 0));
    });
  }

  TEST_CASE("ranks exchange numbers and texts") {
    run_thread_ranks(3, [](World& world) {
      Exchange exchange(world);
      const std::int64_t rank = world.rank();
      CHECK(exchange.all_gather({rank, 10 * rank}) ==
            std::vector<std::int64_t>{0, 0, 1, 10, 2, 20});
      std::vector<std::int64_t> numbers = {rank, std::int64_t{1} << 40, -rank};
      exchange.sum(numbers);
      CHECK(numbers[0] == 3);
      CHECK(numbers[1] == 3 * (std::int64_t{1} << 40));
      CHECK(numbers[2] == -3);
      CHECK(exchange.gather_texts(std::string(static_cast<std::size_t>(20 * rank), 'x')) ==
            std::vector<std::string>{"", std::string(20, 'x'), std::string(40, 'x')});
      CHECK(exchange.any(rank == 2));
      CHECK(!exchange.any(false));
      CHECK(exchange.broadcast(0.1 + static_cast<double>(rank)) == 0.1);
      for (const std::string text : {"", "a", "12345678", "more than eight bytes"}) {
        CHECK(exchange.broadcast(rank == 0 ? text : "another text of this rank") == text);
      }
    });
    Exchange alone;
    CHECK(alone.all_gather({7}) == std::vector<std::int64_t>{7});
    CHECK(alone.broadcast(std::string("text")) == "text");
  }

  TEST_CASE_TEMPLATE("a state that 4 ranks saved at stage 3 has the same bits under other layouts",
                     T, float, bf16) {
    if (tiny_shapes() && sizeof(T) != 4) return;
    const TemporaryDirectory folder;
    const HuggingFaceConfig config = to_huggingface(run_config({1, 1}, 0, 1).shape, std::nullopt);
    std::vector<float> saved;
    const int savers = tiny_shapes() ? 2 : 4;
    run_thread_ranks(savers, [&](World& world) {
      Rank<T> rank(world, run_config(make_mesh(savers, savers), 3, 1));
      train(rank, {random_batch}, 2);
      const std::vector<float> values = kept_values(rank.state(), rank.stream());
      save_checkpoint(folder.path(), config, {2, 2, 2}, 1, rank.state(), rank.stream());
      if (world.rank() == 0) saved = values;
    });
    struct Loader {
      int ranks, zero, shard_ranks;
    };
    for (const Loader& loader :
         {Loader{1, 0, 1}, Loader{3, 1, 3}, Loader{8, 2, 8}, Loader{4, 0, 4}, Loader{4, 3, 2}}) {
      if (tiny_shapes() && loader.ranks > 1) continue;
      CAPTURE(loader.ranks);
      run_thread_ranks(loader.ranks, [&](World& world) {
        Rank<T> rank(world,
                     run_config(make_mesh(loader.ranks, loader.shard_ranks), loader.zero, 1));
        load_checkpoint(folder.path() / checkpoint_name(2), 1, rank.state(), rank.stream());
        const std::vector<float> values = kept_values(rank.state(), rank.stream());
        if (world.rank() == 0) CHECK(same_bits(values, saved));
      });
    }
  }

  TEST_CASE("the loss is the mean over the targets of a step, however they are spread") {
    // There are 4 micro-batches: the first has 2 targets, the second 8, the third none, the
    // fourth 3. On two ranks, the first rank has the first and the third.
    const auto masked = [](std::int64_t first, std::int64_t B) {
      Batch batch = random_batch(first, B);
      const std::int64_t counts[] = {2, 8, 0, 3};
      const std::int64_t keep = first / 4 == 1 ? 0 : counts[first % 4];  // step 2 has none
      std::fill(batch.targets.begin() + keep, batch.targets.end(), -1);
      return batch;
    };
    const SampleSource samples{masked, true};
    const auto run = [&](int ranks, int zero) {
      std::vector<StepResult> results;
      std::vector<float> weights;
      run_thread_ranks(ranks, [&](World& world) {
        Rank<float> rank(world, run_config(make_mesh(ranks, ranks), zero, 4 / ranks));
        const auto of_rank = train(rank, samples, tiny_shapes() ? 1 : 3);
        const auto values = kept_values(rank.state(), rank.stream());
        if (world.rank() == 0) results = of_rank, weights = values;
      });
      return std::pair(results, weights);
    };
    const auto [one, weights] = run(1, 0);
    CHECK(one[0].targets == 13);
    double sum = 0;  // of the losses of step 1, token by token
    run_thread_ranks(1, [&](World& world) {
      Rank<float> rank(world, run_config({1, 1}, 0, 4));
      for (std::int64_t i = 0; i < 4; ++i) {
        const DeviceBatch batch = rank.engine.runner().put({.batch = masked(i, 1)});
        rank.engine.runner().forward(batch);
        std::vector<float> losses;
        rank.engine.runner().read_losses(batch, losses);
        for (const float loss : losses) sum += static_cast<double>(loss);
      }
    });
    CHECK(one[0].loss == doctest::Approx(sum / 13).epsilon(1e-6));
    if (tiny_shapes()) return;
    CHECK(one[1].targets == 0);
    CHECK(std::isnan(one[1].loss));
    CHECK(one[1].optimizer.updates == 1);
    CHECK(one[2].optimizer.updates == 2);
    for (const auto& [ranks, zero] : {std::pair(2, 1), std::pair(4, 3)}) {
      CAPTURE(ranks);
      const auto [several, other_weights] = run(ranks, zero);
      for (const std::size_t i : {0, 2}) {
        CHECK(several[i].targets == one[i].targets);
        CHECK(several[i].loss == doctest::Approx(one[i].loss).epsilon(1e-6));
      }
      CHECK(std::isnan(several[1].loss));
      CHECK(relative_l2(other_weights, weights) <= 2e-6);
    }
  }

  TEST_CASE("copies that differ end the run with the ranks and the tensor") {
    if (tiny_shapes()) return;
    struct Fault {
      int ranks, zero, shard_ranks, rank;
      const char* text;
    };
    for (const Fault& fault :
         {Fault{3, 1, 3, 2, "rank 2 differs from the majority, ranks 0, 1, in the weights of wpe"},
          Fault{4, 3, 2, 3, "rank 1 and rank 3 differ in the weights of wpe"}}) {
      CAPTURE(fault.text);
      const std::string error = complaint([&] {
        run_thread_ranks(fault.ranks, [&](World& world) {
          Rank<float> rank(world,
                           run_config(make_mesh(fault.ranks, fault.shard_ranks), fault.zero, 1));
          check_replicas(rank.state(), 0, 1.0, rank.exchange, rank.stream());
          const ParameterSpec& wpe = rank.state().table().specs()[1];
          CHECK(wpe.name == "wpe.weight");
          const auto other = random_floats(wpe.size(), 9, 0.1);
          if (world.rank() == fault.rank) rank.state().set_weight(wpe, other.data(), rank.stream());
          check_replicas(rank.state(), 7, 1.0, rank.exchange, rank.stream());
        });
      });
      CHECK(contains(error, std::string("after step 7, ") + fault.text));
    }
    const std::string error = complaint([&] {
      run_thread_ranks(2, [&](World& world) {
        Rank<bf16> rank(world, run_config(make_mesh(2, 2), 2, 1));
        check_replicas(rank.state(), 3, world.rank() == 1 ? 2.0 : 1.0, rank.exchange,
                       rank.stream());
      });
    });
    CHECK(contains(error, "rank 0 and rank 1 differ in the loss"));
  }

  TEST_CASE("each bucket is reduced before the backward pass of the next block") {
    if (tiny_shapes()) return;
    for (const int zero : {0, 1, 2, 3}) {
      CAPTURE(zero);
      run_thread_ranks(2, [&](World& world) {
        Rank<float> rank(world, run_config(make_mesh(2, 2), zero, 1));
        const bool all = zero == 0;
        Ranks& ranks = rank.engine.context().ranks;
        CollectiveTrace trace(all ? ranks.all() : ranks.shard(),
                              all ? CommKind::all_reduce : CommKind::reduce_scatter);
        rank.stream().observe(&trace);
        train(rank, {random_batch}, 1);
        rank.stream().observe(nullptr);
        // The embeddings are the last bucket. The others were reduced one by one, each followed by
        // launches of the next block.
        const auto blocks =
            static_cast<std::int64_t>(rank.state().layout().trainable_buckets().size());
        for (std::int64_t reduced = 0; reduced < blocks; ++reduced) CHECK(trace.has(reduced));
      });
    }
  }

  TEST_CASE("stage 3 gathers a block before the pass of the block before it") {
    if (tiny_shapes()) return;
    run_thread_ranks(2, [&](World& world) {
      Rank<float> rank(world, run_config(make_mesh(2, 2), 3, 1));
      CollectiveTrace trace(rank.engine.context().ranks.shard(), CommKind::all_gather);
      rank.stream().observe(&trace);
      ModelRunner<float>& runner = rank.engine.runner();
      runner.forward(runner.put({.batch = random_batch(0, kB)}));
      rank.stream().observe(nullptr);
      // Launches of the embedding come after two gathers, those of block l after l + 2.
      CHECK(trace.counts().front() == 2);
      const auto blocks =
          static_cast<std::int64_t>(rank.state().layout().trainable_buckets().size());
      for (std::int64_t gathers = 2; gathers <= blocks; ++gathers) CHECK(trace.has(gathers));
      CHECK(trace.counts().back() == blocks);
    });
  }

  TEST_CASE("ranks send the bytes of the formulae") {
    if (tiny_shapes()) return;
    for (const int ranks : {2, 3, 4}) {
      for (const int zero : {0, 1, 2, 3}) {
        for (const int group : {ranks, ranks == 4 ? 2 : ranks}) {
          CAPTURE(ranks);
          CAPTURE(zero);
          CAPTURE(group);
          RunConfig config = run_config(make_mesh(ranks, group), zero, 3);
          config.shape.tied_head = ranks != 3;
          const StepTraffic expected =
              step_traffic(config.shape, config.run_shape(), config.mesh(), 3, sizeof(bf16));
          run_thread_ranks(ranks, [&](World& world) {
            Rank<bf16> rank(world, config);
            const std::int64_t before = rank.engine.context().ranks.bytes();
            train(rank, {random_batch}, 2);
            CHECK(rank.engine.context().ranks.bytes() - before == 2 * expected.all());
          });
        }
      }
    }
  }

  TEST_CASE("the hint for a run that does not fit names the stage of ZeRO that does") {
    RunShape shape{.B = 2, .T = 64, .zero_stage = 1};
    const ModelConfig model = config_from_name("d12");
    Context context({}, Ranks(make_mesh(4, 4), 0));
    const auto bytes_at = [&](int zero) {
      RunShape other = shape;
      other.zero_stage = zero;
      return planned_bytes(Dtype::bf16, model, other, context);
    };
    CHECK(bytes_at(3) < bytes_at(2));
    // One sequence per micro-batch, so that no smaller one fits.
    const auto hint = [&](std::int64_t free_bytes) {
      return fit_hint({Dtype::bf16, model, shape, make_mesh(4, 4), free_bytes});
    };
    shape.B = 1;
    CHECK(hint(bytes_at(2)).starts_with("use --zero 2, which fits ("));
    CHECK(hint(bytes_at(3)).starts_with("use --zero 3, which fits ("));
    CHECK(hint(bytes_at(3) - 1).starts_with("use --recompute selective --zero 3, which fits ("));

    Context tensor({}, Ranks(make_mesh(4, 2, 2), 0));
    shape.zero_stage = 3;
    shape.recompute = Recompute::full;
    const auto bytes_with = [&](bool sequence_parallel) {
      RunShape other = shape;
      other.sequence_parallel = sequence_parallel;
      return planned_bytes(Dtype::bf16, model, other, tensor);
    };
    CHECK(bytes_with(true) < bytes_with(false));
    CHECK(fit_hint({Dtype::bf16, model, shape, make_mesh(4, 2, 2), bytes_with(true)})
              .starts_with("use --sequence-parallel, which fits ("));
  }

  TEST_CASE("memory and traffic of real models follow the table of parallel/README.md") {
    struct Model {
      ModelConfig shape;
      std::vector<int> ranks;
    };
    const ModelConfig big{
        .vocabulary = 50257, .context = 1024, .layers = 36, .heads = 32, .channels = 4096};
    for (const Model& model : {Model{config_from_name("d12"), {2, 4, 8, 64}},
                               Model{config_from_name("d48"), {64}}, Model{big, {64}}}) {
      const ParameterTable table = gpt2_parameters(model.shape);
      const auto P = static_cast<double>(table.count());
      for (const int N : model.ranks) {
        for (const int zero : {0, 1, 2, 3}) {
          CAPTURE(table.count());
          CAPTURE(N);
          CAPTURE(zero);
          RunConfig config = run_config(make_mesh(N, N), zero, 1);
          config.precision.dtype = Dtype::bf16;
          config.shape = model.shape;
          const auto plans = planned_memory(config);
          const auto bytes_of = [&](const std::string& name) {
            double bytes = 0;
            for (const MemoryPlan::Segment& segment : plans[0]) {
              if (segment.name == name) bytes = static_cast<double>(segment.bytes);
            }
            return bytes;
          };
          const double n = N;
          const double expected[] = {18, 6 + 12 / n, 2 + 16 / n, 18 / n};
          const double state = bytes_of("weights") + bytes_of("gradients") +
                               bytes_of("master weights") + bytes_of("moments");
          const double padding = 18 * (1024.0 * N * (static_cast<double>(model.shape.layers) + 2) +
                                       static_cast<double>(table.stored_size()) - P);
          CHECK(state >= expected[zero] * P);
          CHECK(state <= expected[zero] * P + padding);
          const double largest = 12 * std::pow(static_cast<double>(model.shape.channels), 2) * 1.01;
          const double embedding =
              static_cast<double>((model.shape.vocabulary + 1100) * model.shape.channels) * 1.03;
          CHECK(bytes_of("gathered weights") <=
                (zero == 3 ? 2 * (embedding + 2 * largest) + 64 * n * 1024 : 0));
          CHECK(bytes_of("gradient buckets") <=
                (zero >= 2 ? 4 * (embedding * (1 + 1 / n) + (2 + 1 / n) * largest) + 64 * n * 1024
                           : 0));
          // To leading order, 2, 2, 2 and 3 elements per parameter.
          const StepTraffic traffic =
              step_traffic(config.shape, config.run_shape(), config.mesh(), 1, sizeof(bf16));
          const double elements = static_cast<double>(traffic.gradients.all()) / 4 +
                                  static_cast<double>(traffic.weights.all()) / 2;
          const double volume = elements / P * n / (n - 1);
          const double expected_volume = zero == 3 ? 3 : 2;
          CHECK(volume >= 0.6 * expected_volume);
          CHECK(volume <= 1.03 * expected_volume);
          for (const auto& plan : plans) {
            for (std::size_t i = 0; i < plan.size(); ++i) CHECK(plan[i].bytes == plans[0][i].bytes);
          }
        }
      }
    }
  }
}
