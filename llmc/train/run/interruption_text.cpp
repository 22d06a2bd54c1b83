#include "llmc/train/run/interruption_text.h"

#include "llmc/base/signal_thread.h"

namespace llmc {

namespace {

std::string stopping_text(RunActivity activity) {
  switch (activity) {
    case RunActivity::between:
      return "ending";
    case RunActivity::step:
      return "finishing step ";
    case RunActivity::validation:
      return "stopping the validation";
    case RunActivity::evaluation:
      return "stopping the evaluation";
    case RunActivity::sampling:
      return "stopping the samples";
    case RunActivity::saving:
      return "finishing the save of step ";
  }
  return "ending";
}

}  // namespace

const char* activity_name(RunActivity activity) {
  constexpr const char* kNames[] = {"between steps", "training", "validation",
                                    "evaluation",    "sampling", "saving"};
  return kNames[static_cast<int>(activity)];
}

std::string first_answer(const RunMoment& run) {
  const std::string at_once = "; send the signal again to end at once";
  const std::string unsaved = "; send the signal again to end without saving";
  const bool names_step = run.activity == RunActivity::step || run.activity == RunActivity::saving;
  std::string text = stopping_text(run.activity);
  if (!run.training) return text + at_once;
  if (!names_step) text += run.step == 0 ? " before step 1" : " after step ";
  if (names_step || run.step > 0) text += std::to_string(run.step);
  if (run.activity == RunActivity::saving) return text + unsaved;
  if (run.step == 0) return text + ", nothing to save yet" + at_once;
  if (!run.saves) return text + ", without --out nothing is saved" + at_once;
  if (run.saved_step == run.step) return text + ", which is saved" + at_once;
  return text + ", then saving" + unsaved;
}

std::string final_message(const RunMoment& run, int signal) {
  const std::string text = "ended at once by a second " + std::string(signal_name(signal)) + ": ";
  if (run.saved_step < 0) return text + "nothing was saved";
  if (run.activity != RunActivity::step && run.saved_step == run.step) {
    return text + "step " + std::to_string(run.step) + " is saved";
  }
  return text + "nothing was saved after step " + std::to_string(run.saved_step);
}

}  // namespace llmc
