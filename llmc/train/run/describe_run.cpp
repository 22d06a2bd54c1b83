#include "llmc/train/run/describe_run.h"

#include <string>

#include "llmc/base/notice.h"
#include "llmc/base/number_text.h"
#include "llmc/device/dtype.h"
#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/models/pretrained.h"
#include "llmc/models/trainable_set.h"
#include "llmc/nn/parameter_table.h"

namespace llmc {

namespace {

// " x 4 ranks", as a factor of the tokens per step; empty for one rank.
std::string ranks_text(const RunConfig& run) {
  if (run.ranks.ranks == 1) return {};
  const std::int64_t count = run.data_ranks();
  const std::string factor = " x " + std::to_string(count);
  const std::int64_t tp = run.ranks.tp, pp = run.ranks.pp;
  if (tp * pp == 1) return factor + " ranks";
  return factor + (count == 1 ? " data-parallel rank of " : " data-parallel ranks, each of ") +
         (tp > 1 ? std::to_string(tp) + " tensor " : "") + (tp > 1 && pp > 1 ? "x " : "") +
         (pp > 1 ? std::to_string(pp) + " pipeline " : "") + "ranks";
}

// The properties in which the model differs from GPT-2: "; n_inner 128, tie_word_embeddings false".
std::string family_text(const ModelConfig& shape) {
  const std::string text = differences_from_gpt2(to_huggingface(shape, std::nullopt));
  return text.empty() ? "" : "; " + text;
}

}  // namespace

void describe(const RunConfig& run, std::optional<std::int64_t> windows) {
  const ModelConfig& shape = run.shape;
  if (run.schedule.epochs > 0) {
    Notice::print(number_text("epochs: %g x ", run.schedule.epochs) + std::to_string(*windows) +
                  (run.task.kind == Task::lm ? " windows are " : " samples are ") +
                  std::to_string(run.schedule.steps) + " steps");
  }
  Notice::print("model: " + std::to_string(shape.layers) + " layers, " +
                std::to_string(shape.heads) + " heads, " + std::to_string(shape.channels) +
                " channels, context " + std::to_string(shape.context) + ", vocabulary " +
                std::to_string(shape.vocabulary) + ": " +
                std::to_string(gpt2_parameters(shape).count()) + " parameters, " +
                dtype_name(run.precision.dtype) + family_text(shape));
  if (!run.training()) return;
  const std::string trainable = trainable_text(run);
  if (!trainable.empty()) Notice::print(trainable);
  Notice::print("run: " + std::to_string(run.schedule.steps) + " steps of " +
                (run.task.kind == Task::lm ? "" : "at most ") +
                std::to_string(run.tokens_per_step()) + " tokens (" +
                std::to_string(run.batch.batch_size) + " sequences x " +
                std::to_string(run.batch.seq_len) + " tokens x " +
                std::to_string(run.batch.grad_accum) + " micro-batches" + ranks_text(run) + ")");
  if (run.output.out.empty()) {
    Notice::print("without --out DIR nothing is saved: the model is gone when the run ends");
  }
}

}  // namespace llmc
