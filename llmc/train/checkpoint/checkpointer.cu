#include <cmath>
#include <filesystem>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/base/resolved.h"
#include "llmc/config/recorded_settings.h"
#include "llmc/config/train_output_settings.h"
#include "llmc/io/checkpoint/checkpoint_reader.h"
#include "llmc/io/checkpoint/manifest.h"
#include "llmc/io/checkpoint/model_card.h"
#include "llmc/io/checkpoint/retention.h"
#include "llmc/io/data/batches.h"
#include "llmc/io/data/token_hash.h"
#include "llmc/io/data/token_source.h"
#include "llmc/io/run_log.h"
#include "llmc/models/load_adapter.h"
#include "llmc/models/pretrained.h"
#include "llmc/train/checkpoint/checkpoint_texts.h"
#include "llmc/train/checkpoint/checkpointer.h"
#include "llmc/train/checkpoint/resume_checks.h"
#include "llmc/train/checkpoint/training_checkpoint.h"

namespace llmc {

void Checkpointer::open_frozen_file() {
  const std::string& path = resumed_ ? resumed_->checkpoint.string() : config_.model.init_from;
  const bool is_rounded = config_.precision.dtype != Dtype::fp32;
  if (config_.frozen.empty() || path.empty() || !is_rounded || config_.output.out.empty()) return;
  frozen_file_.emplace(path, stored_head(read_pretrained_config(path)),
                       runner_.state().first_rank() || saves_in_background());
}

std::vector<std::string> Checkpointer::restore_or_start(RunPosition& position) {
  position = initial_position();
  if (!config_.output.resume) return {};
  std::vector<std::string> changes;
  if (resumed_) changes = restore(position);
  // A run without a checkpoint begins again at step 0, whose results its log may already have.
  constexpr std::int64_t kNothing = -1;
  if (!config_.output.log.empty() && runner_.state().first_rank())
    trim_log(config_.output.log, resumed_ ? position.step : kNothing);
  return changes;
}

void Checkpointer::observe_loss(RunPosition& position, double loss, std::int64_t step) {
  const bool diverges = position.finite_loss && !std::isfinite(loss);
  position.finite_loss = std::isfinite(loss);
  if (!diverges || !position.protected_checkpoint.empty()) return;
  position.protected_checkpoint = checkpoint_before(step);
  if (position.protected_checkpoint.empty()) return;
  Notice::warn("the loss is not finite: " + path_of(position.protected_checkpoint) +
               ", the newest checkpoint from before, is kept");
}

CheckpointOptions Checkpointer::options_for(const RunPosition& position,
                                            const HuggingFaceConfig& model,
                                            std::optional<double> loss, bool only_best) const {
  const ModelCard card = make_model_card(config_, model, runner_.table().count(), position, loss);
  CheckpointOptions options{.texts = checkpoint_texts(card, *data_.tokenizer),
                            .only_best = only_best,
                            .frozen = frozen_file_ ? &*frozen_file_ : nullptr};
  if (has_adapter()) {
    options.adapter = &config_.adapter;
    add_adapter_texts(options.texts, config_.adapter, model.n_layer, card.name);
  }
  return options;
}

void Checkpointer::save(const RunPosition& position, std::optional<double> loss, Progress& progress,
                        bool only_best) {
  const std::string& out = config_.output.out;
  if (out.empty() || position.step == 0) return;
  if (pending_ && pending_->position().step == position.step) {
    pending_position_ = position;
    return;
  }
  if (pending_ && !pending_->is_written()) {
    progress.note("the save of step " + std::to_string(position.step) + " waits until " +
                  pending_->path().string() + " is written");
  }
  complete(progress);
  if (position.step == saved_step_) {
    if (is_new_best(position)) tidy(position, progress);
    return;
  }
  last_save_ = std::chrono::steady_clock::now();
  const HuggingFaceConfig model = huggingface_config();
  CheckpointOptions options = options_for(position, model, loss, only_best);
  if (saves_in_background()) {
    pending_position_ = position;
    pending_.emplace(out, model, position, config_.seed, runner_.state(), runner_.stream(),
                     std::move(options), exchange_);
    return;
  }
  SaveTimes times;
  options.times = &times;
  try {
    saved_path_ = save_checkpoint(out, model, position, config_.seed, runner_.state(),
                                  runner_.stream(), options);
  } catch (const ElementError& error) {
    refuse_save(position, error);
  }
  note_saved(position, times, progress);
}

void Checkpointer::complete_written(Progress& progress) {
  if (pending_ && pending_->is_written()) complete(progress);
}

void Checkpointer::complete(Progress& progress) {
  if (!pending_) return;
  try {
    pending_->finish();
  } catch (const ElementError& error) {
    refuse_save(pending_->position(), error);
  }
  saved_path_ = pending_->path().string();
  const SaveTimes times = pending_->times();
  pending_.reset();
  note_saved(pending_position_, times, progress);
}

bool Checkpointer::is_save_overdue() {
  const double minutes = config_.output.checkpoint_minutes;
  if (minutes <= 0) return false;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - last_save_;
  return exchange_.broadcast(seconds.count()) >= 60 * minutes;
}

void Checkpointer::note_saved(const RunPosition& position, const SaveTimes& times,
                              Progress& progress) {
  const auto rounded = [](double ms) { return std::round(1e3 * ms) / 1e3; };
  saved_step_ = position.step;
  progress.record({{"step", position.step},
                   {"saved", saved_path_},
                   {"save_gather_ms", rounded(times.gather_ms)},
                   {"save_copy_ms", rounded(times.copy_ms)},
                   {"save_write_ms", rounded(times.write_ms)}},
                  "saved " + saved_path_);
  tidy(position, progress);
}

std::string Checkpointer::interruption_text(std::int64_t step) const {
  if (saved_step_ == step) return "saved " + saved_path_ + ", --resume continues";
  return config_.output.out.empty() ? "nothing is saved without --out" : "nothing to save yet";
}

RunPosition Checkpointer::initial_position() const {
  RunPosition position;
  position.T = config_.batch.seq_len;
  const DataRecord train = data_.train->record();
  position.train = train.text;
  position.train_tokens = train.tokens;
  position.train_data = train.hashes;
  if (data_.validation) position.validation_data = data_.validation->record().hashes;
  position.vocabulary = vocabulary_checksum(*data_.tokenizer);
  position.flags = recorded_settings(config_);
  position.history = {{.train = position.train}};
  return position;
}

std::vector<std::string> Checkpointer::restore(RunPosition& position) {
  const RunPosition current = position;
  const std::filesystem::path& checkpoint = resumed_->checkpoint;
  exchange_.together([&] {
    position = load_checkpoint(checkpoint, config_.seed, runner_.state(), runner_.stream());
    if (has_adapter()) {
      load_adapter(checkpoint, config_.adapter, config_.shape, runner_.state(), runner_.stream());
    }
    CheckpointReader(checkpoint).require_unchanged(resumed_->stamps);
  });
  runner_.state().restore_rounding(runner_.stream());
  check_same_vocabulary(checkpoint, position.vocabulary, current.vocabulary,
                        config_.data.tokenizer);
  saved_path_ = checkpoint.string();
  saved_step_ = position.step;
  Notice::print("resume: from " + saved_path_);
  if (!position.protected_checkpoint.empty()) {
    Notice::print("resume: a loss was not finite; " + path_of(position.protected_checkpoint) +
                  ", the newest checkpoint from before, is kept");
  }
  const std::int64_t steps = config_.schedule.steps;
  if (position.step >= steps) {
    Notice::print("resume: the run has done " + std::to_string(position.step) +
                  " steps, and --steps is " + std::to_string(steps) +
                  ": no step is left; a larger --steps continues");
  }
  position.flags = resumed_->flags;  // names of files as they are now
  return adapt_position(position, current);
}

std::string Checkpointer::path_of(const std::string& checkpoint) const {
  return (std::filesystem::path(config_.output.out) / checkpoint).string();
}

std::string Checkpointer::checkpoint_before(std::int64_t step) const {
  if (config_.output.out.empty() || !runner_.state().first_rank()) return {};
  try {
    return checkpoint_before_divergence(config_.output.out, config_.seed, step);
  } catch (const Error& error) {
    Notice::warn(std::string("warning: ") + error.what());
    return {};
  }
}

void Checkpointer::refuse_save(const RunPosition& position, const ElementError& error) {
  const std::string& name = position.protected_checkpoint;
  std::string kept = name.empty() ? checkpoint_before(position.step) : name;
  if (saves_in_background()) kept = exchange_.broadcast(kept);
  const std::string problem =
      "step " + std::to_string(position.step) + " is not saved: " + error.problem();
  const std::string hint =
      kept.empty() ? "no checkpoint is kept; start again with a lower --lr or a longer --warmup"
                   : path_of(kept) + " is kept; to continue from it, remove later checkpoints " +
                         "and give --resume with a lower --lr";
  saves_in_background() ? fail_together(problem, hint) : fail(problem, hint);
}

void Checkpointer::tidy(const RunPosition& position, Progress& progress) {
  if (!runner_.state().first_rank()) return;
  try {
    remove_and_link(position, progress);
  } catch (const Error& error) {  // too many checkpoints must not end a run
    Notice::warn(std::string("warning: ") + error.what());
  }
}

void Checkpointer::remove_and_link(const RunPosition& position, Progress& progress) {
  const OutputSettings<Resolved>& output = config_.output;
  set_checkpoint_link(output.out, kLatestLink, checkpoint_name(position.step));
  Retention retention{.keep = output.keep_checkpoints,
                      .milestone_every = output.milestone_every,
                      .protected_name = position.protected_checkpoint};
  if (output.keep_best && position.best) retention.best = position.best->step;
  if (is_new_best(position)) {
    set_checkpoint_link(output.out, kBestLink, checkpoint_name(position.step));
  }
  for (const std::string& name : remove_old_checkpoints(saved_path_, retention)) {
    progress.note("removed " + name);
  }
}

HuggingFaceConfig Checkpointer::huggingface_config() const {
  HuggingFaceConfig model = to_huggingface(runner_.config(), data_.tokenizer->end_of_text());
  model.label_names = data_.label_names;
  model.embd_pdrop = config_.dropout.embedding;
  model.attn_pdrop = config_.dropout.attention;
  model.resid_pdrop = config_.dropout.residual;
  return model;
}

}  // namespace llmc
