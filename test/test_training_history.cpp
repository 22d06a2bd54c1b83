// The history of a run: stretches in the manifest and in the model card, and what older checkpoints
// without one become.
#include <filesystem>
#include <string>

#include "llmc/io/checkpoint/manifest.h"
#include "llmc/io/checkpoint/model_card.h"
#include "llmc/train/checkpoint/resume_checks.h"
#include "llmc/train/run/recorded_run.h"
#include "test/checkpoint_samples.h"
#include "test/support.h"

using namespace llmc;
using llmc_test::complaint;
using llmc_test::contains;
using llmc_test::TemporaryDirectory;

namespace {

TrainingHistory two_stretches() {
  TrainingHistory history = {{.train = "a.txt"}};
  history[0].add_step(100, 0.5);
  history[0].add_step(100, 0.25);
  history.push_back(
      {.first_step = 3, .last_step = 2, .train = "b|c.txt", .changes = {"lr", "text"}});
  history[1].add_step(40, 0.125);
  return history;
}

}  // namespace

TEST_SUITE("training_history") {
  TEST_CASE("steps extend the last stretch") {
    const TrainingHistory history = two_stretches();
    CHECK(history[0].first_step == 1);
    CHECK(history[0].last_step == 2);
    CHECK(history[0].tokens == 200);
    CHECK(history[0].first_lr == 0.5);
    CHECK(history[0].last_lr == 0.25);
    CHECK(history[0].max_lr == 0.5);
    CHECK(history[1].last_step == 3);
  }

  TEST_CASE("the manifest keeps the history, and a damaged one is an error") {
    const Manifest manifest{.step = 3, .state = {}, .history = two_stretches(), .files = {}};
    const std::string text = manifest_text(manifest);
    const Manifest read = parse_manifest(text, "m");
    CHECK(manifest_text(read) == text);
    CHECK(read.history.size() == 2);
    CHECK(read.history[1].train == "b|c.txt");
    CHECK(read.history[1].changes == std::vector<std::string>{"lr", "text"});
    CHECK(!contains(manifest_text({}), "history"));
    CHECK(contains(complaint([] { history_from_json(parse_json("[{}]", "JSON"), "m"); }),
                   "m: a stretch of the history has no \"first_step\""));
    CHECK(contains(complaint([] { history_from_json(parse_json("[3]", "JSON"), "m"); }), "m: "));
  }

  TEST_CASE("the model card lists the tokens of each text") {
    ModelCard card;
    card.train = "b|c.txt";
    card.history = two_stretches();
    std::string text = model_card_text(card);
    CHECK(contains(text, "| training text | `a.txt`: 200 tokens<br>`b?c.txt`: 40 tokens |"));
    CHECK(contains(text, "| 1 to 2 | `a.txt` | 200 | 0.5 to 0.25, at most 0.5 |  |"));
    CHECK(contains(text,
                   "| 3 to 3 | `b?c.txt` | 40 | 0.125 to 0.125, at most 0.125 | `lr`<br>`text` |"));
    card.history.pop_back();
    text = model_card_text(card);
    CHECK(contains(text, "| training text | `b?c.txt` |"));
    CHECK(!contains(text, "History"));
  }

  TEST_CASE("a change begins a new stretch; older checkpoints have one for all their steps") {
    RunPosition current;
    current.T = 8;
    current.train = "b.txt";
    current.flags = {{"--lr", 0.5}};
    RunPosition position;
    position.step = 10;
    position.tokens = 800;
    position.T = 8;
    position.train = "a.txt";
    position.flags = {{"--lr", 0.25}};
    adapt_position(position, current);
    REQUIRE(position.history.size() == 2);
    CHECK(position.history[0].last_step == 10);
    CHECK(position.history[0].tokens == 800);
    CHECK(position.history[0].train == "a.txt");
    CHECK(position.history[1].first_step == 11);
    CHECK(position.history[1].empty());
    CHECK(position.history[1].changes.size() == 2);
    adapt_position(position, current);  // nothing changes
    CHECK(position.history.size() == 2);
  }

  TEST_CASE("data that changed since the checkpoint are named; older checkpoints have no hashes") {
    RunPosition old;
    old.T = 8;
    old.train = "a.txt,b.txt";
    old.train_tokens = 100;
    old.flags = {{"--val", "v.txt"}, {"--text-field", "text"}};
    old.train_data.hashes = "1a,2b";
    old.validation_data.hashes = "3c";
    old.best = MeasuredLoss{3, 1.5};
    RunPosition current = old;
    current.train_data.names = {"a.txt", "b.txt"};
    current.validation_data.names = {"v.txt"};
    using Notes = std::vector<std::string>;
    const auto notes_after = [&](const auto& change, bool keeps_best = true) {
      RunPosition position = old, next = current;
      change(position, next);
      const Notes notes = adapt_position(position, next);
      CHECK(position.train_data.hashes == next.train_data.hashes);
      CHECK(position.best.has_value() == keeps_best);
      return notes;
    };
    CHECK(notes_after([](auto&, auto&) {}).empty());
    CHECK(notes_after([](auto&, auto& next) { next.train_data.hashes = "1a,2c"; }) ==
          Notes{"b.txt has changed since the checkpoint: its tokens are others, though as many as "
                "before"});
    CHECK(notes_after([](auto&, auto& next) { next.train_data.hashes = "1b,2c"; })[0].starts_with(
        "a.txt, b.txt has changed"));
    CHECK(notes_after([](auto&, auto& next) { next.validation_data.hashes = "3d"; }, false) ==
          Notes{"the validation data (v.txt) have changed since the checkpoint: losses from before "
                "are not comparable"});
    CHECK(notes_after([](auto& position, auto& next) {
            position.train_data.hashes = position.validation_data.hashes = "";
            next.train_data.hashes = "1b,2c";
          }).empty());
    // The setting that changes the tokens is reported alone.
    CHECK(notes_after([](auto&, auto& next) {
            next.flags["--text-field"] = "body";
            next.train_data.hashes = "1b,2c";
          }).size() == 1);
  }

  TEST_CASE("the lowest loss is kept only if the validation windows stay the same") {
    RunPosition current;
    current.T = 8;
    current.train = "a.txt";
    current.flags = {{"--val", ""}, {"--lr", 1.0}, {"--eval-batches", 20}, {"--batch-size", 2}};
    const auto keeps_best = [&](auto change) {
      RunPosition position = current, next = current;
      position.best = MeasuredLoss{3, 1.5};
      change(next);
      adapt_position(position, next);
      return position.best.has_value();
    };
    CHECK(keeps_best([](RunPosition& p) { p.flags["--lr"] = 2.0; }));
    CHECK(!keeps_best([](RunPosition& p) { p.train = "b.txt"; }));
    CHECK(!keeps_best([](RunPosition& p) { p.flags["--val"] = "v.txt"; }));
    CHECK(!keeps_best([](RunPosition& p) { p.flags["--eval-batches"] = 10; }));
    CHECK(!keeps_best([](RunPosition& p) { p.T = 4; }));
    current.flags["--val"] = "v.txt";
    CHECK(keeps_best([](RunPosition& p) { p.train = "b.txt"; }));
  }

  TEST_CASE("a checkpoint of an older program needs --train, and keeps the flags that it has") {
    const TemporaryDirectory folder;
    CheckpointWriter writer(folder.path() / "run", checkpoint_name(4));
    HuggingFaceConfig config;
    config.n_embd = 64;
    config.n_head = 1;
    writer.text_file(kConfigName, huggingface_config_text(config, TensorDtype::f32));
    writer.commit(4, {{"seed", 7},
                      {"dtype", "bf16"},
                      {"seq_len", 32},
                      {"train", "a.txt"},
                      {"--clip", 2.0},
                      {"--batch-size", 3}});
    Exchange one;
    Request typed;
    typed.output.out = (folder.path() / "run").string();
    CHECK(!find_recorded_run(typed, one));
    typed.output.resume = true;
    CHECK(contains(complaint([&] { find_recorded_run(typed, one); }), "give --train"));
    typed.data.train = "somewhere/a.txt";
    const std::optional<RecordedRun> run = find_recorded_run(typed, one);
    REQUIRE(run);
    CHECK(run->step == 4);
    CHECK(run->shape.channels == 64);
    CHECK(run->settings.seed == 7u);
    CHECK(run->settings.precision.dtype == Dtype::bf16);
    CHECK(run->settings.batch.seq_len == 32);
    CHECK(run->settings.batch.batch_size == 3);
    CHECK(run->settings.optimizer.grad_clip == 2.0);
    typed.schedule.steps = 0;
    CHECK(contains(complaint([&] { find_recorded_run(typed, one); }), "--steps 0 with --resume"));
  }
}
