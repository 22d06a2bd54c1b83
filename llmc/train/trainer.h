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
#include "llmc/infer/generate.h"
#include "llmc/infer/sequence_reader.h"
#include "llmc/io/checkpoint/checkpoint_reader.h"
#include "llmc/io/checkpoint/retention.h"
#include "llmc/io/data/batches.h"
#include "llmc/io/tokenizer/tokenizer.h"
#include "llmc/train/checkpoint/checkpoint_texts.h"
#include "llmc/train/checkpoint/checkpointing.h"
#include "llmc/train/checkpoint/resuming.h"
#include "llmc/train/run/fitting.h"
#include "llmc/train/run/interruption.h"
#include "llmc/train/run/run_data.h"
#include "llmc/train/run/run_output.h"
#include "llmc/train/run/run_plan.h"
#include "llmc/train/samples.h"
#include "llmc/train/training_state.h"
#include "llmc/train/watch/profiling.h"
#include "llmc/train/watch/progress.h"
#include "llmc/train/watch/speed.h"

namespace llmc {

template <class T>
class Trainer {
 public:
  Trainer(const TrainSettings& settings, const RunPlan& plan, const Gpt2Config& config,
          RunData data)
      : settings_(settings),
        plan_(plan),
        data_(std::move(data)),
        engine_(config, plan.shape, {.allow_tf32 = settings.tf32}),
        profiling_(settings.profile, settings.profile_out) {
    // Before the model takes the memory that measuring needs.
    if (plan.shape.training) {
      peak_ = peak_of<T>(settings.peak_tflops, device_properties(), settings.tf32,
                         engine_.context().gemm, stream_);
    }
    allocate();
    if (!settings.init_from.empty()) {
      load_weights(settings.init_from, state_, stream_);
    } else {
      state_.initialise(settings.seed, stream_);
    }
    if (plan.shape.training) {
      state_.set_optimizer_state(
          state_.first_optimizer_state(static_cast<float>(plan.first_loss_scale)), stream_);
      if (plan.stochastic_rounding) state_.round_stochastically(settings.seed);
    }
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Mean loss over the validation windows, `batches` batches at most (0: all). Of no use when an
  // interruption has come meanwhile.
  double validate(std::int64_t batches) {
    const ConsecutiveWindows& text = *data_.validation;
    const std::int64_t B = plan_.shape.B;
    const std::int64_t end = batches > 0 ? std::min(text.windows(), batches * B) : text.windows();
    double sum = 0;
    std::vector<float> losses;
    for (std::int64_t first = 0; first < end && !Interruption::requested(); first += B) {
      const DeviceBatch batch = runner_.put({.batch = text.batch(first, std::min(B, end - first))});
      runner_.forward(batch);
      runner_.read_losses(batch, losses);
      for (const float loss : losses) sum += static_cast<double>(loss);
    }
    return sum / static_cast<double>(end * plan_.shape.T);
  }

  // Trains to the end of the plan, or of --stop-after, or until SIGINT or SIGTERM: then the step
  // under way is finished and saved.
  void train() {
    const Interruption interruption;
    if (plan_.sample_every > 0 || !settings_.samples_out.empty()) {
      prompt_ = sample_prompt(settings_.prompt, *data_.tokenizer, plan_.shape.T);
    }
    const FileDescriptor held = check_run_output(settings_);
    const std::vector<std::string> changes = begin();
    const std::int64_t last = settings_.stop_after > 0
                                  ? std::min(plan_.steps, position_.step + settings_.stop_after)
                                  : plan_.steps;
    std::cerr << mfu_text(peak_) << "\n";
    Progress progress(settings_.log, settings_.resume, last);
    for (const std::string& change : changes) {
      progress.record({{"step", position_.step}, {"resumed", change}}, "resume: " + change);
    }
    if (due(plan_.eval_every, last)) evaluate(progress);
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
    if (!settings_.samples_out.empty()) write_samples();
    if (Interruption::requested()) return report_interruption();
    report(run_tasks(progress));
  }

  // The tasks of --eval, for a run that does not train.
  void evaluate_only() {
    if (data_.tasks.empty()) return;
    if (!settings_.log.empty()) refuse_used_log(settings_.log);
    Progress progress(settings_.log, false, 0);
    report(run_tasks(progress));
  }

  const MemoryPlan& memory() { return engine_.memory(); }

 private:
  bool due(std::int64_t every, std::int64_t last) const {
    return every > 0 && (position_.step % every == 0 || position_.step == last);
  }

  // ---- memory ----

  void allocate() {
    const DeviceProperties device = device_properties();
    std::cerr << "device: " << device.name << ", " << megabytes(device.free_memory) << " free of "
              << megabytes(device.total_memory) << "\n"
              << "memory: " << engine_.memory().report() << "\n";
    if (engine_.memory().total() > device.free_memory) {
      fail("the run needs " + megabytes(engine_.memory().total()) + " of device memory, " +
               megabytes(device.free_memory) + " are free (" + engine_.memory().report() + ")",
           what_would_fit<T>(engine_.config(), plan_.shape, device.free_memory));
    }
    engine_.allocate();
  }

  // ---- steps ----

  // To step `last` or an interruption.
  void run_steps(Progress& progress, std::int64_t last) {
    while (position_.step < last && !Interruption::requested()) {
      profiling_.begin_step(stream_);
      progress.step(run_step(progress));
      if (const auto profile = profiling_.end_step(stream_)) progress.note(*profile);
      if (due(plan_.eval_every, last)) evaluate(progress);
      if (due(plan_.sample_every, last)) show_sample(progress);
      if (due(settings_.checkpoint_every, last) || due(settings_.milestone_every, last) ||
          position_.step == last) {
        save(progress);
      }
      if (position_.step != last && due(settings_.eval_task_every, last)) run_tasks(progress);
    }
  }

  StepRecord run_step(Progress& progress) {
    const auto start = std::chrono::steady_clock::now();
    const double rate = plan_.schedule.rate(position_.step);
    state_.begin_step(stream_);
    const float scale = 1.0f / static_cast<float>(plan_.tokens_per_step());
    for (std::int64_t micro = 0; micro < plan_.grad_accum; ++micro) {
      const std::int64_t first_sample = position_.samples + micro * plan_.shape.B;
      runner_.forward_backward(
          next_batch(), {.scale = scale, .sum = state_.loss(), .factor = state_.loss_scale()},
          {.dropout = plan_.dropout,
           .seed = settings_.seed,
           .step = position_.step,
           .first_sample = first_sample});
    }
    state_.apply_gradients({.learning_rate = rate,
                            .weight_decay = plan_.weight_decay,
                            .beta1 = settings_.beta1,
                            .beta2 = settings_.beta2,
                            .eps = settings_.eps,
                            .clip = settings_.clip,
                            .loss_scale_window = plan_.loss_scale_window},
                           stream_);
    const double loss = static_cast<double>(state_.loss_value(stream_));
    loss_ = loss;
    const OptimizerState optimizer = state_.optimizer_state(stream_);
    position_.step += 1;
    position_.samples += plan_.global_batch();
    position_.tokens += plan_.tokens_per_step();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    report_skipped(optimizer, loss, progress);
    const double tok_per_s = static_cast<double>(plan_.tokens_per_step()) / seconds;
    const FlopsPerToken flops = flops_per_token(engine_.table(), engine_.config(), plan_.shape.T);
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
    return runner_.put(batches_->next());
  }

  void report_skipped(const OptimizerState& optimizer, double loss, Progress& progress) const {
    if (optimizer.finite != 0) return;
    progress.note(skipped_update_text(position_.step, loss, optimizer));
    if (optimizer.skipped_in_row < settings_.max_skipped) return;
    fail(std::to_string(optimizer.skipped_in_row) +
             " updates in a row were skipped: the loss or the gradient is not finite",
         "a lower --lr, a longer --warmup or --dtype fp32; --max-skipped sets how many are borne");
  }

  // From here on batches_ gives the run's micro-batches, one after the other.
  void read_ahead() {
    const std::int64_t B = plan_.shape.B;
    batches_.emplace([this, B, first = position_.samples](std::int64_t n) {
      return prepare(data_.train->batch(first + n * B, B));
    });
  }

  // ---- looking at it ----

  // Once a step: a run interrupted here does it when it goes on.
  void evaluate(Progress& progress) {
    if (!data_.validation) return;
    if (position_.validation && position_.validation->step == position_.step) return;
    const double loss = validate(settings_.eval_batches);
    if (Interruption::requested()) return;
    progress.validation(position_.step, loss);
    position_.validation = {position_.step, loss};
  }

  std::vector<EvalResult> run_tasks(Progress& progress) {
    RowScorer<T> scorer(runner_);
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
    const std::int64_t tokens =
        std::min(settings_.sample_tokens, plan_.shape.T - std::ssize(prompt_));
    const auto samples = sample(1, tokens, settings_.seed);
    if (Interruption::requested()) return;
    progress.note("sample: " + readable_text(data_.tokenizer->decode(samples[0])));
  }

  // `count` continuations of the prompt by so many tokens each, unless a signal ends them early.
  Prompts sample(std::int64_t count, std::int64_t tokens, std::uint64_t seed) {
    Prompts samples(static_cast<std::size_t>(count), prompt_);
    SequenceReader<T> reader(runner_, count);
    generate(reader, Prompts(samples), {.tokens = tokens, .seed = seed, .step = position_.step},
             [&](std::int64_t b, std::int32_t token) {
               samples[static_cast<std::size_t>(b)].push_back(token);
               return !Interruption::requested();
             });
    return samples;
  }

  // As many rounds of full sequences as give --samples-tokens tokens, one sequence a line.
  void write_samples() {
    std::string text;
    for (std::int64_t round = 0, tokens = 0;
         tokens < settings_.samples_tokens && !Interruption::requested(); ++round) {
      const auto samples = sample(plan_.shape.B, plan_.shape.T - std::ssize(prompt_),
                                  settings_.seed + static_cast<std::uint64_t>(round) + 1);
      for (const auto& sample : samples) text += data_.tokenizer->decode(sample) + "\n";
      tokens += plan_.shape.rows();
    }
    if (Interruption::requested()) {
      std::cerr << "interrupted: " << settings_.samples_out << " was not written\n";
      return;
    }
    write_file(settings_.samples_out, text);
    std::cerr << "samples: " << settings_.samples_out << "\n";
  }

  // ---- checkpoints ----

  // Sets where the run is: at its start, or with --resume where the newest good checkpoint left it;
  // returns what is other than before.
  std::vector<std::string> begin() {
    const Windows& text = data_.train->of_sources();
    position_.T = plan_.shape.T;
    position_.train = training_text(*data_.train);
    position_.train_tokens = 0;
    for (const TokenSource& source : text.sources()) position_.train_tokens += source.size();
    position_.vocabulary = vocabulary_checksum(*data_.tokenizer);
    position_.flags = run_flags(settings_, plan_);
    const std::vector<std::string> changes =
        settings_.resume ? resume() : std::vector<std::string>();
    if (settings_.resume && !settings_.log.empty()) trim_log(settings_.log, position_.step);
    return changes;
  }

  std::vector<std::string> resume() {
    const FoundCheckpoint found = find_newest_checkpoint(settings_.out);
    for (const std::string& warning : found.warnings) std::cerr << "warning: " << warning << "\n";
    if (!found.path) {
      std::cerr << "resume: no good checkpoint in " << settings_.out << ", starting fresh\n";
      return {};
    }
    check_same_model(*found.path, huggingface_config());
    const RunPosition now = position_;
    position_ = load_checkpoint(*found.path, settings_.seed, state_, stream_);
    check_same_vocabulary(*found.path, position_.vocabulary, now.vocabulary, settings_.tokenizer);
    saved_ = found.path->string();
    saved_step_ = position_.step;
    std::cerr << "resume: from " << saved_ << "\n";
    return adapt_position(position_, now);
  }

  // The state as it is now, unless that is saved already or nothing is to be.
  void save(Progress& progress) {
    if (settings_.out.empty() || position_.step == saved_step_ || position_.step == 0) return;
    const HuggingFaceConfig config = huggingface_config();
    const ModelCard card =
        make_model_card(settings_, plan_, config, engine_.table().count(), position_, loss_);
    saved_ = save_checkpoint(settings_.out, config, position_, settings_.seed, state_, stream_,
                             checkpoint_texts(card, *data_.tokenizer));
    saved_step_ = position_.step;
    progress.note("saved " + saved_);
    try {
      const Retention retention{settings_.keep, settings_.milestone_every};
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
    } else if (settings_.out.empty()) {
      std::cerr << "nothing is saved without --out\n";
    } else {
      std::cerr << "nothing to save yet\n";
    }
  }

  HuggingFaceConfig huggingface_config() const {
    HuggingFaceConfig config = to_huggingface(engine_.config(), data_.tokenizer->end_of_text());
    config.embd_pdrop = plan_.dropout.embedding;
    config.attn_pdrop = plan_.dropout.attention;
    config.resid_pdrop = plan_.dropout.residual;
    return config;
  }

  TrainSettings settings_;
  RunPlan plan_;
  RunData data_;
  TrainingEngine<T> engine_;
  ModelRunner<T>& runner_ = engine_.runner();
  TrainingState<T>& state_ = engine_.state();
  Stream& stream_ = engine_.stream();
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
