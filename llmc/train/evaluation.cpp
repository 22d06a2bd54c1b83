#include "llmc/train/evaluation.h"

#include "llmc/base/number_text.h"

namespace llmc {

MeasuredLoss Evaluation::measured(std::int64_t step) const {
  MeasuredLoss result{.step = step, .loss = loss()};
  if (confusion) result.macro_f1 = classification_metrics(*confusion).macro.f1;
  return result;
}

bool is_better(const MeasuredLoss& measured, const MeasuredLoss& best, KeepBestBy by) {
  if (by == KeepBestBy::macro_f1) {
    return measured.macro_f1.value_or(0) > best.macro_f1.value_or(0);
  }
  return measured.loss < best.loss;
}

LogRecord evaluation_record(const std::string& prefix, std::int64_t step,
                            const Evaluation& evaluation,
                            const std::vector<std::string>& label_names) {
  LogRecord record = {{"step", step}, {prefix + "_loss", evaluation.loss()}};
  if (!evaluation.confusion) return record;
  const ClassificationMetrics metrics = classification_metrics(*evaluation.confusion);
  for (const EvalMetric& metric : eval_metrics(metrics)) {
    record.emplace_back(prefix + "_" + metric.name, metric.value);
  }
  record.emplace_back(prefix + "_classification",
                      classification_json(metrics, *evaluation.confusion, label_names));
  return record;
}

std::string evaluation_text(const std::string& beginning, const Evaluation& evaluation,
                            const std::vector<std::string>& label_names) {
  std::string text = beginning + number_text(" loss %.4f", evaluation.loss());
  if (!evaluation.confusion) return text;
  std::string table =
      classification_table(classification_metrics(*evaluation.confusion), label_names);
  while (table.ends_with('\n')) table.pop_back();
  return text + "\n" + table;
}

}  // namespace llmc
