// Trains a GPT-2. `train_gpt2 --help` lists what it can be told; without arguments it trains a
// small model on a toy language. One translation unit: everything else is in llmc/.
#include <exception>
#include <iostream>
#include <memory>
#include <string>

#include "data/toy_run.h"              // toy::make_data: what a run without --train learns from
#include "llmc/comm/launcher.h"        // launch_from_environment: is this one of several processes?
#include "llmc/config/command_line.h"  // parse_command_line
#include "llmc/config/train_table.h"   // the flags
#include "llmc/device/select.h"        // select_device: GPU or host
#include "llmc/io/tokenizer/tokenizer.h"  // make_tokenizer
#include "llmc/model/pretrained.h"        // read_pretrained_config
#include "llmc/train/run/resolve.h"       // resolve: defaults filled in, everything checked
#include "llmc/train/run/run_data.h"      // load_run_data
#include "llmc/train/trainer.h"           // Trainer: memory, steps, evaluation, checkpoints

namespace llmc {

// Several ranks that each train the same model alone would be a waste that looks like a success.
void require_one_process() {
  const Launch launch = launch_from_environment();
  if (launch.ranks <= 1) return;
  fail("rank " + std::to_string(launch.rank) + " of " + std::to_string(launch.ranks) + " (" +
           launch.launcher + " is set): training on several ranks is not built yet",
       "start one process: ./train_gpt2, or mpirun -n 1 ./train_gpt2");
}

// Sizes for a run that names none: GPT-2 small on a GPU, something a CPU can train on a CPU.
Gpt2Config default_shape() {
  if (kCudaTarget) return {};
  return {.context = 128, .layers = 4, .heads = 4, .channels = 128};
}

// What is known before the data are read. `tokens` is the size of the tokenizer's vocabulary.
RunFacts facts_of(const Request& request, const Gpt2Config& default_shape, std::int64_t tokens) {
  RunFacts facts{.default_shape = default_shape};
  facts.default_shape.vocabulary = tokens;
  if (!request.model.init_from) return facts;
  const std::string& path = *request.model.init_from;
  check_pretrained_path("--init-from", path);
  facts.weights = from_huggingface(read_pretrained_config(path), path);
  return facts;
}

// The configuration, now that the data are known.
RunConfig resolve_with_data(const Request& request, RunFacts& facts, const RunData& data) {
  if (data.train) facts.windows = data.train->windows();
  const RunConfig config = resolve(request, facts);
  if (config.schedule.epochs > 0) {
    std::cerr << "epochs: " << config.schedule.epochs << " x " << *facts.windows << " windows are "
              << config.schedule.steps << " steps\n";
  }
  return config;
}

void describe(const RunConfig& run) {
  const Gpt2Config& shape = run.shape;
  std::cerr << "model: " << shape.layers << " layers, " << shape.heads << " heads, "
            << shape.channels << " channels, context " << shape.context << ", vocabulary "
            << shape.vocabulary << ": " << ParameterTable(shape).count() << " parameters, "
            << dtype_name(run.precision.dtype) << "\n";
  if (!run.training()) return;
  std::cerr << "run: " << run.schedule.steps << " steps of " << run.tokens_per_step() << " tokens ("
            << run.batch.batch_size << " sequences x " << run.batch.seq_len << " tokens x "
            << run.batch.grad_accum << " micro-batches)\n";
}

template <class T>
void run(const RunConfig& config, RunData data) {
  const bool has_validation = data.validation.has_value();
  Trainer<T> trainer(config, std::move(data));
  if (config.training()) return trainer.train();
  if (has_validation) std::printf("val_loss %.6f\n", trainer.validate(0));
  trainer.evaluate_only();
}

void run(const RunConfig& config, RunData data) {
  describe(config);
  check_vocabulary(config.shape, *data.tokenizer, config);
  dispatch_dtype(config.precision.dtype, [&]<class T>() { run<T>(config, std::move(data)); });
}

void run_toy_language(const Request& request) {
  const toy::Language language;
  toy::introduce(language);
  RunFacts facts = facts_of(request, toy::default_shape(), std::ssize(language.words()));
  facts.preset = toy::preset();
  RunData data =
      toy::make_data(language, resolve_inputs(request, facts), asks_for_training(request, facts));
  const RunConfig config = resolve_with_data(request, facts, data);
  run(config, std::move(data));
}

void run_text(const Request& request) {
  const bool training = asks_for_training(request, {});
  if (!request.data.train && training) {
    fail(std::string(request.data.val ? "--val" : "--eval") + " without --train",
         "--train FILE, or --steps 0 to evaluate only");
  }
  const InputConfig named = default_run_config();
  auto tokenizer = make_tokenizer(request.data.tokenizer.value_or(named.data.tokenizer));
  RunFacts facts = facts_of(request, default_shape(), tokenizer->vocabulary_size());
  const InputConfig inputs = resolve_inputs(request, facts);
  if (facts.weights) check_vocabulary(*facts.weights, *tokenizer, inputs);
  RunData data = load_run_data(inputs, training, std::move(tokenizer));
  describe_data(data);
  const RunConfig config = resolve_with_data(request, facts, data);
  run(config, std::move(data));
}

}  // namespace llmc

int main(int argc, char** argv) {
  using namespace llmc;
  Request request;
  if (const auto exit_code = parse_command_line<TrainProgram>(argc, argv, request)) {
    return *exit_code;
  }
  try {
    require_one_process();
    select_device(choice_name(request.device.choice.value_or(DeviceChoice::automatic)), argv);
    if (!request.data.train && !request.data.val && !request.evaluation.tasks) {
      run_toy_language(request);
    } else {
      run_text(request);
    }
    return kExitOk;
  } catch (const std::exception& error) {
    std::cerr << "train_gpt2: " << error.what() << "\n";
    return kExitFailed;
  }
}
