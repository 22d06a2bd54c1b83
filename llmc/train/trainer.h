// A training run: memory, then steps, with evaluation, samples and checkpoints on the way.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/base/prefetch.h"
#include "llmc/base/terminal.h"
#include "llmc/config/train_settings.h"
#include "llmc/device/device.h"
#include "llmc/eval/tasks.h"
#include "llmc/io/checkpoint/checkpoint_reader.h"
#include "llmc/io/checkpoint/retention.h"
#include "llmc/io/data/batches.h"
#include "llmc/io/tokenizer/tokenizer.h"
#include "llmc/model/batch_stage.h"
#include "llmc/model/gpt2.h"
#include "llmc/train/checkpoint/checkpoint_texts.h"
#include "llmc/train/checkpoint/checkpointing.h"
#include "llmc/train/checkpoint/resuming.h"
#include "llmc/train/run/fitting.h"
#include "llmc/train/run/interruption.h"
#include "llmc/train/run/run_data.h"
#include "llmc/train/run/run_output.h"
#include "llmc/train/sampler.h"
#include "llmc/train/schedule.h"
#include "llmc/train/training_state.h"
#include "llmc/train/watch/profiling.h"
#include "llmc/train/watch/progress.h"
#include "llmc/train/watch/speed.h"

namespace llmc {

template <class T>
class Trainer {
 public:
  Trainer(const RunConfig& config, RunData data)
      : config_(config),
        data_(std::move(data)),
        gemm_({.allow_tf32 = config.precision.tf32}),
        table_(config.shape),
        state_(table_, config.training(), memory_),
        model_(config.shape, table_, config.run_shape(), memory_),
        stage_(config.batch.batch_size, config.batch.seq_len, memory_),
        source_(nullptr, nullptr),
        profiling_(config.output.profile, config.output.profile_out) {
    // Before the model takes the memory that measuring needs.
    if (config.training()) {
      peak_ = peak_of<T>(config.device.peak_tflops, device_properties(), config.precision.tf32,
                         gemm_, stream_);
    }
    allocate();
    state_.clear(stream_);
    source_ = state_.source();
    if (!config.model.init_from.empty()) {
      load_weights(config.model.init_from, state_, stream_);
    } else {
      state_.initialise(config.seed, stream_);
    }
    if (config.training()) {
      state_.set_optimizer_state(
          state_.first_optimizer_state(static_cast<float>(config.precision.loss_scale)), stream_);
      if (config.precision.stochastic_rounding) state_.round_stochastically(config.seed);
    }
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Mean loss over the validation windows, `batches` batches at most (0: all). Of no use when an
  // interruption has come meanwhile.
  double validate(std::int64_t batches) {
    const ConsecutiveWindows& text = *data_.validation;
    const std::int64_t B = config_.batch.batch_size;
    const std::int64_t end = batches > 0 ? std::min(text.windows(), batches * B) : text.windows();
    double sum = 0;
    std::vector<float> losses;
    for (std::int64_t first = 0; first < end && !Interruption::requested(); first += B) {
      const DeviceBatch there =
          stage_.put(prepare(text.batch(first, std::min(B, end - first))), stream_);
      model_.forward(source_, there, gemm_, stream_);
      const auto found = model_.losses(source_, there, gemm_, stream_);
      losses.resize(static_cast<std::size_t>(there.rows()));
      copy_to_host(losses.data(), found.data, there.rows(), stream_);
      stream_.synchronize();
      for (const float loss : losses) sum += static_cast<double>(loss);
    }
    return sum / static_cast<double>(end * config_.batch.seq_len);
  }

  // Trains to the end of the plan, or of --stop-after, or until SIGINT or SIGTERM: then the step
  // under way is finished and saved.
  void train() {
    const Interruption interruption;
    if (config_.samples.every > 0 || !config_.samples.final_out.empty()) {
      prompt_ = sample_prompt(config_.samples.prompt, *data_.tokenizer, config_.batch.seq_len);
    }
    const FileDescriptor held = check_run_output(config_.output, config_.samples);
    const std::vector<std::string> changes = begin();
    const std::int64_t last =
        config_.output.stop_after > 0
            ? std::min(config_.schedule.steps, position_.step + config_.output.stop_after)
            : config_.schedule.steps;
    std::cerr << mfu_text(peak_) << "\n";
    Progress progress(config_.output.log, config_.output.resume, last);
    for (const std::string& change : changes) {
      progress.record({{"step", position_.step}, {"resumed", change}}, "resume: " + change);
    }
    if (due(config_.validation.every, last)) evaluate(progress);
    read_ahead();
    try {
      run_steps(progress, last);
    } catch (const LogError&) {
      save(progress);  // the checkpoints' disk may be another
      throw;
    }
    batches_.reset();
    if (Interruption::requested()) save(progress);
    if (const auto profile = profiling_.end_run()) progress.note(*profile);
    progress.end_line();
    if (!config_.samples.final_out.empty()) write_samples();
    if (Interruption::requested()) return report_interruption();
    report(run_tasks(progress));
  }

  // The tasks of --eval, for a run that does not train.
  void evaluate_only() {
    if (data_.tasks.empty()) return;
    if (!config_.output.log.empty()) refuse_used_log(config_.output.log);
    Progress progress(config_.output.log, false, 0);
    report(run_tasks(progress));
  }

  const MemoryPlan& memory() const { return memory_; }

 private:
  bool due(std::int64_t every, std::int64_t last) const {
    return every > 0 && (position_.step % every == 0 || position_.step == last);
  }

  // ---- memory ----

  void allocate() {
    const DeviceProperties device = device_properties();
    std::cerr << "device: " << device.name << ", " << megabytes(device.free_memory) << " free of "
              << megabytes(device.total_memory) << "\n"
              << "memory: " << memory_.report() << "\n";
    if (memory_.total() > device.free_memory) {
      fail("the run needs " + megabytes(memory_.total()) + " of device memory, " +
               megabytes(device.free_memory) + " are free (" + memory_.report() + ")",
           what_would_fit<T>(model_.config(), table_, config_.run_shape(), device.free_memory));
    }
    memory_.allocate();
  }

  // ---- steps ----

  // To step `last` or an interruption.
  void run_steps(Progress& progress, std::int64_t last) {
    while (position_.step < last && !Interruption::requested()) {
      profiling_.begin_step(stream_);
      progress.step(run_step(progress));
      if (const auto profile = profiling_.end_step(stream_)) progress.note(*profile);
      if (due(config_.validation.every, last)) evaluate(progress);
      if (due(config_.samples.every, last)) show_sample(progress);
      if (due(config_.output.checkpoint_every, last) || due(config_.output.milestone_every, last) ||
          position_.step == last) {
        save(progress);
      }
      if (position_.step != last && due(config_.evaluation.every, last)) run_tasks(progress);
    }
  }

  StepRecord run_step(Progress& progress) {
    const auto start = std::chrono::steady_clock::now();
    const double rate = make_schedule(config_.schedule).rate(position_.step);
    state_.begin_step(stream_);
    const float scale = 1.0f / static_cast<float>(config_.tokens_per_step());
    for (std::int64_t micro = 0; micro < config_.batch.grad_accum; ++micro) {
      const std::int64_t first_sample = position_.samples + micro * config_.batch.batch_size;
      const DeviceBatch there = next_batch();
      model_.forward_backward(source_, there, scale, state_.loss(), scale, gemm_, stream_,
                              {.dloss_factor = state_.loss_scale(),
                               .dropout = config_.dropout_rates(),
                               .seed = config_.seed,
                               .step = position_.step,
                               .first_sample = first_sample});
    }
    state_.apply_gradients(config_.optimizer, rate, stream_);
    const double loss = static_cast<double>(state_.loss_value(stream_));
    loss_ = loss;
    const OptimizerState optimizer = state_.optimizer_state(stream_);
    position_.step += 1;
    position_.samples += config_.global_batch();
    position_.tokens += config_.tokens_per_step();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    report_skipped(optimizer, loss, progress);
    const double tok_per_s = static_cast<double>(config_.tokens_per_step()) / seconds;
    const FlopsPerToken flops = flops_per_token(table_, model_.config(), config_.batch.seq_len);
    return {.step = position_.step,
            .loss = loss,
            .grad_norm = static_cast<double>(optimizer.gradient_norm),
            .lr = rate,
            .tokens = position_.tokens,
            .tok_per_s = tok_per_s,
            .mfu = tok_per_s * flops.causal / peak_.flops,
            .mfu_full = tok_per_s * flops.full / peak_.flops,
            .step_ms = 1e3 * seconds,
            .loss_scale = static_cast<double>(optimizer.used_loss_scale)};
  }

  DeviceBatch next_batch() {
    const ProfileScope scope("data", stream_);
    return stage_.put(batches_->next(), stream_);
  }

  void report_skipped(const OptimizerState& optimizer, double loss, Progress& progress) const {
    if (optimizer.finite != 0) return;
    progress.note(skipped_update_text(position_.step, loss, optimizer));
    if (optimizer.skipped_in_row < config_.output.max_skipped) return;
    fail(std::to_string(optimizer.skipped_in_row) +
             " updates in a row were skipped: the loss or the gradient is not finite",
         "a lower --lr, a longer --warmup or --dtype fp32; --max-skipped sets how many are borne");
  }

  // From here on batches_ gives the run's micro-batches, one after the other.
  void read_ahead() {
    const std::int64_t B = config_.batch.batch_size;
    batches_.emplace([this, B, first = position_.samples](std::int64_t n) {
      return prepare(data_.train->batch(first + n * B, B));
    });
  }

  // ---- looking at it ----

  // Once a step: a run interrupted here does it when it goes on.
  void evaluate(Progress& progress) {
    if (!data_.validation) return;
    if (position_.validation && position_.validation->step == position_.step) return;
    const double loss = validate(config_.validation.batches);
    if (Interruption::requested()) return;
    progress.validation(position_.step, loss);
    position_.validation = {position_.step, loss};
  }

  std::vector<EvalResult> run_tasks(Progress& progress) {
    RowScorer<T> scorer(model_, source_, stage_, config_.run_shape(), gemm_, stream_);
    const EvalCallbacks callbacks = {
        .progress =
            [&](const EvalTask& task, std::int64_t done, std::int64_t total, double seconds) {
              progress.part(task.name(), done, total, seconds);
              return !Interruption::requested();
            },
        .finished =
            [&](const EvalResult& result) {
              progress.record(log_record(result, position_.step),
                              "step " + std::to_string(position_.step) + ": " + summary(result));
            }};
    return run_eval_tasks(data_.tasks, scorer, callbacks);
  }

  static void report(const std::vector<EvalResult>& results) {
    if (results.empty()) return;
    std::cout << eval_table(results) << std::flush;
    if (!std::cout) fail("stdout cannot be written");
  }

  void show_sample(Progress& progress) {
    const std::int64_t length = std::min(
        config_.batch.seq_len, static_cast<std::int64_t>(prompt_.size()) + config_.samples.length);
    const auto samples = sample_tokens(model_, source_, stage_, prompt_, 1, length, config_.seed,
                                       position_.step, gemm_, stream_);
    if (Interruption::requested()) return;
    progress.note("sample: " + readable_text(data_.tokenizer->decode(samples[0])));
  }

  // As many rounds of full sequences as give --final-samples-tokens tokens, one sequence a line.
  void write_samples() {
    std::string text;
    for (std::int64_t round = 0, tokens = 0;
         tokens < config_.samples.final_tokens && !Interruption::requested(); ++round) {
      const auto samples = sample_tokens(
          model_, source_, stage_, prompt_, config_.batch.batch_size, config_.batch.seq_len,
          config_.seed + static_cast<std::uint64_t>(round) + 1, position_.step, gemm_, stream_);
      for (const auto& sample : samples) text += data_.tokenizer->decode(sample) + "\n";
      tokens += config_.run_shape().rows();
    }
    if (Interruption::requested()) {
      std::cerr << "interrupted: " << config_.samples.final_out << " was not written\n";
      return;
    }
    write_file(config_.samples.final_out, text);
    std::cerr << "samples: " << config_.samples.final_out << "\n";
  }

  // ---- checkpoints ----

  // Sets where the run is: at its start, or with --resume where the newest good checkpoint left it;
  // returns what is other than before.
  std::vector<std::string> begin() {
    const Windows& text = data_.train->of_sources();
    position_.T = config_.batch.seq_len;
    position_.train = training_text(*data_.train);
    position_.train_tokens = 0;
    for (const TokenSource& source : text.sources()) position_.train_tokens += source.size();
    position_.vocabulary = vocabulary_checksum(*data_.tokenizer);
    position_.flags = recorded_settings(config_);
    const std::vector<std::string> changes =
        config_.output.resume ? resume() : std::vector<std::string>();
    if (config_.output.resume && !config_.output.log.empty())
      trim_log(config_.output.log, position_.step);
    return changes;
  }

  std::vector<std::string> resume() {
    const FoundCheckpoint found = find_newest_checkpoint(config_.output.out);
    for (const std::string& warning : found.warnings) std::cerr << "warning: " << warning << "\n";
    if (!found.path) {
      std::cerr << "resume: no good checkpoint in " << config_.output.out << ", starting fresh\n";
      return {};
    }
    check_same_model(*found.path, huggingface_config());
    const RunPosition now = position_;
    position_ = load_checkpoint(*found.path, config_.seed, state_, stream_);
    check_same_vocabulary(*found.path, position_.vocabulary, now.vocabulary,
                          config_.data.tokenizer);
    saved_ = found.path->string();
    saved_step_ = position_.step;
    std::cerr << "resume: from " << saved_ << "\n";
    return adapt_position(position_, now);
  }

  // The state as it is now, unless that is saved already or nothing is to be.
  void save(Progress& progress) {
    if (config_.output.out.empty() || position_.step == saved_step_ || position_.step == 0) return;
    const HuggingFaceConfig config = huggingface_config();
    const ModelCard card = make_model_card(config_, config, table_.count(), position_, loss_);
    saved_ = save_checkpoint(config_.output.out, config, position_, config_.seed, state_, stream_,
                             checkpoint_texts(card, *data_.tokenizer));
    saved_step_ = position_.step;
    progress.note("saved " + saved_);
    try {
      const Retention retention{config_.output.keep_checkpoints, config_.output.milestone_every};
      for (const std::string& name : remove_old_checkpoints(saved_, retention)) {
        progress.note("removed " + name);
      }
    } catch (const Error& error) {  // too many checkpoints are no reason to end a run
      progress.note(std::string("warning: ") + error.what());
    }
  }

  void report_interruption() const {
    std::cerr << "interrupted by " << Interruption::name() << " after step " << position_.step
              << ": ";
    if (saved_step_ == position_.step) {
      std::cerr << "saved " << saved_ << ", --resume goes on\n";
    } else if (config_.output.out.empty()) {
      std::cerr << "nothing is saved without --out\n";
    } else {
      std::cerr << "nothing to save yet\n";
    }
  }

  HuggingFaceConfig huggingface_config() const {
    HuggingFaceConfig config = to_huggingface(model_.config(), data_.tokenizer->end_of_text());
    config.embd_pdrop = config_.dropout.embedding;
    config.attn_pdrop = config_.dropout.attention;
    config.resid_pdrop = config_.dropout.residual;
    return config;
  }

  RunConfig config_;
  RunData data_;
  Stream stream_;
  Gemm gemm_;
  ParameterTable table_;
  MemoryPlan memory_;
  TrainingState<T> state_;
  Gpt2<T> model_;
  BatchStage stage_;
  ResidentParameters<T> source_;
  RunPosition position_;
  std::vector<std::int32_t> prompt_;  // of samples
  std::optional<double> loss_;        // of the last step
  std::string saved_;                 // the newest checkpoint
  std::int64_t saved_step_ = -1;
  Peak peak_;
  Profiling profiling_;
  std::optional<ReadAhead<PreparedBatch>> batches_;  // last: its thread reads what is above
};

}  // namespace llmc
