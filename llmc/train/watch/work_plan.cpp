#include "llmc/train/watch/work_plan.h"

#include <algorithm>

namespace llmc {

void set_work_guesses(Eta& eta, const RunConfig& config, const RunData& data,
                      std::int64_t parameters) {
  const auto B = static_cast<double>(config.batch.batch_size);
  const auto T = static_cast<double>(config.batch.seq_len);
  const double forward = 1.0 / (3.0 * static_cast<double>(config.batch.grad_accum));  // steps
  if (data.validation) {
    const double all = static_cast<double>(data.validation->count()) / B;
    const auto batches = static_cast<double>(config.validation.batches);
    eta.set_guess(WorkKind::validation, forward * (batches > 0 ? std::min(batches, all) : all));
  }
  // Each token of a sample needs a forward pass over the sequence so far.
  eta.set_guess(WorkKind::sample, forward / B * static_cast<double>(config.samples.length) / 2);
  const double rounds = static_cast<double>(config.samples.final_tokens) / (B * T);
  eta.set_guess(WorkKind::final_samples, forward * T / 2 * (1 + rounds));
  double task_tokens = 0;
  for (const auto& task : data.tasks) {
    for (std::int64_t i = 0; i < task->rows(); ++i) {
      task_tokens += static_cast<double>(task->row_length(i));
    }
  }
  eta.set_guess(WorkKind::tasks, forward * task_tokens / (B * T));
  const bool saves = !config.output.out.empty();
  eta.set_guess(WorkKind::save, 0, saves ? 12 * static_cast<double>(parameters) / 300e6 : 0);
}

}  // namespace llmc
