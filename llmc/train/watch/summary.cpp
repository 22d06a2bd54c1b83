#include "llmc/train/watch/summary.h"

#include "llmc/base/number_text.h"
#include "llmc/base/shell_word.h"

namespace llmc {

std::string summary_text(const RunSummary& run) {
  const std::int64_t steps = run.step - run.first_step;
  const bool done = run.step >= run.last_step;
  std::string text = done ? "done: "
                          : "stopped: step " + std::to_string(run.step) + " of " +
                                std::to_string(run.last_step) + ", ";
  text += std::to_string(steps) + (steps == 1 ? " step in " : " steps in ") +
          duration_text(run.seconds);
  if (run.step_seconds > 0) {
    text += number_text(", %.0f tok/s", static_cast<double>(run.tokens) / run.step_seconds);
  }
  if (run.validation) {
    text += number_text("\nvalidation loss: %.4f", run.validation->loss) + " after step " +
            std::to_string(run.validation->step);
    if (run.best) {
      text += number_text(", best %.4f", run.best->loss) + " after step " +
              std::to_string(run.best->step);
    }
  }
  return text + "\nsaved: " + (run.saved.empty() ? "nothing" : run.saved);
}

std::string next_command(const RunConfig& config, std::int64_t step, const Tokenizer& tokenizer) {
  const std::string out = shell_word(config.output.out);
  if (config.output.out.empty()) return "the same command with --out DIR, which saves the model";
  if (step < config.schedule.steps) {
    return step > 0 ? "./train_gpt2 --out " + out + " --resume" : "the same command again";
  }
  const std::string& prompt = config.samples.prompt;
  const bool has_files = !tokenizer.files().empty();  // in the checkpoints
  const bool has_adapter = config.adapter.shape.kind != AdapterKind::none;
  const std::string model = has_adapter ? "--adapter " + out : "-m " + out;
  if (config.task.kind == Task::classify) return "./infer_gpt2 classify FILE " + model;
  return "./infer_gpt2 " + model + (has_files ? "" : " --tokenizer DIR") + " -p " +
         (prompt.empty() ? "\"Once upon a time\"" : shell_word(prompt));
}

}  // namespace llmc
