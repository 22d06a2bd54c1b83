// The settings that checkpoints record: a resumed run has them again, flags override them, and
// names of files lead to the same files from another directory.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/config/recorded_settings.h"
#include "llmc/config/resolve.h"
#include "test/support.h"

using namespace llmc;

TEST_SUITE("recorded_settings") {
  TEST_CASE("recorded settings are those of the run again") {
    Request request;
    request.data.train = "a.txt:0.5,b.txt:0.5";
    request.evaluation.tasks = {"lambada:l.jsonl", "perplexity:p.txt"};
    request.schedule.decay = Decay::wsd;
    request.schedule.steps = 70;
    request.dropout.all = 0.25;
    request.data.document_mask = true;
    request.seed = 18446744073709551615u;
    const RunConfig config = resolve(request, {});
    const RunFacts resumed{.preset = recorded_request(recorded_settings(config))};
    const RunConfig again = resolve(Request{}, resumed);
    for (const Setting<TrainProgram>& row : train_settings()) {
      CAPTURE(row.flag);
      if (is_recorded(row)) CHECK(row.field.get(again) == row.field.get(config));
    }
    // A flag that is typed overrides, and what follows from it does too; the rest stays.
    Request typed;
    typed.dropout.all = 0.5;
    typed.schedule.steps = 90;
    typed.data.document_mask = false;
    const RunConfig changed = resolve(typed, resumed);
    CHECK(changed.dropout.attention == 0.5);
    CHECK(!changed.data.document_mask);
    CHECK(changed.schedule.warmup == config.schedule.warmup);
    CHECK(changed.validation.every == config.validation.every);
    CHECK(changed_settings(recorded_settings(config), recorded_settings(changed)) ==
          std::vector<std::string>{"--attention-dropout was 0.25, it is 0.5 now",
                                   "--document-mask was true, it is false now",
                                   "--embedding-dropout was 0.25, it is 0.5 now",
                                   "--residual-dropout was 0.25, it is 0.5 now",
                                   "--steps was 70, it is 90 now"});
  }

  TEST_CASE("a recorded pipeline stays as far as it fits the ranks and flags of the resumed run") {
    Request request;
    request.ranks.tp = 2;
    request.ranks.pp = 2;
    request.ranks.pp_chunks = 2;
    request.ranks.pp_layers = std::vector<std::string>{"2", "4", "4", "2"};
    request.ranks.dump_schedule = "passes.html";
    request.batch.grad_accum = 4;
    const RunConfig config = resolve(request, {.ranks = 8});
    const CheckpointState recorded = recorded_settings(config);
    CHECK(recorded.at("--pp") == Scalar(std::int64_t{2}));
    CHECK(recorded.at("--pp-chunks") == Scalar(std::int64_t{2}));
    CHECK(recorded.at("--pp-layers") == Scalar("2,4,4,2"));
    CHECK(recorded.count("--pp-schedule") == 0);
    CHECK(recorded.count("--dump-schedule") == 0);
    const auto resumed = [&](std::int64_t ranks, const Request& typed = {}) {
      const RunFacts facts{.ranks = ranks, .preset = recorded_request(recorded)};
      const RunConfig again = resolve(typed, facts);
      CHECK(again.pipeline.shape.ranks == again.ranks.pp);
      return again;
    };
    const auto text = [](const RunConfig& run) {
      return std::to_string(run.ranks.tp) + " " + std::to_string(run.ranks.pp) + " " +
             std::to_string(run.ranks.pp_chunks) + " " + value_text(run.ranks.pp_layers);
    };
    CHECK(text(resumed(8)) == "2 2 2 2,4,4,2");
    CHECK(resumed(8).pipeline.bounds == config.pipeline.bounds);
    CHECK(text(resumed(4)) == "2 2 2 2,4,4,2");
    CHECK(text(resumed(2)) == "2 1 1 ");
    CHECK(resumed(2).pipeline.single());
    CHECK(text(resumed(1)) == "1 1 1 ");
    CHECK(changed_settings(recorded, recorded_settings(resumed(2))) ==
          std::vector<std::string>{"--pp was 2, it is 1 now", "--pp-chunks was 2, it is 1 now",
                                   "--pp-layers was \"2,4,4,2\", it is \"\" now",
                                   "--ranks was 8, it is 2 now"});
    Request typed;
    typed.batch.grad_accum = 6;
    CHECK(text(resumed(8, typed)) == "2 2 2 2,4,4,2");
    typed.batch.grad_accum = 3;
    CHECK(text(resumed(8, typed)) == "2 2 1 ");
    typed = {};
    typed.ranks.pp = 4;
    CHECK(text(resumed(8, typed)) == "2 4 2 ");
    CHECK(text(resumed(16, typed)) == "2 4 2 ");
    typed.batch.grad_accum = 8;
    typed.ranks.pp = 8;  // 16 stages would be more than 12 layers
    CHECK(text(resumed(16, typed)) == "2 8 1 ");
    CHECK(text(resumed(8, typed)) == "1 8 1 ");
    typed.ranks.pp = 1;
    CHECK(text(resumed(8, typed)) == "2 1 1 ");
    typed = {};
    typed.ranks.pp_layers = std::vector<std::string>{"6", "6"};
    typed.ranks.pp_chunks = 1;
    CHECK(text(resumed(8, typed)) == "2 2 1 6,6");
    typed = {};
    typed.ranks.pp_chunks = 2;
    CHECK(llmc_test::contains(llmc_test::complaint([&] { resumed(2, typed); }),
                              "--pp-chunks has no effect without --pp"));
  }

  TEST_CASE("tokens per step that were typed stay with other ranks and batches, or are refused") {
    Request request;
    request.batch.batch_size = 2;
    request.batch.seq_len = 16;
    request.batch.total_batch_tokens = 2 * 16 * 12;
    const CheckpointState recorded = recorded_settings(resolve(request, {.ranks = 2}));
    CHECK(recorded.at("--total-batch-tokens") == Scalar(std::int64_t{384}));
    CHECK(recorded.at("--grad-accum") == Scalar(std::int64_t{6}));
    const auto facts = [&](std::int64_t ranks) {
      return RunFacts{.ranks = ranks, .preset = recorded_request(recorded)};
    };
    const auto resumed = [&](std::int64_t ranks, const Request& typed = {}) {
      return resolve(typed, facts(ranks));
    };
    for (const std::int64_t ranks : {1, 2, 3, 4, 6, 12}) {
      CAPTURE(ranks);
      CHECK(resumed(ranks).batch.grad_accum == 12 / ranks);
      CHECK(resumed(ranks).tokens_per_step() == 384);
      CHECK(resumed(ranks).batch.total_batch_tokens == 384);
    }
    const auto error = [&](std::int64_t ranks, const Request& typed = {}) {
      CHECK_THROWS_AS(resumed(ranks, typed), UsageError);
      return llmc_test::complaint([&] { resumed(ranks, typed); });
    };
    CHECK(
        error(8) ==
        "the run has --total-batch-tokens 384, which is not a multiple of --batch-size x --seq-len "
        "x ranks = 2 x 16 x 8 = 256\n  hint: use one of 1, 2, 3, 4, 6, 12 ranks, or use one of 1, "
        "3 as --batch-size, or give --grad-accum or --total-batch-tokens for steps of another "
        "size");
    Request tensor;
    tensor.ranks.tp = 2;
    CHECK(resumed(8, tensor).batch.grad_accum == 3);
    CHECK(llmc_test::contains(error(10, tensor), "data-parallel ranks = 2 x 16 x 5 = 160"));
    CHECK(llmc_test::contains(error(10, tensor), "12 data-parallel ranks, or give --grad-accum"));

    // Other micro-batches keep the tokens too; a typed --grad-accum or --total-batch-tokens wins.
    Request typed;
    typed.batch.batch_size = 4;
    CHECK(resumed(2, typed).batch.grad_accum == 3);
    typed.batch.batch_size = 5;
    CHECK(llmc_test::contains(error(2, typed), "use one of 1, 2, 3, 4, 6, 12 as --batch-size"));
    typed = {};
    typed.batch.total_batch_tokens = 2 * 16 * 8;
    CHECK(resumed(8, typed).batch.grad_accum == 1);
    CHECK(changed_settings(recorded, recorded_settings(resumed(8, typed))) ==
          std::vector<std::string>{"--grad-accum was 6, it is 1 now", "--ranks was 2, it is 8 now",
                                   "--total-batch-tokens was 384, it is 256 now"});
    typed = {};
    typed.batch.grad_accum = 5;
    const RunConfig changed = resumed(8, typed);
    CHECK(changed.batch.grad_accum == 5);
    CHECK(recorded_settings(changed).count("--total-batch-tokens") == 0);
    // Without the flag, the micro-batches stay, and the tokens per step follow.
    Request plain = request;
    plain.batch.total_batch_tokens.reset();
    plain.batch.grad_accum = 6;
    const CheckpointState other = recorded_settings(resolve(plain, {.ranks = 2}));
    CHECK(other.count("--total-batch-tokens") == 0);
    CHECK(resolve({}, RunFacts{.ranks = 8, .preset = recorded_request(other)}).tokens_per_step() ==
          2 * 16 * 6 * 8);
  }

  TEST_CASE("a recorded evaluation stride that is longer than a new sequence is halved") {
    Request request;
    request.batch.seq_len = 100;
    request.evaluation.stride = 80;
    const RunFacts resumed{.preset = recorded_request(recorded_settings(resolve(request, {})))};
    Request typed;
    typed.batch.seq_len = 90;
    CHECK(resolve(typed, resumed).evaluation.stride == 80);
    typed.batch.seq_len = 30;
    CHECK(resolve(typed, resumed).evaluation.stride == 15);
  }

  TEST_CASE("names of files lead to the same files from another directory") {
    const llmc_test::TemporaryDirectory folder;
    const std::filesystem::path old_place = folder.path() / "old", here = folder.path() / "here";
    std::filesystem::create_directories(old_place);
    std::filesystem::create_directories(here);
    write_file(here / "both.txt", std::string(40, 'a'));
    const std::filesystem::path start = std::filesystem::current_path();
    std::filesystem::current_path(here);
    const Relocation moved{.directory = old_place.string(), .out = "run", .new_out = "run2"};
    CHECK(relocate_path("a.txt", moved) == (old_place / "a.txt").string());
    CHECK(relocate_path("both.txt", moved) == "both.txt");
    CHECK(relocate_path("/data/a.txt", moved) == "/data/a.txt");
    CHECK(relocate_path("run/log.jsonl", moved) == "run2/log.jsonl");
    CHECK(relocate_sources("x.txt:0.7,both.txt:0.3", moved) ==
          (old_place / "x.txt").string() + ":0.7,both.txt:0.3");
    CHECK(relocate_after_colon("lambada:l.jsonl", moved) ==
          "lambada:" + (old_place / "l.jsonl").string());
    CHECK(relocate_tokenizer("bytes", moved) == "bytes");
    CHECK(relocate_tokenizer("words:w.txt", moved) == "words:" + (old_place / "w.txt").string());
    const Relocation gone{.directory = "/no/such/folder", .out = "run", .new_out = "run"};
    CHECK(relocate_path("a.txt", gone) == "a.txt");
    const Relocation unmoved{.directory = here.string(), .out = "run", .new_out = "run"};
    CHECK(relocate_path("run/log.jsonl", unmoved) == "run/log.jsonl");
    CHECK(relocate_path("a.txt", unmoved) == "a.txt");
    std::filesystem::current_path(start);
  }
}
