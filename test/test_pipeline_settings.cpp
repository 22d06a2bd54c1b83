// The flags of pipeline parallelism: what they refuse, what follows from them, and what a resumed
// run has.
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/config/fill_settings.h"
#include "llmc/config/quantities.h"
#include "llmc/config/resolve.h"
#include "llmc/config/train_table.h"
#include "llmc/pipeline/csv.h"
#include "llmc/pipeline/stages.h"
#include "test/support.h"

using namespace llmc;
using llmc_test::complaint;
using llmc_test::contains;
using llmc_test::TemporaryDirectory;

namespace {

using Strings = std::vector<std::string>;

// A request with pipelines of `pp` ranks, each with `chunks` stages, and `micro_batches` per step.
Request pipelines(std::int64_t pp, std::int64_t chunks = 1, std::int64_t micro_batches = 4) {
  Request request;
  request.ranks.pp = pp;
  request.ranks.pp_chunks = chunks;
  request.batch.grad_accum = micro_batches;
  return request;
}

// The same for a run that plans meshes only.
Request printed(Request request) {
  request.batch.grad_accum.reset();
  request.ranks.print_mesh = true;
  return request;
}

// The text of the error, with flags in place of quantities; empty if there is none.
// Reading the data must find the same error as the run.
std::string error_of(const Request& request, const RunFacts& facts) {
  std::string text;
  try {
    resolve(request, facts);
  } catch (const Error& error) {
    text = error_text(error, train_settings());
  }
  std::string text_of_inputs;
  try {
    resolve_inputs(request, facts);
  } catch (const Error& error) {
    text_of_inputs = error_text(error, train_settings());
  }
  CHECK(text == text_of_inputs);
  return text;
}

std::string error_of(const Request& request, std::int64_t ranks) {
  return error_of(request, RunFacts{.ranks = ranks});
}

void check_error(const std::string& error, const std::string& problem, const std::string& hint) {
  CHECK_MESSAGE(contains(error, problem), error);
  CHECK_MESSAGE(contains(error, "\n  hint: " + hint), error);
}

// The passes of a rank, such as "0F0 0B0 ".
std::string pass_names(const Pipeline& pipeline, int rank) {
  std::string names;
  for (const PipelinePass& pass : pipeline.passes(rank)) names += pass.name() + " ";
  return names;
}

}  // namespace

TEST_SUITE("pipeline settings") {
  TEST_CASE("without --pp, a run has no pipeline") {
    const RunConfig config = resolve(Request{}, RunFacts{.ranks = 4});
    CHECK(config.ranks.pp == 1);
    CHECK(config.ranks.pp_chunks == 1);
    CHECK(config.ranks.pp_layers.empty());
    CHECK(config.ranks.pp_schedule.empty());
    CHECK(config.ranks.dump_schedule.empty());
    CHECK(config.pipeline.single());
    CHECK(config.pipeline.schedule.empty());
    CHECK(config.run_shape().pipeline.single());
    CHECK(config.mesh().pipeline_ranks == 1);
    CHECK(config.data_ranks() == 4);
  }

  TEST_CASE("--pp gives the run's shape a pipeline of its layers and micro-batches") {
    const RunConfig config = resolve(pipelines(2, 2), RunFacts{.ranks = 4});
    CHECK(config.pipeline_shape().ranks == 2);
    CHECK(config.pipeline_shape().micro_batches == 4);
    CHECK(config.pipeline_shape().chunks == 2);
    const Pipeline pipeline = config.run_shape().pipeline;
    CHECK(pipeline.shape.stages() == 4);
    CHECK(pipeline.bounds == std::vector<std::int64_t>{0, 3, 6, 9, 12});
    CHECK(pipeline.schedule == pipeline_schedule({2, 4, 2}));
    CHECK(pass_names(resolve(pipelines(2, 1, 2), RunFacts{.ranks = 2}).pipeline, 0) ==
          "0F0 0F1 0B0 0B1 ");
  }

  TEST_CASE("the ranks of a pipeline count once in a step") {
    Request request = pipelines(2);
    request.batch.grad_accum.reset();
    request.ranks.tp = 2;
    RunFacts facts{.ranks = 8};
    const RunConfig config = resolve(request, facts);
    CHECK(config.data_ranks() == 2);
    CHECK(config.mesh().pipeline_ranks == 2);
    CHECK(config.mesh().tensor_ranks == 2);
    CHECK(config.mesh().shard_ranks == 2);
    CHECK(config.batch.grad_accum == 2);  // one micro-batch for each pipeline rank
    CHECK(config.global_batch() == 8 * 2 * 2);
    CHECK(config.tokens_per_step() == 8 * 1024 * 2 * 2);
    request.batch.total_batch_tokens = 8 * 1024 * 2 * 6;
    CHECK(resolve(request, facts).batch.grad_accum == 6);
    CHECK(resolve(request, facts).pipeline.shape.micro_batches == 6);
    request.batch.total_batch_tokens = 8 * 1024 * 3;
    check_error(error_of(request, facts),
                "--batch-size x --seq-len x data-parallel ranks = 8 x 1024 x 2 = 16384",
                "use a multiple, such as 16384");
    request.ranks.tp = 1;
    check_error(error_of(request, facts),
                "--batch-size x --seq-len x data-parallel ranks = 8 x 1024 x 4", "use a multiple");
    request.batch.total_batch_tokens.reset();
    request.ranks.tp = 2;
    facts.default_step_tokens = 8 * 1024 * 2 * 5;
    CHECK(resolve(request, facts).batch.grad_accum == 6);
    facts.windows = 192;
    request.schedule.epochs = 1;
    CHECK(resolve(request, facts).schedule.steps == 2);
  }

  TEST_CASE("--pp divides the ranks that --tp leaves, and has a layer per rank") {
    check_error(error_of(pipelines(4), 6), "--pp 4 does not divide the 6 ranks",
                "use one of 1, 2, 3, 6");
    check_error(error_of(pipelines(2), 1), "--pp 2 does not divide the 1 rank",
                "use 1; scripts/run.sh -np N ./train_gpt2 ... starts N ranks");
    Request tensor = pipelines(4);
    tensor.ranks.tp = 4;
    check_error(error_of(tensor, 8), "--pp 4 does not divide the 2 tensor groups: 8 ranks / --tp 4",
                "use one of 1, 2, or a number of ranks that is a multiple of --tp x --pp = 4 x 4");
    CHECK(error_of(tensor, 16) == "");
    check_error(error_of(tensor, 6), "--tp 4 does not divide the 6 ranks", "use one of 1, 2, 3, 6");
    check_error(error_of(pipelines(16), 16), "--pp 16 is more than the 12 layers of the model",
                "use one of 1, 2, 4, 8; each pipeline rank has at least one layer");
    CHECK(error_of(pipelines(12), 12) == "");
    Request groups = pipelines(2);
    groups.ranks.shard_group = 4;
    check_error(error_of(groups, 4),
                "--shard-group 4 does not divide the 2 data-parallel ranks: 4 ranks / --pp 2",
                "use one of 1, 2");
    groups.ranks.tp = 2;
    check_error(error_of(groups, 8), ": 8 ranks / (--tp 2 x --pp 2)", "use one of 1, 2");
    CHECK(error_of(groups, 16) == "");
    CHECK_THROWS_AS(resolve(pipelines(4), RunFacts{.ranks = 6}), UsageError);
  }

  TEST_CASE("--print-mesh knows no layers and no micro-batches") {
    const auto mesh = [](const Request& request, std::int64_t ranks) {
      return fill_settings(train_settings(), printed(request), RunFacts{.ranks = ranks}).mesh();
    };
    Request request = pipelines(2, 8);
    request.ranks.tp = 2;
    CHECK(mesh(request, 8).pipeline_group(1) == std::vector<int>{1, 5});
    CHECK(mesh(pipelines(64), 64).pipeline_ranks == 64);
    CHECK(contains(complaint([&] { mesh(request, 6); }), "--pp 2 does not divide the 3 tensor"));
    CHECK(contains(complaint([&] { mesh(pipelines(3), 4); }), "--pp 3 does not divide the 4"));
    request.ranks.pp_layers = Strings{"1", "2"};
    CHECK(contains(complaint([&] { mesh(request, 8); }), "each of the 16 stages"));
    request.ranks.pp_chunks = 1;
    CHECK(mesh(request, 8).data_ranks() == 2);
    RunFacts resumed{.ranks = 4};
    resumed.preset.ranks = pipelines(4, 8).ranks;
    resumed.preset.ranks.tp = 2;
    const RunConfig config = fill_settings(train_settings(), printed({}), resumed, resumed.preset);
    CHECK(config.mesh().tensor_ranks == 2);
    CHECK(config.mesh().pipeline_ranks == 2);
  }

  TEST_CASE("--pp-chunks needs layers, and micro-batches that are a multiple of --pp") {
    check_error(error_of(pipelines(4, 4), 4),
                "--pp 4 x --pp-chunks 4 are more stages than the 12 layers of the model",
                "use --pp-chunks of at most 3; each stage has at least one layer");
    CHECK(error_of(pipelines(4, 3), 4) == "");
    check_error(
        error_of(pipelines(4, 2, 6), 4),
        "--pp-chunks 2 needs micro-batches that are a multiple of --pp 4; --grad-accum is 6",
        "use a multiple, such as --grad-accum 8, or --pp-chunks 1");
    CHECK(error_of(pipelines(4, 1, 6), 4) == "");
    Request tokens = pipelines(4, 2);
    tokens.batch.grad_accum.reset();
    tokens.batch.total_batch_tokens = 8 * 1024 * 6;
    check_error(error_of(tokens, 4), "--grad-accum is 6",
                "use a multiple, such as --total-batch-tokens 65536");
    check_error(error_of(pipelines(2, 1, std::int64_t{1} << 22), 2),
                "--grad-accum 4194304 x 2 stages are too many passes for a schedule",
                "use at most --grad-accum 2097152");
  }

  TEST_CASE("--pp-layers sets the layers of each stage") {
    const auto with_layers = [](Request request, const Strings& layers) {
      request.ranks.pp_layers = layers;
      return request;
    };
    const RunConfig config =
        resolve(with_layers(pipelines(2, 2), {"2", "4", "5", "1"}), RunFacts{.ranks = 2});
    CHECK(config.stage_layers() == std::vector<std::int64_t>{2, 4, 5, 1});
    CHECK(config.pipeline.bounds == std::vector<std::int64_t>{0, 2, 6, 11, 12});
    const auto error = [&](const Request& request, const Strings& layers) {
      return error_of(with_layers(request, layers), 2);
    };
    check_error(error(pipelines(2), {"12"}),
                "--pp-layers 12 does not have one number for each of the 2 stages",
                "give --pp = 2 numbers in the order of the model, or leave it out");
    check_error(error(pipelines(2, 2), {"6", "6"}), "one number for each of the 4 stages",
                "give --pp x --pp-chunks = 4 numbers");
    const std::string sum = " has another sum than the 12 layers of the model";
    check_error(error(pipelines(2), {"6", "7"}), "--pp-layers 6,7" + sum, "give numbers with this");
    check_error(error(pipelines(2), {"6", "5"}), "--pp-layers 6,5" + sum, "give numbers with this");
    check_error(error(pipelines(2), {"13", "1"}), "--pp-layers 13,1" + sum, "give numbers with");
    const std::string most = "9223372036854775807";  // the sum is 12 modulo 2^64
    check_error(error_of(with_layers(pipelines(3), {most, most, "14"}), 3), sum, "give numbers");
    check_error(error(pipelines(2), {"a", "12"}), "--pp-layers: 'a' is not a whole number from 1",
                "give the number of layers of each stage, separated by commas, such as 3,4,3");
    check_error(error(pipelines(2), {"0", "12"}), "'0' is not a whole number from 1 up",
                "give the");
    const Setting<TrainProgram>& row = *find_setting(train_settings(), "--pp-layers");
    CHECK(text_error(row, "3") == "");
    CHECK(text_error(row, "0") == "'0' is not a whole number from 1 up");
    CHECK(text_error(row, "3;4") == "'3;4' is not a whole number from 1 up");
  }

  TEST_CASE("flags of pipelines need --pp of at least 2") {
    Request request;
    const auto check = [&](const std::string& flag) {
      CAPTURE(flag);
      check_error(error_of(request, 4), flag + " has no effect without --pp of at least 2: it ",
                  "give --pp N, at least 2, or leave it out");
      CHECK_THROWS_AS(resolve(request, RunFacts{.ranks = 4}), UsageError);
      request.ranks.pp = 1;
      check_error(error_of(request, 4), flag + " has no effect without --pp", "give --pp N");
      request = {};
    };
    request.ranks.pp_chunks = 2;
    check("--pp-chunks");
    request.ranks.pp_layers = Strings{"12"};
    check("--pp-layers");
    request.ranks.pp_schedule = "no_such_file.csv";
    check("--pp-schedule");
    request.ranks.dump_schedule = "a.csv";
    check("--dump-schedule");
    CHECK(error_of(pipelines(1), 4) == "");
  }

  TEST_CASE("--pp-schedule reads a schedule, and errors name the file") {
    const TemporaryDirectory folder;
    const std::string file = (folder.path() / "passes.csv").string();
    Request request = pipelines(2, 1, 2);
    request.ranks.pp_schedule = file;
    const auto error_with = [&](const std::string& text) {
      write_file(file, text);
      const std::string error = error_of(request, 2);
      CHECK(!contains(error, "pipeline schedule: "));
      if (!error.empty()) CHECK_MESSAGE(error.starts_with("--pp-schedule " + file + ": "), error);
      return error;
    };
    CHECK(error_with("0F0,0F1,,,0B0,0B1\n,1F0,1F1,1B0,1B1\n") == "");
    CHECK(pass_names(resolve(request, RunFacts{.ranks = 2}).pipeline, 1) == "1F0 1F1 1B0 1B1 ");
    const std::string remedy = "start from a schedule that --dump-schedule FILE.csv writes";
    check_error(error_with("0F0,0F1,0X0\n"), ": rank 0, cell 3: '0X0': action 'X' is not supported",
                "PyTorch writes schedules without other actions");
    check_error(error_with("0F0,zero\n"), ": rank 0, cell 2: 'zero' is no pass", remedy);
    check_error(error_with(""), ": 0 rows; allowed: 2, one per rank", remedy);
    check_error(error_with("0F0,0F1,0B0\n1F0,1F1,1B0,1B1\n"), ": rank 0: 0B1 is missing", remedy);
    check_error(error_with("0B0,0F0,0F1,0B1\n1F0,1F1,1B0,1B1\n"),
                ": rank 0, cell 0B0: a backward pass before its forward pass", remedy);
    check_error(error_with("0F0,0F1,0B0,0B1\n1F0,1F1,1B1,1B0\n"),
                ": rank 0, cell 0B0: rank 1 sends the input of 0B1 before",
                "neighbours compute the passes of a direction in the same order");
    check_error(error_with("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n"),
                ": deadlock: rank 0, cell 0B0 waits for 1B0; rank 1, cell 1F1 waits for 0F1",
                "a pass must come after those that it waits for");
    request.ranks.pp_schedule = file + ".gone";
    check_error(error_of(request, 2), "--pp-schedule " + file + ".gone: ", "");
  }

  TEST_CASE("a schedule of the user may have any micro-batches, and a dumped one may be read") {
    const TemporaryDirectory folder;
    const std::string file = (folder.path() / "passes.csv").string();
    Request request = pipelines(2, 2, 3);
    request.ranks.pp_schedule = file;
    std::string text;
    for (const int rank : {0, 1}) {  // GPipe
      for (const auto& [kind, stages] : {std::pair("F", std::vector{rank, rank + 2}),
                                         std::pair("B", std::vector{rank + 2, rank})}) {
        for (const int stage : stages) {
          for (int m = 0; m < 3; ++m)
            text += std::to_string(stage) + kind + std::to_string(m) + ",";
        }
      }
      text += "\n";
    }
    write_file(file, text);
    CHECK(error_of(request, 2) == "");
    CHECK(resolve(request, RunFacts{.ranks = 2}).pipeline.slots(0) == 6);
    request.batch.grad_accum = 4;
    const PipelineShape shape{2, 4, 2};
    write_file(file, pipeline_csv(pipeline_schedule(shape), shape));
    CHECK(resolve(request, RunFacts{.ranks = 2}).pipeline.schedule == pipeline_schedule(shape));
  }

  TEST_CASE("--dump-schedule writes .csv, .html and .json") {
    const Setting<TrainProgram>& row = *find_setting(train_settings(), "--dump-schedule");
    CHECK(text_error(row, "a.csv") == "");
    CHECK(text_error(row, "a.b/c.html") == "");
    CHECK(text_error(row, "a.csv.json") == "");
    for (const std::string name : {"a.svg", "csv", "a.CSV", "a.csv/b", "a.jsonl"}) {
      CHECK(text_error(row, name) == "'" + name +
                                         "' does not end in .csv, .html or .json, the kinds of "
                                         "files that it writes");
    }
  }

  TEST_CASE("the quantities of a pipeline have flags") {
    CHECK(flag_of_quantity(train_settings(), "pipeline ranks") == "--pp");
    CHECK(flag_of_quantity(train_settings(), "pipeline chunks") == "--pp-chunks");
    CHECK(flag_of_quantity(train_settings(), "layers per stage") == "--pp-layers");
    try {
      even_stages(3, 4);
    } catch (const Error& error) {
      CHECK(contains(error_text(error, train_settings()), "use fewer --pp or fewer --pp-chunks"));
    }
  }

  TEST_CASE("a resumed run gets pipelines that fit its ranks") {
    RunFacts facts;
    facts.preset.ranks.tp = 2;
    facts.preset.ranks.pp = 4;
    const auto mesh = [&](std::int64_t ranks, std::optional<std::int64_t> tp = {},
                          std::optional<std::int64_t> pp = {}) {
      facts.ranks = ranks;
      Request request;
      request.ranks.tp = tp;
      request.ranks.pp = pp;
      const RunConfig config = resolve(request, facts);
      CHECK(config.pipeline.shape.ranks == config.ranks.pp);
      return std::pair(config.ranks.tp, config.ranks.pp);
    };
    CHECK(mesh(8) == std::pair<std::int64_t, std::int64_t>(2, 4));
    CHECK(mesh(16) == std::pair<std::int64_t, std::int64_t>(2, 4));
    CHECK(mesh(4) == std::pair<std::int64_t, std::int64_t>(2, 2));
    CHECK(mesh(12) == std::pair<std::int64_t, std::int64_t>(2, 2));
    CHECK(mesh(3) == std::pair<std::int64_t, std::int64_t>(1, 1));
    CHECK(mesh(1) == std::pair<std::int64_t, std::int64_t>(1, 1));
    CHECK(mesh(8, 4) == std::pair<std::int64_t, std::int64_t>(4, 2));
    CHECK(mesh(8, 1) == std::pair<std::int64_t, std::int64_t>(1, 4));
    CHECK(mesh(8, {}, 8) == std::pair<std::int64_t, std::int64_t>(1, 8));
    CHECK(mesh(8, {}, 2) == std::pair<std::int64_t, std::int64_t>(2, 2));
    CHECK(contains(complaint([&] { mesh(8, {}, 3); }), "--pp 3 does not divide the 4 tensor"));
    CHECK(contains(complaint([&] { mesh(8, 2, 8); }), "--pp 8 does not divide the 4 tensor"));
    facts.preset.ranks = {};
    CHECK(mesh(8) == std::pair<std::int64_t, std::int64_t>(1, 1));
  }
}
