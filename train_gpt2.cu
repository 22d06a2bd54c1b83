// Trains a GPT-2. `train_gpt2 --help` lists the flags; without arguments it trains a small model on
// a toy language. One translation unit: everything else is in llmc/ and data/.
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "data/toy_run.h"                     // ToySource: the data of a run without --train
#include "llmc/base/notice.h"                 // Notice: messages on stderr
#include "llmc/base/number_text.h"            // number_text: printf of one number
#include "llmc/comm/launcher.h"               // process_info_from_environment: rank and ranks
#include "llmc/config/command_line.h"         // parse_command_line
#include "llmc/config/quantities.h"           // error_text
#include "llmc/config/recorded_settings.h"    // with_recorded: typed flags, then recorded ones
#include "llmc/config/train_table.h"          // the flags
#include "llmc/device/select.h"               // select_device: GPU or host
#include "llmc/model/pretrained.h"            // find_pretrained
#include "llmc/train/run/data_source.h"       // TextSource: the data of all other runs
#include "llmc/train/run/default_batch.h"     // the default batch on a GPU
#include "llmc/train/run/recorded_run.h"      // find_recorded_run: the run that --resume continues
#include "llmc/train/run/resolve.h"           // resolve: defaults filled in, everything checked
#include "llmc/train/run/starting_weights.h"  // starting_weights: of a checkpoint or --init-from
#include "llmc/train/trainer.h"               // Trainer: memory, steps, evaluation, checkpoints

namespace llmc {

// Throws if this is one of several ranks. Each would train the same model on its own, a waste that
// looks like a success.
void require_one_process() {
  const ProcessInfo process = process_info_from_environment();
  if (process.ranks <= 1) return;
  fail("rank " + std::to_string(process.rank) + " of " + std::to_string(process.ranks) + " (" +
           process.ranks_variable + " is set): training on several ranks is not supported yet",
       "start one process: ./train_gpt2, or mpirun -n 1 ./train_gpt2");
}

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
    fail("--init-from " + *typed.model.init_from + ": there is no text to train on or to evaluate",
         hint);
  }
  const auto refuse = [&](const std::string& flag) {
    fail(flag + " has no effect without --train: the toy language has words and sizes of its own",
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
  require_toy_flags(typed);
  return std::make_unique<toy::ToySource>();
}

// Facts that are known before the data are read.
RunFacts facts_of(const Request& request, const DataSource& source,
                  const std::optional<StartingWeights>& weights,
                  const std::optional<RecordedRun>& resumed) {
  RunFacts facts{.default_shape = source.default_shape(),
                 .tokenizer = source.tokenizer().name(),
                 .preset = source.preset()};
  facts.default_shape.vocabulary = source.tokenizer().vocabulary_size();
  if (weights) {
    facts.weights = weights->shape;
    facts.weights_path = weights->path;
    check_vocabulary(weights->name(), weights->shape.vocabulary, source.tokenizer());
  }
  if (resumed) facts.preset = with_recorded(resumed->settings, facts.preset);
  if (kCudaTarget && source.fills_memory()) {
    set_gpu_batch(facts, request, device_properties().total_memory);
  }
  return facts;
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
                std::to_string(run.batch.grad_accum) + " micro-batches)");
  if (run.output.out.empty()) {
    Notice::print("without --out DIR nothing is saved: the model is gone when the run ends");
  }
}

void run(Request request) {
  const std::optional<RecordedRun> resumed = find_recorded_run(request);
  if (resumed) {
    request.model.init_from.reset();  // the checkpoint has weights of its own
  } else if (request.model.init_from) {
    request.model.init_from = find_pretrained("--init-from", *request.model.init_from);
  }
  const Request known = resumed ? with_recorded(request, resumed->settings) : request;
  const std::string error =
      requirement_error(train_settings(), request,
                        [&](const Setting<TrainProgram>& row) { return is_given(row, known); });
  if (!error.empty()) fail(error);
  const std::optional<StartingWeights> weights = starting_weights(request, resumed);
  const std::unique_ptr<DataSource> source = choose_source(request, known, weights);
  RunFacts facts = facts_of(request, *source, weights, resumed);
  RunData data = source->load(resolve_inputs(request, facts), requests_training(request, facts));
  if (data.train) facts.windows = data.train->windows();
  const RunConfig config = resolve(request, facts);
  describe(config, facts.windows);
  dispatch_dtype(config.precision.dtype, [&]<class T>() {
    Trainer<T> trainer(config, std::move(data), resumed);
    config.training() ? trainer.train() : trainer.evaluate_only();
  });
}

}  // namespace llmc

int main(int argc, char** argv) {
  using namespace llmc;
  Request request;
  if (const auto exit_code = parse_command_line<TrainProgram>(argc, argv, request)) {
    return *exit_code;
  }
  try {
    Notice::set_quiet(request.output.quiet.value_or(false));
    require_one_process();
    select_device(choice_name(request.device.choice.value_or(DeviceChoice::automatic)), argv);
    run(std::move(request));
    return kExitOk;
  } catch (const std::exception& error) {
    Notice::warn("train_gpt2: " + error_text(error, train_settings()));
    return kExitFailed;
  }
}
