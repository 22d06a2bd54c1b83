// The checkpoints of a run: starts or resumes the run, saves, and removes old checkpoints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "llmc/config/resume_notes.h"
#include "llmc/config/train_settings.h"
#include "llmc/io/checkpoint/checkpoint_reader.h"
#include "llmc/io/checkpoint/retention.h"
#include "llmc/io/run_log.h"
#include "llmc/train/checkpoint/checkpoint_texts.h"
#include "llmc/train/checkpoint/checkpointing.h"
#include "llmc/train/checkpoint/resuming.h"
#include "llmc/train/run/run_data.h"
#include "llmc/train/watch/progress.h"

namespace llmc {

template <class T>
class Checkpointer {
 public:
  // All references must outlive the object.
  Checkpointer(const RunConfig& config, const RunData& data, TrainingEngine<T>& engine)
      : config_(config), data_(data), engine_(engine) {}

  // Sets `position` to the newest valid checkpoint (--resume) or to step 0, loads that checkpoint
  // into the engine and removes later steps from the log. Returns one note per setting that differs
  // from the checkpoint.
  std::vector<std::string> restore_or_start(RunPosition& position) {
    position = initial_position();
    if (!config_.output.resume) return {};
    const std::vector<std::string> changes = restore(position);
    if (!config_.output.log.empty()) trim_log(config_.output.log, position.step);
    return changes;
  }

  // Saves the state at `position`. Does nothing without --out, at step 0, or if this step is
  // already saved. `loss` is the loss of the last step, for the model card.
  void save(const RunPosition& position, std::optional<double> loss, Progress& progress) {
    const OutputSettings<Resolved>& output = config_.output;
    if (output.out.empty() || position.step == saved_step_ || position.step == 0) return;
    const HuggingFaceConfig model = huggingface_config();
    const ModelCard card = make_model_card(config_, model, engine_.table().count(), position, loss);
    saved_path_ = save_checkpoint(output.out, model, position, config_.seed, engine_.state(),
                                  engine_.stream(), checkpoint_texts(card, *data_.tokenizer));
    saved_step_ = position.step;
    progress.note("saved " + saved_path_);
    try {
      const Retention retention{output.keep_checkpoints, output.milestone_every};
      for (const std::string& name : remove_old_checkpoints(saved_path_, retention)) {
        progress.note("removed " + name);
      }
    } catch (const Error& error) {  // too many checkpoints must not end a run
      progress.note(std::string("warning: ") + error.what());
    }
  }

  // Reports whether the state is saved, for a run that a signal ended at this step.
  std::string interruption_text(std::int64_t step) const {
    if (saved_step_ == step) return "saved " + saved_path_ + ", --resume continues";
    return config_.output.out.empty() ? "nothing is saved without --out" : "nothing to save yet";
  }

 private:
  // The position of this run at step 0.
  RunPosition initial_position() const {
    RunPosition position;
    position.T = config_.batch.seq_len;
    position.train = training_text(*data_.train);
    position.train_tokens = 0;
    for (const TokenSource& source : data_.train->windows_by_source().sources()) {
      position.train_tokens += source.size();
    }
    position.vocabulary = vocabulary_checksum(*data_.tokenizer);
    position.flags = recorded_settings(config_);
    return position;
  }

  std::vector<std::string> restore(RunPosition& position) {
    const CheckpointSearchResult newest = find_newest_checkpoint(config_.output.out);
    for (const std::string& warning : newest.warnings) std::cerr << "warning: " << warning << "\n";
    if (!newest.path) {
      std::cerr << "resume: no valid checkpoint in " << config_.output.out
                << ", starting at step 0\n";
      return {};
    }
    check_same_model(*newest.path, huggingface_config());
    const RunPosition current = position;
    position = load_checkpoint(*newest.path, config_.seed, engine_.state(), engine_.stream());
    check_same_vocabulary(*newest.path, position.vocabulary, current.vocabulary,
                          config_.data.tokenizer);
    saved_path_ = newest.path->string();
    saved_step_ = position.step;
    std::cerr << "resume: from " << saved_path_ << "\n";
    return adapt_position(position, current);
  }

  HuggingFaceConfig huggingface_config() const {
    HuggingFaceConfig model = to_huggingface(engine_.config(), data_.tokenizer->end_of_text());
    model.embd_pdrop = config_.dropout.embedding;
    model.attn_pdrop = config_.dropout.attention;
    model.resid_pdrop = config_.dropout.residual;
    return model;
  }

  const RunConfig& config_;
  const RunData& data_;
  TrainingEngine<T>& engine_;
  std::string saved_path_;  // path of the newest checkpoint
  std::int64_t saved_step_ = -1;
};

}  // namespace llmc
