// Trains a GPT-2. `train_gpt2 --help` lists what it can be told; without arguments it trains a
// small model on a toy language. One translation unit: everything else is in llmc/.
#include <exception>
#include <iostream>
#include <memory>
#include <string>

#include "data/toy_run.h"        // toy::make_data: what a run without --train learns from
#include "llmc/comm/launcher.h"  // launch_from_environment: is this one of several processes?
#include "llmc/config/train_command_line.h"  // parse_command_line
#include "llmc/device/select.h"              // select_device: GPU or host
#include "llmc/io/tokenizer/tokenizer.h"     // make_tokenizer
#include "llmc/model/pretrained.h"           // read_pretrained_config
#include "llmc/train/run/run_data.h"         // load_run_data
#include "llmc/train/run/run_plan.h"  // make_run_plan: defaults filled in, everything checked
#include "llmc/train/trainer.h"       // Trainer: memory, steps, evaluation, checkpoints

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
Gpt2Config default_config(std::int64_t vocabulary) {
  Gpt2Config config;
  if (!kCudaTarget) config = {.context = 128, .layers = 4, .heads = 4, .channels = 128};
  config.vocabulary = vocabulary;
  return config;
}

Gpt2Config choose_config(const TrainSettings& settings, std::int64_t vocabulary) {
  if (settings.init_from.empty()) return requested_config(settings, default_config(vocabulary));
  check_pretrained_path("--init-from", settings.init_from);
  const Gpt2Config config =
      from_huggingface(read_pretrained_config(settings.init_from), settings.init_from);
  check_flags_agree(settings, config);
  return config;
}

void describe(const Gpt2Config& config, const RunPlan& plan, const TrainSettings& settings) {
  std::cerr << "model: " << config.layers << " layers, " << config.heads << " heads, "
            << config.channels << " channels, context " << config.context << ", vocabulary "
            << config.vocabulary << ": " << ParameterTable(config).count() << " parameters, "
            << settings.dtype << "\n";
  if (plan.steps == 0) return;
  std::cerr << "run: " << plan.steps << " steps of " << plan.tokens_per_step() << " tokens ("
            << plan.shape.B << " sequences x " << plan.shape.T << " tokens x " << plan.grad_accum
            << " micro-batches)\n";
}

template <class T>
void run(const TrainSettings& settings, const RunPlan& plan, const Gpt2Config& config,
         RunData data) {
  const bool has_validation = data.validation.has_value();
  Trainer<T> trainer(settings, plan, config, std::move(data));
  if (plan.steps > 0) trainer.train();
  if (plan.steps == 0 && has_validation) {
    std::printf("val_loss %.6f\n", trainer.validate(0));
  }
  if (plan.steps == 0) trainer.evaluate_only();
}

void run_toy_language(TrainSettings settings) {
  const toy::Language language;
  toy::introduce(language);
  toy::set_defaults(settings);
  const Gpt2Config config =
      choose_config(settings, static_cast<std::int64_t>(language.words().size()));
  RunPlan plan = make_run_plan(settings, config);
  RunData data = toy::make_data(language, settings, plan);
  count_epochs(settings, plan, config, data);
  describe(config, plan, settings);
  check_vocabulary("--init-from " + settings.init_from, config.vocabulary, *data.tokenizer);
  dispatch_dtype(parse_dtype(settings.dtype),
                 [&]<class T>() { run<T>(settings, plan, config, std::move(data)); });
}

void run_text(TrainSettings settings) {
  if (settings.steps < 0) settings.steps = 1000;
  if (settings.train.empty() && settings.steps > 0) {
    fail(std::string(settings.val.empty() ? "--eval" : "--val") + " without --train",
         "--train FILE, or --steps 0 to evaluate only");
  }
  auto tokenizer = make_tokenizer(settings.tokenizer);
  const Gpt2Config config = choose_config(settings, tokenizer->vocabulary_size());
  check_vocabulary("--init-from " + settings.init_from, config.vocabulary, *tokenizer);
  RunPlan plan = make_run_plan(settings, config);
  RunData data = load_run_data(settings, plan, std::move(tokenizer));
  describe_data(data);
  count_epochs(settings, plan, config, data);
  describe(config, plan, settings);
  dispatch_dtype(parse_dtype(settings.dtype),
                 [&]<class T>() { run<T>(settings, plan, config, std::move(data)); });
}

}  // namespace llmc

int main(int argc, char** argv) {
  using namespace llmc;
  TrainSettings settings;
  if (const auto exit_code = parse_command_line(argc, argv, settings)) return *exit_code;
  try {
    require_one_process();
    select_device(settings.device, argv);
    if (settings.train.empty() && settings.val.empty() && settings.eval.empty()) {
      run_toy_language(settings);
    } else {
      run_text(settings);
    }
    return kExitOk;
  } catch (const std::exception& error) {
    std::cerr << "train_gpt2: " << error.what() << "\n";
    return kExitFailed;
  }
}
