// The evaluation of a model on samples: a mean loss, and the predictions of a classifier.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "llmc/config/choices.h"
#include "llmc/eval/classification_metrics.h"
#include "llmc/io/checkpoint/model_card.h"
#include "llmc/io/run_log.h"

namespace llmc {

struct Evaluation {
  double sum = 0;  // of the losses of all targets
  std::int64_t targets = 0;
  std::optional<ConfusionMatrix> confusion = {};  // of a classifier

  double loss() const { return sum / static_cast<double>(targets); }
  // As a run remembers it after `step` steps.
  MeasuredLoss measured(std::int64_t step) const;
};

// Whether a measurement is better than the best one so far.
bool is_better(const MeasuredLoss& measured, const MeasuredLoss& best, KeepBestBy by);

// The values of an evaluation in the log: PREFIX_loss, and for a classifier PREFIX_accuracy,
// PREFIX_macro_f1 and so on (eval_metrics), and PREFIX_classification, which is a text with the
// JSON of classification_json().
LogRecord evaluation_record(const std::string& prefix, std::int64_t step,
                            const Evaluation& evaluation,
                            const std::vector<std::string>& label_names);

// "step 20: validation loss 0.6312"; for a classifier also its table, on further lines.
std::string evaluation_text(const std::string& beginning, const Evaluation& evaluation,
                            const std::vector<std::string>& label_names);

}  // namespace llmc
