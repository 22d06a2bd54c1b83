// The settings tables: --help prints the defaults that a run gets, and old names still work.
#include <doctest/doctest.h>

#include <iostream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "data/toy_run.h"
#include "llmc/config/card_text.h"
#include "llmc/config/command_line.h"
#include "llmc/config/infer_table.h"
#include "llmc/config/quantities.h"
#include "llmc/config/recorded_settings.h"
#include "llmc/config/resolve.h"
#include "llmc/config/tokenize_table.h"
#include "llmc/config/train_table.h"
#include "test/support.h"

using namespace llmc;
using llmc_test::complaint;
using llmc_test::contains;
using llmc_test::TemporaryDirectory;

namespace {

template <class P>
struct Parsed {
  typename P::Request request;
  std::optional<int> exit_code;
  std::string out, err;
};

// Parses these flags as the program P does; captures the request, the exit code and the output.
template <class P = TrainProgram>
Parsed<P> parse(std::vector<std::string> flags) {
  flags.insert(flags.begin(), P::kName);
  std::vector<char*> argv;
  for (std::string& flag : flags) argv.push_back(flag.data());
  std::ostringstream out, err;
  std::streambuf *old_out = std::cout.rdbuf(out.rdbuf()), *old_err = std::cerr.rdbuf(err.rdbuf());
  Parsed<P> parsed;
  parsed.exit_code =
      parse_command_line<P>(static_cast<int>(argv.size()), argv.data(), parsed.request);
  std::cout.rdbuf(old_out);
  std::cerr.rdbuf(old_err);
  parsed.out = out.str();
  parsed.err = err.str();
  return parsed;
}

// A value that the row accepts and that is not its default.
std::string valid_value(const Setting<TrainProgram>& row) {
  return row.range.max == 1 ? "0.5" : "3";
}

// Checks the properties of every settings table; `config` is the result of an empty request.
template <class P>
void check_table(const typename P::Config& config, const std::string& help) {
  std::set<std::string> names;
  std::string words;  // the help with single spaces
  std::istringstream in(help);
  for (std::string word; in >> word;) words += word + " ";
  for (const Setting<P>& row : P::settings()) {
    CAPTURE(row.flag);
    CHECK(names.insert(row.flag).second);
    if (!row.special.negated.empty()) CHECK(names.insert(row.special.negated).second);
    for (const std::string& old : row.special.old_names) CHECK(names.insert(old).second);
    CHECK(!row.help.empty());
    CHECK(!row.group.empty());
    const bool has_unit = !unit_text(row).empty();
    CHECK(has_unit == (row.field.type != SettingType::boolean));
    CHECK(contains(words, names_text(row) + " " + (has_unit ? unit_text(row) + " " : "")));
    CHECK(contains(words, help_text(row) + " "));
    if (row.fallback.value) {
      CHECK(row.fallback.text.empty());
      CHECK(value_text(row.field.get(config)) == default_text(row));
      CHECK(text_error(row, default_text(row)) == "");
    } else if (!row.fallback.rule) {
      CHECK(row.field.get(config) == row.field.zero());
    }
    for (const std::string& flag : row.required_flags)
      CHECK(find_setting(P::settings(), flag) != nullptr);
    for (const std::string& flag : row.excluded_flags) {
      CHECK(find_setting(P::settings(), flag) != nullptr);
    }
    const bool of_results = row.on_resume != OnResume::free && row.on_resume != OnResume::process;
    if (of_results) CHECK(row.changes_results);
  }
}

}  // namespace

TEST_SUITE("settings") {
  TEST_CASE("--help lists every flag with the default that a run uses") {
    check_table<TrainProgram>(resolve(Request{}, {}), parse({"--help"}).out);
    check_table<InferProgram>(resolve(InferRequest{}), parse<InferProgram>({"--help"}).out);
    check_table<TokenizeProgram>(resolve(TokenizeRequest{}),
                                 parse<TokenizeProgram>({"--help"}).out);
  }

  TEST_CASE("the resolver follows the default rules that --help prints") {
    Request request;
    request.schedule.steps = 240;
    request.dropout.all = 0.25;
    request.dropout.residual = 0.0;
    request.batch.seq_len = 31;
    const RunConfig config = resolve(request, {});
    CHECK(config.model.layers == 12);
    CHECK(config.model.channels == 768);
    CHECK(config.model.context == 1024);
    CHECK(config.shape.vocabulary == 50257);
    CHECK(config.schedule.warmup == 12);
    CHECK(config.validation.every == 24);
    CHECK(config.samples.every == 48);
    CHECK(config.samples.length == 200);
    CHECK(resolve(request, RunFacts{.tokenizer = "words:w.txt"}).samples.length == 48);
    CHECK(config.dropout.embedding == 0.25);
    CHECK(config.dropout.residual == 0.0);
    CHECK(config.evaluation.stride == 16);
    CHECK(config.tokens_per_step() == 8 * 31);
    CHECK(config.batch.total_batch_tokens == 0);  // not given
    CHECK(resolve(Request{}, {}).batch.seq_len == 1024);
    request.batch.seq_len = 1;
    CHECK(resolve(request, {}).samples.every == 0);
  }

  TEST_CASE("a given value precedes implied values, presets and defaults") {
    Request request;
    request.batch.total_batch_tokens = 8 * 1024 * 6;
    request.model.name = "d6";
    RunFacts facts;
    facts.preset = toy::ToySource().preset();
    facts.default_shape = toy::ToySource().default_shape();
    facts.preset.batch.grad_accum = 2;
    request.batch.batch_size = 8;
    const RunConfig config = resolve(request, facts);
    CHECK(config.batch.grad_accum == 6);
    CHECK(config.model.layers == 6);
    CHECK(config.model.context == 1024);
    CHECK(config.schedule.peak == 5e-3);
    CHECK(config.samples.prompt == ".");
    CHECK(resolve(Request{}, facts).model.channels == 64);
    CHECK(resolve(Request{}, facts).batch.batch_size == 16);
    request.schedule.peak = 6e-4;  // equal to the default, but given
    CHECK(resolve(request, facts).schedule.peak == 6e-4);
  }

  TEST_CASE("the ranks of a tensor group count once in a step") {
    Request request;
    RunFacts facts{.ranks = 8};
    CHECK(resolve(request, facts).ranks.tp == 1);
    CHECK(!resolve(request, facts).run_shape().sequence_parallel);
    CHECK(resolve(request, facts).global_batch() == 8 * 8);
    request.ranks.tp = 4;
    request.ranks.sequence_parallel = true;
    const RunConfig config = resolve(request, facts);
    CHECK(config.data_ranks() == 2);
    CHECK(config.global_batch() == 8 * 2);
    CHECK(config.tokens_per_step() == 8 * 1024 * 2);
    CHECK(config.run_shape().sequence_parallel);
    CHECK(config.mesh().tensor_ranks == 4);
    CHECK(config.mesh().shard_ranks == 2);
    CHECK(config.mesh().replicas() == 1);
    request.batch.total_batch_tokens = 8 * 1024 * 2 * 3;
    CHECK(resolve(request, facts).batch.grad_accum == 3);
    request.batch.total_batch_tokens = 8 * 1024 * 3;
    CHECK(contains(complaint([&] { resolve(request, facts); }),
                   "--batch-size x --seq-len x data-parallel ranks = 8 x 1024 x 2 = 16384"));
    request.batch.total_batch_tokens.reset();
    facts.default_step_tokens = 8 * 1024 * 2 * 5;
    CHECK(resolve(request, facts).batch.grad_accum == 5);
    facts.windows = 160;
    request.schedule.epochs = 1;
    CHECK(resolve(request, facts).schedule.steps == 2);
  }

  TEST_CASE("--tp divides the heads and the ranks, and shard groups divide what is left") {
    const auto error = [](std::int64_t tp, std::int64_t ranks, const Request& other = {}) {
      Request request = other;
      request.ranks.tp = tp;
      return complaint([&] { resolve(request, RunFacts{.ranks = ranks}); });
    };
    Request xl;
    xl.model.name = "d48";
    CHECK(contains(error(4, 8, xl), "--tp 4 does not divide the 25 heads"));
    CHECK(contains(error(4, 8, xl), "use one of 1, 5, 25"));
    CHECK(error(5, 10, xl) == "");
    CHECK(contains(error(4, 6), "--tp 4 does not divide the 6 ranks"));
    CHECK(contains(error(4, 6), "use one of 1, 2, 3, 6"));
    CHECK(contains(error(6, 10), "use one of 1, 2"));
    CHECK(!contains(error(6, 10), "5"));
    CHECK(contains(error(2, 1), "--tp 2 does not divide the 1 rank"));
    CHECK(contains(error(2, 1), "use 1; scripts/run.sh -np N ./train_gpt2 ... starts N ranks"));
    Request typed;  // the first error is the one of --tp
    typed.batch.total_batch_tokens = 1;
    CHECK(contains(error(4, 6, typed), "--tp 4 does not divide the 6 ranks"));
    Request groups;
    groups.ranks.shard_group = 4;
    CHECK(error(1, 8, groups) == "");
    CHECK(error(2, 8, groups) == "");
    CHECK(contains(error(4, 8, groups),
                   "--shard-group 4 does not divide the 2 data-parallel ranks: 8 ranks / --tp 4"));
    CHECK(contains(error(4, 8, groups), "use one of 1, 2"));
    CHECK(contains(error(1, 6, groups), "--shard-group 4 does not divide the 6 ranks"));
    Request mesh;  // --print-mesh knows no heads
    mesh.ranks.print_mesh = true;
    CHECK(error(5, 10, mesh) == "");
    CHECK(contains(error(5, 4, mesh), "use one of 1, 2, 4"));
    RunFacts facts{.weights = ModelConfig{.heads = 6, .channels = 384}, .ranks = 8};
    Request request;
    request.ranks.tp = 4;
    CHECK(contains(complaint([&] { resolve(request, facts); }), "does not divide the 6 heads"));
    CHECK_THROWS_AS(resolve(request, facts), UsageError);
  }

  TEST_CASE("--sequence-parallel needs tensor ranks") {
    Request request;
    request.ranks.sequence_parallel = true;
    const RunFacts facts{.ranks = 4};
    const std::string error = complaint([&] { resolve(request, facts); });
    CHECK(contains(error, "--sequence-parallel has no effect without --tp"));
    CHECK(contains(error, "give --tp N, at least 2, or leave it out"));
    CHECK_THROWS_AS(resolve(request, facts), UsageError);
    request.ranks.tp = 2;
    CHECK(resolve(request, facts).ranks.sequence_parallel);
    request.ranks.sequence_parallel = false;
    request.ranks.tp = 1;
    CHECK(!resolve(request, facts).ranks.sequence_parallel);
  }

  TEST_CASE("a resumed run gets tensor ranks and shard groups that divide its ranks") {
    RunFacts facts;
    facts.preset.ranks.tp = 4;
    facts.preset.ranks.sequence_parallel = true;
    facts.preset.ranks.shard_group = 2;
    const auto resumed = [&](std::int64_t ranks, const Request& request = {}) {
      facts.ranks = ranks;
      return resolve(request, facts).ranks;
    };
    CHECK(resumed(8).tp == 4);
    CHECK(resumed(8).sequence_parallel);
    CHECK(resumed(8).shard_group == 2);
    CHECK(resumed(4).tp == 4);
    CHECK(resumed(4).shard_group == 0);
    CHECK(resumed(6).tp == 2);
    CHECK(resumed(6).sequence_parallel);
    CHECK(resumed(6).shard_group == 0);
    CHECK(resumed(3).tp == 1);
    CHECK(!resumed(3).sequence_parallel);
    Request typed;
    typed.ranks.tp = 1;
    CHECK(resumed(8, typed).tp == 1);
    CHECK(!resumed(8, typed).sequence_parallel);
    CHECK(resumed(8, typed).shard_group == 2);
    typed.ranks.tp = 3;
    CHECK(resumed(6, typed).tp == 3);
    CHECK(contains(complaint([&] { resumed(8, typed); }), "--tp 3 does not divide the 8 ranks"));
    typed = {};
    typed.ranks.sequence_parallel = true;
    CHECK(contains(complaint([&] { resumed(3, typed); }), "--sequence-parallel has no effect"));
    facts.preset.ranks = {};
    CHECK(resumed(8).tp == 1);
  }

  TEST_CASE("weights set the model's sizes, and flags must agree with them") {
    Request request;
    request.model.init_from = "model";
    const ModelConfig weights{
        .vocabulary = 7, .context = 32, .layers = 3, .heads = 2, .channels = 16};
    const RunFacts facts{.weights = weights, .weights_path = "model"};
    const RunConfig config = resolve(request, facts);
    CHECK(config.shape.layers == 3);
    CHECK(config.shape.vocabulary == 7);
    CHECK(config.batch.seq_len == 32);
    request.model.heads = 4;
    CHECK(contains(complaint([&] { resolve(request, facts); }),
                   "--heads 4 does not agree with 2 in model"));
  }

  TEST_CASE("old names work on the command line and in files; both names together are an error") {
    const TemporaryDirectory folder;
    int num_old_names = 0;
    for (const Setting<TrainProgram>& row : train_settings()) {
      for (const std::string& old : row.special.old_names) {
        CAPTURE(old);
        ++num_old_names;
        const std::string value = valid_value(row), file = (folder.path() / "a.toml").string();
        std::vector<std::string> required;
        for (const std::string& flag : row.required_flags) required.push_back(flag + "=given");
        const auto parse_with = [&](std::vector<std::string> flags) {
          flags.insert(flags.end(), required.begin(), required.end());
          return parse(flags);
        };
        const auto value_of = [&](const Parsed<TrainProgram>& parsed) {
          CHECK(parsed.err == "");
          CHECK(!parsed.exit_code);
          return value_text(row.field.get_request(parsed.request).value_or(std::string("none")));
        };
        const auto write = [&](const std::string& text) { write_file(file, text); };
        CHECK(value_of(parse_with({old, value})) == value);
        CHECK(value_of(parse_with({row.flag, value})) == value);
        write(old.substr(2) + " = " + value + "\n");
        CHECK(value_of(parse_with({"--config", file})) == value);
        const auto check_both = [&](const Parsed<TrainProgram>& parsed) {
          CHECK(parsed.exit_code == kExitUsage);
          CHECK(contains(parsed.err, row.flag + " and " + old + ", its old name, are both given"));
        };
        check_both(parse_with({old, value, row.flag, value}));
        check_both(parse_with({"--config", file, row.flag, value}));
        write(old.substr(2) + " = " + value + "\n" + row.flag.substr(2) + " = " + value + "\n");
        check_both(parse_with({"--config", file}));
        CHECK(!contains(parse({"--help"}).out, old + " "));
      }
    }
    CHECK(num_old_names == 6);
  }

  TEST_CASE("errors quote wrong values as typed") {
    CHECK(contains(parse({"--clip", "nan"}).err, "--clip: 'nan' is not a finite number from 0 up"));
    CHECK(contains(parse({"--seed", "-1"}).err, "'-1' is not a whole number from 0 up"));
    CHECK(contains(parse({"--dropout", "1"}).err, "'1' is not a number from 0 to 0.999999"));
    CHECK(contains(parse({"--dtype", "fp8"}).err, "'fp8' is not one of fp32, bf16, fp16"));
    CHECK(contains(parse({"--keep", "2"}).err, "--keep-checkpoints needs --out"));
    CHECK(contains(parse({"--steps", "2", "--epochs", "1"}).err, "exclude each other"));
    CHECK(parse({"--prompt", ""}).request.samples.prompt == std::nullopt);
    CHECK(parse({"--seed", "18446744073709551615"}).request.seed == 18446744073709551615u);
  }

  TEST_CASE("checkpoints record every setting of a run, under its current name") {
    const CheckpointState settings = recorded_settings(resolve(Request{}, {}));
    for (const Setting<TrainProgram>& row : train_settings()) {
      CAPTURE(row.flag);
      const bool recorded = is_recorded(row) && !row.special.recorded_if_given;
      if (!recorded || row.special.condition.flag.empty()) {
        CHECK(settings.count(row.flag) == (recorded ? 1 : 0));
      }
    }
    for (const char* flag : {"--out", "--resume", "--stop-after", "--device", "--epochs"}) {
      CHECK(settings.count(flag) == 0);
    }
    CHECK(settings.at("--lr") == Scalar(6e-4));
    CHECK(settings.at("--stochastic-rounding") == Scalar(false));
    CHECK(settings.count("--decay-fraction") == 0);
    CHECK(settings.count("--loss-scale-window") == 0);
    CHECK(current_name("--clip") == "--grad-clip");
    CHECK(current_name("--final-lr") == "--final-lr-fraction");
    CHECK(current_name("--beta1") == "--beta1");
    CHECK(current_name("--of-the-future") == "--of-the-future");
    Request request;
    request.schedule.decay = Decay::wsd;
    request.precision.dtype = Dtype::fp16;
    const CheckpointState other = recorded_settings(resolve(request, {}));
    CHECK(other.at("--decay-fraction") == Scalar(0.2));
    CHECK(other.at("--loss-scale-window") == Scalar(2000));
    CHECK(changed_settings(settings, other) ==
          std::vector<std::string>{"--schedule was \"cosine\", it is \"wsd\" now"});
  }

  TEST_CASE("the model card describes the optimizer") {
    CHECK(optimizer_text(resolve(Request{}, {})) ==
          "AdamW, betas 0.9 and 0.95, eps 1e-08, weight decay 0.1, clipping at 1; learning rate at "
          "most 0.0006, warm-up of 50 steps, cosine to step 1000");
  }

  TEST_CASE("each quantity has one flag") {
    CHECK(flag_of_quantity(train_settings(), "sequence length") == "--seq-len");
    CHECK(flag_of_quantity(train_settings(), "dtype") == "--dtype");
    CHECK(flag_of_quantity(train_settings(), "context") == "--context");
    CHECK(flag_of_quantity(train_settings(), "tokenizer") == "--tokenizer");
    CHECK(flag_of_quantity(train_settings(), "tensor ranks") == "--tp");
    CHECK(!flag_of_quantity(train_settings(), ""));
    CHECK(!flag_of_quantity(train_settings(), "the weather"));
    const Error error("a " + quantity("sequence length") + " of 9, a stray \x01 byte", "", {});
    CHECK(error.what() == std::string("a sequence length of 9, a stray \x01 byte"));
    CHECK(error_text(error, train_settings()) == "a --seq-len of 9, a stray \x01 byte");
    std::set<std::string> quantities;
    for (const auto& row : train_settings()) {
      if (!row.quantity.empty())
        CHECK_MESSAGE(quantities.insert(row.quantity).second, row.quantity);
    }
  }
}
