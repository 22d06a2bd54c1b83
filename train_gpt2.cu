// Trains a GPT-2. `train_gpt2 --help` lists the flags; without arguments it trains a small model on
// a toy language. Everything else is in llmc/ and data/; `make single` compiles all as one unit.
#include <algorithm>
#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <streambuf>
#include <string>
#include <utility>

#include "data/toy_run.h"                   // ToySource: the data of a run without --train
#include "llmc/base/notice.h"               // Notice: messages on stderr
#include "llmc/base/number_text.h"          // number_text: printf of one number
#include "llmc/base/signal_request.h"       // SignalRequest: receives stop signals
#include "llmc/base/standard_output.h"      // print_text: results on stdout
#include "llmc/comm/launcher.h"             // process_info_from_environment: rank and ranks
#include "llmc/config/command_line.h"       // read_command_line
#include "llmc/config/compared_settings.h"  // given_values: the flags that ranks compare
#include "llmc/config/rank_rules.h"
#include "llmc/config/recorded_settings.h"    // with_recorded: typed flags, then recorded ones
#include "llmc/config/train_table.h"          // the flags
#include "llmc/device/select.h"               // select_device: GPU or host
#include "llmc/model/pretrained.h"            // find_float_model
#include "llmc/train/run/data_source.h"       // TextSource: the data of all other runs
#include "llmc/train/run/default_batch.h"     // the default batch on a GPU
#include "llmc/train/run/input_agreement.h"   // require_equal_inputs: data, weights, settings
#include "llmc/train/run/plan_text.h"         // plan_text: --dry-run
#include "llmc/train/run/rank_places.h"       // divide_processors, ranks_on_device
#include "llmc/train/run/recorded_run.h"      // find_recorded_run: the run that --resume continues
#include "llmc/train/run/resolve.h"           // resolve: defaults filled in, everything checked
#include "llmc/train/run/run_ranks.h"         // RunRanks: the ranks from start to exit code
#include "llmc/train/run/schedule_dump.h"     // dump_schedule: --dump-schedule
#include "llmc/train/run/starting_weights.h"  // starting_weights: of a checkpoint or --init-from
#include "llmc/train/trainer.h"               // Trainer: memory, steps, evaluation, checkpoints

namespace llmc {

// The default model for a text without --model: GPT-2 small on a GPU; on a CPU, a model small
// enough to train there.
Gpt2Config default_text_shape() {
  if (!kCudaTarget) return {.context = 128, .layers = 4, .heads = 4, .channels = 128};
  return {};
}

// Throws if flags that are typed have no effect on the toy language.
void require_toy_flags(const Request& typed) {
  const std::string hint = "give --train FILE; or, with --steps 0, --val FILE or --eval TASK:FILE";
  if (typed.model.init_from) {
    fail_usage(
        "--init-from " + *typed.model.init_from + ": there is no text to train on or to evaluate",
        hint);
  }
  const auto refuse = [&](const std::string& flag) {
    fail_usage(
        flag + " has no effect without --train: the toy language has words and sizes of its own",
        hint);
  };
  if (typed.data.tokenizer) refuse("--tokenizer " + *typed.data.tokenizer);
  if (typed.model.name) {
    config_from_name(*typed.model.name);  // an unknown name is the first thing to know
    refuse("--model " + *typed.model.name);
  }
  if (typed.data.vocab_size) refuse("--vocab-size");
}

// Texts if the flags name data, else the toy language. --eval alone scores texts by a model that
// learns the toy language; with --steps 0 or weights it evaluates that model. `known`: flags that
// are typed or recorded.
std::unique_ptr<DataSource> choose_source(const Request& typed, const Request& known,
                                          const std::optional<StartingWeights>& weights) {
  const bool has_model = typed.model.init_from || !requests_training(known, {});
  if (known.data.train || known.data.val || (known.evaluation.tasks && has_model)) {
    return std::make_unique<TextSource>(known, typed.data.tokenizer, default_text_shape(), weights);
  }
  const bool has_size = typed.model.name || typed.data.vocab_size || typed.data.tokenizer;
  if (typed.ranks.dry_run.value_or(false) && (has_size || has_model)) {
    return std::make_unique<UnreadText>(known, default_text_shape(), weights);
  }
  require_toy_flags(typed);
  return std::make_unique<toy::ToySource>();
}

// Facts that are known before the data are read.
RunFacts facts_of(const Request& request, const DataSource& source,
                  const std::optional<StartingWeights>& weights,
                  const std::optional<RecordedRun>& resumed, Exchange& exchange) {
  RunFacts facts{.default_shape = source.default_shape(),
                 .tokenizer = source.tokenizer().name(),
                 .ranks = request.ranks.ranks.value_or(exchange.ranks()),
                 .preset = source.preset()};
  facts.default_shape.vocabulary = source.tokenizer().vocabulary_size();
  if (weights) {
    facts.weights = weights->shape;
    facts.weights_path = weights->path;
  }
  if (resumed) facts.preset = with_recorded(resumed->settings, facts.preset);
  if (kCudaTarget && source.fills_memory()) {
    const std::int64_t sharing = std::ssize(ranks_on_device(exchange));
    set_gpu_batch(facts, request, device_properties().total_memory / sharing);
    facts.default_batch_size = std::ranges::min(exchange.all_gather({facts.default_batch_size}));
  }
  return facts;
}

// " x 4 ranks", as a factor of the tokens per step; empty for one rank.
std::string ranks_text(const RunConfig& run) {
  if (run.ranks.ranks == 1) return {};
  const std::int64_t count = run.data_ranks();
  const std::string factor = " x " + std::to_string(count);
  const std::int64_t tp = run.ranks.tp, pp = run.ranks.pp;
  if (tp * pp == 1) return factor + " ranks";
  return factor + (count == 1 ? " data-parallel rank of " : " data-parallel ranks, each of ") +
         (tp > 1 ? std::to_string(tp) + " tensor " : "") + (tp > 1 && pp > 1 ? "x " : "") +
         (pp > 1 ? std::to_string(pp) + " pipeline " : "") + "ranks";
}

// Prints the model and the run. `windows` is the number of training windows.
void describe(const RunConfig& run, std::optional<std::int64_t> windows) {
  const Gpt2Config& shape = run.shape;
  if (run.schedule.epochs > 0) {
    Notice::print(number_text("epochs: %g x ", run.schedule.epochs) + std::to_string(*windows) +
                  " windows are " + std::to_string(run.schedule.steps) + " steps");
  }
  Notice::print("model: " + std::to_string(shape.layers) + " layers, " +
                std::to_string(shape.heads) + " heads, " + std::to_string(shape.channels) +
                " channels, context " + std::to_string(shape.context) + ", vocabulary " +
                std::to_string(shape.vocabulary) + ": " +
                std::to_string(ParameterTable(shape).count()) + " parameters, " +
                dtype_name(run.precision.dtype));
  if (!run.training()) return;
  Notice::print("run: " + std::to_string(run.schedule.steps) + " steps of " +
                std::to_string(run.tokens_per_step()) + " tokens (" +
                std::to_string(run.batch.batch_size) + " sequences x " +
                std::to_string(run.batch.seq_len) + " tokens x " +
                std::to_string(run.batch.grad_accum) + " micro-batches" + ranks_text(run) + ")");
  if (run.output.out.empty()) {
    Notice::print("without --out DIR nothing is saved: the model is gone when the run ends");
  }
}

// The run that --resume continues, which rank 0 looks for.
std::optional<RecordedRun> find_run(const Request& request, Exchange& exchange) {
  std::optional<RecordedRun> run;
  exchange.together([&] {
    if (exchange.first()) run = find_recorded_run(request);
  });
  const std::string path = exchange.broadcast(run ? run->checkpoint.string() : "");
  exchange.together([&] {
    if (!exchange.first() && !path.empty()) run = read_recorded_run(request, path);
  });
  return run;
}

// --dry-run: what the run would need.
void print_plan(const Request& request, RunFacts facts) {
  if (request.schedule.epochs && !facts.windows) facts.windows = 1;  // memory does not depend on it
  const RunConfig config = resolve(request, facts);
  dispatch_dtype(config.precision.dtype, [&]<class T>() { print_text(plan_text<T>(config)); });
  dump_schedule(config);
}

// --print-mesh: the groups that the flags and the resumed run imply.
void print_mesh(const Request& request, const std::optional<RecordedRun>& resumed,
                std::int64_t ranks) {
  Request typed;
  typed.ranks = request.ranks;
  RunFacts facts{.ranks = ranks};
  if (resumed) facts.preset.ranks = resumed->settings.ranks;
  const RunConfig config = fill_settings(train_settings(), typed, facts, facts.preset);
  print_text(mesh_text(config.mesh()));
}

void run(Request request, World& world) {
  Exchange exchange(world);
  divide_processors(exchange);
  const std::optional<RecordedRun> resumed = find_run(request, exchange);
  require_equal_checkpoints(resumed, exchange);
  Request known;
  exchange.together([&] {
    if (resumed) {
      request.model.init_from.reset();  // the checkpoint has weights of its own
    } else if (request.model.init_from) {
      request.model.init_from = find_float_model("--init-from", *request.model.init_from);
    }
    known = resumed ? with_recorded(request, resumed->settings) : request;
    const std::string error =
        requirement_error(train_settings(), request,
                          [&](const Setting<TrainProgram>& row) { return is_given(row, known); });
    if (!error.empty()) fail_usage(error);
  });
  if (request.ranks.print_mesh.value_or(false)) {
    const std::int64_t ranks = request.ranks.ranks.value_or(exchange.ranks());
    return exchange.together([&] { print_mesh(request, resumed, ranks); });
  }
  std::optional<StartingWeights> weights;
  std::unique_ptr<DataSource> source;
  exchange.together([&] {
    weights = starting_weights(request, resumed);
    source = choose_source(request, known, weights);
    if (!weights) return;
    check_vocabulary(weights->name(), weights->shape.vocabulary, source->tokenizer());
  });
  RunFacts facts = facts_of(request, *source, weights, resumed, exchange);
  if (request.ranks.dry_run.value_or(false)) {
    return exchange.together([&] { print_plan(request, facts); });
  }
  RunData data;
  exchange.one_per_machine_first([&] {
    data = source->load(resolve_inputs(request, facts), requests_training(request, facts));
  });
  if (data.train) facts.windows = data.train->windows();
  RunConfig config;
  exchange.together([&] { config = resolve(request, facts); });
  require_equal_inputs(config, data, weights, exchange);
  describe(config, facts.windows);
  if (exchange.first()) dump_schedule(config);
  dispatch_dtype(config.precision.dtype, [&]<class T>() {
    Trainer<T> trainer(config, std::move(data), resumed, world, exchange);
    config.training() ? trainer.train() : trainer.evaluate_only();
  });
}

// Lets only rank 0 print, except errors.
class Speaker {
 public:
  explicit Speaker(const ProcessInfo& process) {
    if (process.rank == 0) return;
    Notice::mute();
    std::cout.rdbuf(&nowhere_);
  }
  ~Speaker() { std::cout.rdbuf(previous_); }
  Speaker(const Speaker&) = delete;
  Speaker& operator=(const Speaker&) = delete;

 private:
  struct Nowhere : std::streambuf {
    int overflow(int c) override { return traits_type::not_eof(c); }
  };

  Nowhere nowhere_;
  std::streambuf* previous_ = std::cout.rdbuf();
};

// Returns the exit code of the program.
int main_of_rank(int argc, char** argv, const ProcessInfo& process) {
  const Speaker speaker(process);
  Request request;
  const std::optional<CommandLineAnswer> answer =
      read_command_line<TrainProgram>(argc, argv, request);
  RunRanks ranks(process);
  if (answer && answer->exit_code == kExitOk) {
    const std::optional<int> exit_code = ranks.start_answer();
    return exit_code ? *exit_code : print_answer<TrainProgram>(*answer);
  }
  std::optional<StartFailure> failure;
  if (answer) {
    failure = {answer->exit_code, answer->text};
  } else {
    try {
      Notice::set_quiet(request.output.quiet.value_or(Notice::quiet()));
      select_device(choice_name(request.device.choice.value_or(DeviceChoice::automatic)), argv);
    } catch (const std::exception& error) {
      failure = start_failure(error);
    }
  }
  if (const auto exit_code = ranks.start(given_values(train_settings(), request), failure)) {
    return *exit_code;
  }
  try {
    World& world = ranks.open(request.ranks.comm.value_or(CommChoice::automatic));
    run(std::move(request), world);
    return kExitOk;
  } catch (const std::exception& error) {
    return ranks.report(error);
  }
}

}  // namespace llmc

int main(int argc, char** argv) {
  using namespace llmc;
  SignalRequest::start_thread("train_gpt2");
  SignalRequest::set_work("before the run began");
  reserve_standard_output();
  ProcessInfo process;
  try {
    process = process_info_from_environment();
  } catch (const std::exception& error) {
    Notice::error(std::string("train_gpt2: ") + error.what());
    return kExitFailed;
  }
  return main_of_rank(argc, argv, process);
}
