#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <string>

#include "llmc/base/error.h"
#include "llmc/device/device.h"
#include "llmc/device/rows.h"
#include "llmc/infer/prompt_runner.h"
#include "llmc/io/data/batches.h"
#include "llmc/ops/classifier.h"

namespace llmc {

BatchShape PromptRunner::batch_shape(const RunShape& shape) {
  return {.slots = shape.B,
          .capacity = shape.T,
          .chunk = shape.rows(),
          .logits_rows = shape.chunk_rows()};
}

PromptRunner::PromptRunner(GenerationPass& model, Context& context, const RunShape& shape,
                           MemoryPlan& plan)
    : model_(model), context_(context), shape_(shape) {
  plan.reserve("batch", targets_, shape.rows());
  plan.reserve("logits", losses_, shape.rows());
}

void PromptRunner::run(const PreparedBatch& prepared) {
  const Batch& batch = prepared.batch;
  last_targets_ = batch.targets;
  std::vector<PromptChunk> chunks;
  for (std::int64_t b = 0; b < batch.B; ++b) {
    model_.clear_faults(b);
    chunks.push_back({.slot = b,
                      .tokens = std::span(batch.inputs)
                                    .subspan(static_cast<std::size_t>(b * batch.T),
                                             static_cast<std::size_t>(batch.T))});
  }
  model_.read_prompts(chunks);
  for (std::int64_t b = 0; b < batch.B; ++b) {
    const std::string fault = model_.fault_text(b);
    if (!fault.empty()) fail("sequence " + std::to_string(b) + " of a batch: " + fault);
  }
}

void PromptRunner::read_losses(std::vector<float>& losses) {
  const std::vector<std::int32_t>& targets = last_targets_;
  const std::int64_t rows = std::ssize(targets);
  Stream& stream = model_.stream();
  copy_to_device(targets_.data, targets.data(), rows, stream);
  for (std::int64_t first = 0; first < rows; first += shape_.chunk_rows()) {
    const std::int64_t count = std::min(shape_.chunk_rows(), rows - first);
    classifier_loss<float>(row_range(losses_, first, count), model_.logits_of(first, count),
                           row_range(targets_, first, count), config().num_logits(), stream);
  }
  losses.resize(targets.size());
  copy_to_host(losses.data(), losses_.data, rows, stream);
  stream.synchronize();
}

void PromptRunner::read_logits(std::int64_t first, std::int64_t count, std::vector<float>& logits) {
  const Tensor<const float, 2> values = model_.logits_of(first, count);
  const std::int64_t V = config().num_logits(), columns = values.shape[1];
  logits.resize(static_cast<std::size_t>(count * V));
  for (std::int64_t i = 0; i < count; ++i)
    copy_to_host(logits.data() + i * V, values.data + i * columns, V, model_.stream());
  model_.stream().synchronize();
}

void PromptRunner::read_logits_of(std::span<const std::int64_t> rows, std::vector<float>& logits) {
  std::vector<float> one;
  logits.clear();
  for (const std::int64_t row : rows) {
    read_logits(row, one);
    logits.insert(logits.end(), one.begin(), one.end());
  }
}

}  // namespace llmc
