// Checkpoints that all ranks write at once, on threads of their own. Ranks are threads.
#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "llmc/io/checkpoint/checkpoint_reader.h"
#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/plan/snapshot_memory.h"
#include "llmc/train/checkpoint/background_save.h"
#include "llmc/train/checkpoint/saved_tensors.h"
#include "test/state_rig.h"

using namespace llmc;
using namespace llmc_test;
namespace fs = std::filesystem;

namespace {

// Any layout of up to 8 ranks that divides 8 heads, 8 layers and 8 samples.
Layout random_layout(std::mt19937& random) {
  const auto power = [&](int most) {
    int value = 1;
    while (value < most && random() % 2 == 0) value *= 2;
    return value;
  };
  Layout layout;
  layout.ranks = 1 << random() % 4;
  layout.tensor_ranks = power(layout.ranks);
  layout.pipeline_ranks = power(layout.ranks / layout.tensor_ranks);
  const int data_ranks = layout.ranks / layout.tensor_ranks / layout.pipeline_ranks;
  layout.shard_ranks = power(data_ranks);
  layout.stage = layout.shard_ranks > 1 ? 1 + static_cast<int>(random() % 3) : 0;
  layout.sequence_parallel = layout.tensor_ranks > 1 && random() % 2 == 0;
  // Interleaved stages need whole rounds of micro-batches.
  const bool can_interleave = layout.pipeline_ranks > 1 && layout.pipeline_ranks < 8 &&
                              8 / data_ranks % layout.pipeline_ranks == 0;
  layout.chunks = can_interleave && random() % 2 == 0 ? 2 : 1;
  return layout;
}

constexpr std::int64_t kSmallShare = 1 << 12;  // so that many ranks write weights

template <class T>
void save_with_all_ranks(Rank<T>& rank, const fs::path& root, const RunPosition& position,
                         CheckpointOptions options = {.writer_share = kSmallShare}) {
  BackgroundSave save(root, to_huggingface(rank.config.shape, {}), position, 1, rank.state(),
                      rank.stream(), std::move(options), rank.exchange);
  save.finish();
}

// The tensors of a checkpoint, whatever files have them.
std::vector<float> tensors_of(const fs::path& checkpoint, const ParameterTable& table) {
  CheckpointReader reader(checkpoint);
  std::vector<float> all;
  for (const ParameterSpec& spec : table.specs()) {
    for (const std::string& name :
         {huggingface_name(spec.name), kFirstMoment + spec.name, kSecondMoment + spec.name}) {
      std::vector<float> values(static_cast<std::size_t>(spec.size()));
      reader.load(name, spec.shape, values.data());
      all.insert(all.end(), values.begin(), values.end());
    }
  }
  return all;
}

// Bytes of the state that a rank keeps, as files have them.
template <class T>
std::int64_t kept_bytes(TrainingState<T>& state) {
  std::int64_t count = 0;
  for (const ParameterSpec& spec : state.table().specs()) {
    count += state.kept_weights(spec).count + 2 * state.kept_moments(spec).count;
  }
  return 4 * count;
}

// Saves under A after a step, by all ranks and by rank 0; loads both under B.
template <class T>
void save_and_load(const Layout& a, const Layout& b) {
  CAPTURE(a.text());
  CAPTURE(b.text());
  const TemporaryDirectory folder;
  const RunPosition position{.step = 1, .samples = 8};
  const fs::path by_all = folder.path() / "all" / checkpoint_name(1);
  const fs::path by_one = folder.path() / "one" / checkpoint_name(1);
  std::vector<float> saved;
  on_ranks<T>(a, kVocabulary, [&](Rank<T>& rank) {
    train(rank, samples_below(kVocabulary), 1);
    RunConfig plan = rank.config;
    plan.output.out = "out";
    plan.output.save = SaveMode::async;
    const StateSnapshot snapshot(rank.state(), {}, {}, folder.path(), rank.stream());
    CHECK(snapshot.bytes() == snapshot.host_bytes());
    CHECK(snapshot.bytes() == snapshot_bytes(plan)[static_cast<std::size_t>(rank.exchange.rank())]);
    save_with_all_ranks(rank, by_all.parent_path(), position);
    save_checkpoint(by_one.parent_path(), to_huggingface(rank.config.shape, {}), position, 1,
                    rank.state(), rank.stream());
    const std::vector<float> kept = kept_values(rank.state(), rank.stream());
    if (rank.exchange.first()) {
      saved = kept;
      CheckpointReader(by_all).verify();
      CHECK(same_bits(tensors_of(by_all, rank.state().table()),
                      tensors_of(by_one, rank.state().table())));
    }
  });
  on_ranks<T>(b, kVocabulary, [&](Rank<T>& rank) {
    for (const fs::path& checkpoint : {by_one, by_all}) {
      rank.state().initialise(6, rank.stream());
      std::int64_t read = 0;
      load_checkpoint(checkpoint, 1, rank.state(), rank.stream(), &read);
      CHECK(read == kept_bytes(rank.state()));
      const std::vector<float> kept = kept_values(rank.state(), rank.stream());
      if (rank.exchange.first()) CHECK(same_bits(kept, saved));
    }
  });
}

}  // namespace

TEST_SUITE("background save") {
  TEST_CASE("each element is written once, by a rank that has it") {
    std::mt19937 random(1);
    for (int i = 0; i < 100; ++i) {
      const Layout layout = random_layout(random);
      CAPTURE(layout.text());
      const RunConfig config = state_config(layout);
      const Mesh mesh = layout.mesh();
      std::map<std::string, std::int64_t> moments, weights;
      for (int rank = 0; rank < mesh.ranks; ++rank) {
        const MeshPlace place{mesh.tensor_rank(rank), mesh.tensor_ranks, mesh.pipeline_rank(rank)};
        const ParameterTable table = gpt2_parameters(config.shape, place, config.run_shape());
        const ShardLayout shards(table, layout.stage, mesh.shard_ranks, mesh.shard_rank(rank));
        const SavePlan plan =
            plan_save(table, shards, mesh, kSmallShare, [](const ParameterSpec&) { return true; });
        for (const SavePlan::Weight& weight : plan.weights) {
          if (weight.writer == rank) weights[weight.spec->name] += weight.spec->size();
        }
        for (const SavePlan::Moment& moment : plan.moments) {
          if (moment.writer != rank) continue;
          CHECK(moment.spec->is_held);
          const std::int64_t size = shards.own_values(*moment.spec).size;
          CHECK(size > 0);
          moments[moment.spec->name] += size;
        }
      }
      const ParameterTable table = gpt2_parameters(config.shape);
      for (const ParameterSpec& spec : table.specs()) {
        CHECK(moments[spec.name] == spec.size());
        CHECK(weights[spec.name] == spec.size());
      }
    }
  }

  TEST_CASE("what all ranks save under any layout, each rank loads under any other, bit by bit") {
    if (tiny_shapes()) return;
    std::mt19937 random(45);
    for (int i = 0; i < 20; ++i) {
      const Layout a = random_layout(random), b = random_layout(random);
      i % 4 == 3 ? save_and_load<bf16>(a, b) : save_and_load<float>(a, b);
    }
  }

  TEST_CASE("weights are one file if they are small, and several with an index otherwise") {
    const TemporaryDirectory folder;
    on_ranks<float>(layout_of(4, 2), kVocabulary, [&](Rank<float>& rank) {
      save_with_all_ranks(rank, folder.path(), {.step = 1}, {});
      save_with_all_ranks(rank, folder.path(), {.step = 2});
    });
    const fs::path one = folder.path() / checkpoint_name(1),
                   four = folder.path() / checkpoint_name(2);
    CHECK(fs::exists(one / "model.safetensors"));
    CHECK(!fs::exists(one / kWeightsIndexName));
    CHECK(fs::exists(four / "model-00004-of-00004.safetensors"));
    CHECK(fs::exists(four / "optimizer-00004-of-00004.safetensors"));
    const HuggingFaceWeights a(one), b(four);
    CHECK(a.names() == b.names());
    const ParameterTable table = gpt2_parameters(state_config(layout_of(4, 2)).shape);
    for (const ParameterSpec& spec : table.specs()) {
      std::vector<float> x(static_cast<std::size_t>(spec.size())), y = x;
      a.load(spec.name, spec.shape, x.data());
      b.load(spec.name, spec.shape, y.data());
      CHECK(same_bits(x, y));
    }
  }

  TEST_CASE("moments on a disk are written from there") {
    if (tiny_shapes()) return;
    const TemporaryDirectory folder;
    const RunPosition position{.step = 1, .samples = 8};
    run_thread_ranks(4, [&](World& world) {
      RunConfig config = state_config(layout_of(4, 2, 1, 2), kVocabulary);
      config.memory.offload = {"optimizer=" + folder.path().string()};
      config.output.out = "out";
      config.output.save = SaveMode::async;
      Rank<bf16> rank(world, config);
      train(rank, samples_below(kVocabulary), 1);
      const fs::path scratch = folder.path() / ("rank" + std::to_string(world.rank()));
      fs::create_directory(scratch);
      const StateSnapshot snapshot(rank.state(), {}, {}, scratch, rank.stream());
      CHECK(snapshot.host_bytes() < snapshot.bytes());
      CHECK(snapshot.host_bytes() ==
            snapshot_bytes(config)[static_cast<std::size_t>(world.rank())]);
      save_with_all_ranks(rank, folder.path() / "all", position);
      save_checkpoint(folder.path() / "one", to_huggingface(config.shape, {}), position, 1,
                      rank.state(), rank.stream());
      if (!rank.exchange.first()) return;
      const ParameterTable& table = rank.state().table();
      CheckpointReader(folder.path() / "all" / checkpoint_name(1)).verify();
      CHECK(same_bits(tensors_of(folder.path() / "all" / checkpoint_name(1), table),
                      tensors_of(folder.path() / "one" / checkpoint_name(1), table)));
    });
  }

  TEST_CASE("training continues while files are written, and does not change them") {
    if (tiny_shapes()) return;
    const TemporaryDirectory folder;
    const Layout layout = with_pipeline(layout_of(8, 2, 2, 2), 2);
    std::vector<double> losses[2];
    for (const bool saves : {false, true}) {
      on_ranks<float>(layout, kVocabulary, [&](Rank<float>& rank) {
        TrainStep step(rank.config, rank.engine, rank.exchange, samples_below(kVocabulary));
        RunPosition position;
        step.read_ahead(position);
        std::optional<BackgroundSave> save;
        std::vector<float> kept;
        for (int i = 0; i < 3; ++i) {
          const double loss = step.run(position).loss;
          if (rank.exchange.first()) losses[saves].push_back(loss);
          if (!saves || i != 0) continue;
          kept = kept_values(rank.state(), rank.stream());
          save.emplace(folder.path(), to_huggingface(rank.config.shape, {}), position, 1,
                       rank.state(), rank.stream(), CheckpointOptions{.writer_share = kSmallShare},
                       rank.exchange);
        }
        if (!saves) return;
        save->finish();
        load_checkpoint(save->path(), 1, rank.state(), rank.stream());
        const std::vector<float> loaded = kept_values(rank.state(), rank.stream());
        if (rank.exchange.first()) CHECK(same_bits(loaded, kept));
      });
    }
    CHECK(losses[0] == losses[1]);
  }

  TEST_CASE("if a rank cannot write, all ranks throw, and nothing is left") {
    if (tiny_shapes()) return;  // the race checker fails to map memory
    const TemporaryDirectory folder, disk;
    for (const bool is_on_disk : {false, true}) {
      run_thread_ranks(4, [&](World& world) {
        RunConfig config = state_config(layout_of(4, 2), kVocabulary);
        if (is_on_disk) config.memory.offload = {"optimizer=" + disk.path().string()};
        Rank<float> rank(world, config);
        if (!is_on_disk) save_with_all_ranks(rank, folder.path(), {.step = 1});
        std::vector<float> wrong(static_cast<std::size_t>(kVocabulary * 64));
        wrong[70] = std::numeric_limits<float>::infinity();
        const ParameterSpec& wte = rank.state().table().find("wte.weight");
        rank.state().set_moments(wte, wrong.data(), nullptr, rank.stream());
        CHECK(complaint([&] { save_with_all_ranks(rank, folder.path(), {.step = 2}); }) ==
              "tensor first_moment.wte.weight: element [1, 6] is inf, not finite");
      });
    }
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      names.push_back(entry.path().filename());
    }
    CHECK(names == std::vector<std::string>{checkpoint_name(1)});
  }
}
