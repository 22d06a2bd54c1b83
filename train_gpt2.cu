// Trains a GPT-2. `train_gpt2 --help` lists the flags; without arguments it trains a small model on
// a toy language. Everything else is in llmc/ and data/; `make single` compiles all as one unit.
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/toy_run.h"                        // ToySource: the data of a run without --train
#include "llmc/base/notice.h"                    // Notice: messages on stderr
#include "llmc/base/signal_request.h"            // SignalRequest: receives stop signals
#include "llmc/base/standard_output.h"           // reserve_standard_output
#include "llmc/comm/launcher.h"                  // process_info_from_environment: rank and ranks
#include "llmc/comm/rank_places.h"               // divide_processors
#include "llmc/config/command_line.h"            // read_command_line
#include "llmc/config/compared_settings.h"       // given_values: the flags that ranks compare
#include "llmc/config/resolve.h"                 // resolve: defaults filled in, everything checked
#include "llmc/config/train_table.h"             // the flags
#include "llmc/device/select.h"                  // select_device: GPU or host
#include "llmc/models/pretrained.h"              // check_vocabulary: tokenizer and weights agree
#include "llmc/models/trainable_set.h"           // choose_trainable: frozen parameters
#include "llmc/plan/plan_text.h"                 // print_plan, print_mesh: no run, only its plan
#include "llmc/plan/schedule_dump.h"             // dump_schedule: --dump-schedule
#include "llmc/plan/search/print_layouts.h"      // print_layouts: the fastest layouts of a machine
#include "llmc/train/measure/measure_machine.h"  // measure_machine: a machine file
#include "llmc/train/run/data_source.h"          // choose_source: texts or the toy language
#include "llmc/train/run/describe_ranks.h"       // describe_ranks: machines, mesh
#include "llmc/train/run/describe_run.h"         // describe: the first lines of a run
#include "llmc/train/run/input_agreement.h"      // require_equal_inputs: data, weights, settings
#include "llmc/train/run/mesh_of_run.h"          // with_mesh_of_run: --mesh auto
#include "llmc/train/run/newest_checkpoint.h"    // require_unchanged: files while they are read
#include "llmc/train/run/rank_output.h"          // RankOutput: only rank 0 prints
#include "llmc/train/run/recorded_run.h"      // find_recorded_run: the run that --resume continues
#include "llmc/train/run/run_facts.h"         // facts_of: what is known before the data are read
#include "llmc/train/run/run_ranks.h"         // RunRanks: the ranks from start to exit code
#include "llmc/train/run/starting_weights.h"  // starting_weights: of a checkpoint or --init-from
#include "llmc/train/trainer.h"               // Trainer: memory, steps, evaluation, checkpoints

namespace llmc {

void run(Request request, World& world, Control& control) {
  Exchange exchange(world);
  divide_processors(exchange);
  if (request.ranks.measure_machine) return measure_machine(request, world, exchange);
  const std::optional<RecordedRun> resumed = find_recorded_run(request, exchange);
  require_equal_checkpoints(resumed, exchange);
  std::vector<VerifiedCheckpoint> verified;
  const Request known = known_flags(request, resumed, exchange, verified);
  if (request.ranks.print_mesh.value_or(false)) {
    const Request settings = resumed ? resumed->settings : Request{};
    return exchange.together([&] { print_mesh(request, settings, exchange.ranks()); });
  }
  std::optional<StartingWeights> weights;
  std::unique_ptr<DataSource> source;
  exchange.together([&] {
    weights = starting_weights(request, resumed);
    source = choose_source<toy::ToySource>(request, known, weights);
    if (weights) check_vocabulary(weights->name(), weights->shape.vocabulary, source->tokenizer());
  });
  RunFacts facts = facts_of(request, *source, weights, resumed, exchange);
  request = with_mesh_of_run(request, facts, exchange);
  if (request.ranks.dry_run.value_or(false)) {
    return exchange.together([&] { print_plan(request, facts); });
  }
  if (request.ranks.plan.value_or(false)) {
    return exchange.together([&] { print_layouts(request, facts); });
  }
  RunData data;
  exchange.one_per_machine_first([&] {
    data = source->load(resolve_inputs(request, facts), requests_training(request, facts));
  });
  if (data.train) facts.windows = data.train->count();
  if (!data.label_names.empty()) facts.labels = std::ssize(data.label_names);
  RunConfig config;
  exchange.together([&] {
    config = resolve(request, facts);
    choose_trainable(config, adapter_of(config, resumed));
  });
  require_equal_inputs(config, data, weights, exchange);
  describe(config, facts.windows);
  describe_ranks(config, exchange);
  if (exchange.first()) dump_schedule(config);
  Trainer trainer(config, std::move(data), resumed, world, exchange, control);
  require_unchanged(verified, exchange);
  config.training() ? trainer.train() : trainer.evaluate_only();
}

int main_of_rank(int argc, char** argv, const ProcessInfo& process) {
  const RankOutput output(process);
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
    World& world =
        ranks.open(request.ranks.comm.value_or(CommChoice::automatic), control_settings(request));
    run(std::move(request), world, ranks.control());
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
