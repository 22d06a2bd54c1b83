// A training run: memory, then steps, with evaluation, samples and checkpoints on the way.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "llmc/device/device.h"
#include "llmc/io/batches.h"
#include "llmc/io/file.h"
#include "llmc/io/readable_text.h"
#include "llmc/io/tokenizer.h"
#include "llmc/io/train_settings.h"
#include "llmc/model/gpt2.h"
#include "llmc/train/batch_stage.h"
#include "llmc/train/checkpointing.h"
#include "llmc/train/eval_tasks.h"
#include "llmc/train/progress.h"
#include "llmc/train/run_data.h"
#include "llmc/train/run_plan.h"
#include "llmc/train/sampler.h"
#include "llmc/train/speed.h"
#include "llmc/train/training_state.h"

namespace llmc {

template <class T>
class Trainer {
 public:
  Trainer(const TrainSettings& settings, const RunPlan& plan, const Gpt2Config& config,
          RunData data)
      : settings_(settings),
        plan_(plan),
        data_(std::move(data)),
        gemm_(settings.tf32),
        table_(config),
        state_(table_, plan.shape.training, memory_),
        model_(config, table_, plan.shape, memory_),
        stage_(plan.shape.B, plan.shape.T, memory_),
        source_(nullptr, nullptr) {
    // Before the model takes the memory that measuring needs.
    if (plan.shape.training) peak_ = peak_of<T>(device_properties(), settings.tf32, gemm_, stream_);
    allocate();
    state_.clear(stream_);
    source_ = state_.source();
    if (!settings.init_from.empty()) {
      load_weights(settings.init_from, state_, stream_);
    } else {
      state_.initialise(settings.seed, stream_);
    }
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Mean loss over the validation windows, `batches` batches at most (0: all).
  double validate(std::int64_t batches) {
    const ConsecutiveWindows& text = *data_.validation;
    const std::int64_t B = plan_.shape.B;
    const std::int64_t end = batches > 0 ? std::min(text.windows(), batches * B) : text.windows();
    double sum = 0;
    std::vector<float> losses;
    for (std::int64_t first = 0; first < end; first += B) {
      const Batch batch = text.batch(first, std::min(B, end - first));
      const DeviceBatch there = stage_.put(batch.inputs, batch.targets, batch.B, batch.T, stream_);
      model_.forward(source_, there, gemm_, stream_);
      const auto found = model_.losses(source_, there, gemm_, stream_);
      losses.resize(static_cast<std::size_t>(there.rows()));
      copy_to_host(losses.data(), found.data, there.rows(), stream_);
      stream_.synchronize();
      for (const float loss : losses) sum += static_cast<double>(loss);
    }
    return sum / static_cast<double>(end * plan_.shape.T);
  }

  // Trains to the end of the plan, or of --stop-after.
  void train() {
    if (settings_.resume) resume();
    prepare_output();
    const std::int64_t last = settings_.stop_after > 0
                                  ? std::min(plan_.steps, position_.step + settings_.stop_after)
                                  : plan_.steps;
    std::cerr << "MFU: 6N + 6LTC FLOP per token against " << teraflops(peak_.flops) << " ("
              << peak_.origin << ")\n";
    Progress progress(settings_.log, settings_.resume, last);
    while (position_.step < last) {
      if (position_.step == 0 && plan_.eval_every > 0) evaluate(progress);
      progress.step(run_step(progress));
      const std::int64_t step = position_.step;
      if (due(plan_.eval_every, last)) evaluate(progress);
      if (due(plan_.sample_every, last)) show_sample(progress);
      if (step != last && due(settings_.eval_task_every, last)) run_tasks(progress);
      if (!settings_.out.empty() && (step == last || due(settings_.checkpoint_every, -1)))
        save(progress);
    }
    progress.end_line();
    if (!settings_.samples_out.empty()) write_samples();
    report(run_tasks(progress));
  }

  // The tasks of --eval, for a run that does not train.
  void evaluate_only() {
    if (data_.tasks.empty()) return;
    refuse_used_log();
    Progress progress(settings_.log, false, 0);
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
           what_would_fit(device.free_memory));
    }
    memory_.allocate();
  }

  std::string what_would_fit(std::int64_t free_bytes) const {
    RunShape smaller = plan_.shape;
    const auto total = [&] {
      MemoryPlan memory;
      const TrainingState<T> state(table_, smaller.training, memory);
      const Gpt2<T> model(model_.config(), table_, smaller, memory);
      return memory.total();
    };
    for (; smaller.B > 1; --smaller.B) {
      if (total() <= free_bytes) break;
    }
    if (total() <= free_bytes) {
      return "--batch-size " + std::to_string(smaller.B) +
             " would fit; --grad-accum keeps the batch large";
    }
    const std::int64_t sequence = smaller.T;
    for (; smaller.T > 1; smaller.T = smaller.T / 2) {
      if (total() <= free_bytes) break;
    }
    if (smaller.T < sequence && total() <= free_bytes) {
      return "--batch-size 1 --seq-len " + std::to_string(smaller.T) + " would fit";
    }
    return "not even one short sequence would fit: a smaller model, or a device with more memory";
  }

  // ---- a step ----

  StepRecord run_step(Progress& progress) {
    const auto start = std::chrono::steady_clock::now();
    const double rate = plan_.schedule.rate(position_.step);
    state_.begin_step(stream_);
    const float scale = 1.0f / static_cast<float>(plan_.tokens_per_step());
    for (std::int64_t micro = 0; micro < plan_.grad_accum; ++micro) {
      const Batch batch =
          data_.train->batch(position_.samples + micro * plan_.shape.B, plan_.shape.B);
      const DeviceBatch there = stage_.put(batch.inputs, batch.targets, batch.B, batch.T, stream_);
      model_.forward_backward(source_, there, scale, state_.loss(), scale, gemm_, stream_);
    }
    state_.apply_gradients({.learning_rate = rate,
                            .weight_decay = plan_.weight_decay,
                            .beta1 = settings_.beta1,
                            .beta2 = settings_.beta2,
                            .eps = settings_.eps,
                            .clip = settings_.clip},
                           stream_);
    const double loss = static_cast<double>(state_.loss_value(stream_));
    const OptimizerState optimizer = state_.optimizer_state(stream_);
    position_.step += 1;
    position_.samples += plan_.global_batch();
    position_.tokens += plan_.tokens_per_step();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    report_skipped(optimizer, loss, progress);
    const double tok_per_s = static_cast<double>(plan_.tokens_per_step()) / seconds;
    return {
        .step = position_.step,
        .loss = loss,
        .grad_norm = static_cast<double>(optimizer.gradient_norm),
        .lr = rate,
        .tokens = position_.tokens,
        .tok_per_s = tok_per_s,
        .mfu = tok_per_s * flops_per_token(table_, model_.config(), plan_.shape.T) / peak_.flops,
        .step_ms = 1e3 * seconds};
  }

  void report_skipped(const OptimizerState& optimizer, double loss, Progress& progress) const {
    if (optimizer.finite != 0) return;
    progress.note("step " + std::to_string(position_.step) + ": loss " + std::to_string(loss) +
                  ", gradient norm " + std::to_string(optimizer.gradient_norm) +
                  ": not finite, update skipped (" + std::to_string(optimizer.skipped) +
                  " in all)");
    if (optimizer.skipped_in_row < settings_.max_skipped) return;
    fail(std::to_string(optimizer.skipped_in_row) +
             " updates in a row were skipped: the loss or the gradient is not finite",
         "a lower --lr, a longer --warmup or --dtype fp32; --max-skipped sets how many are borne");
  }

  // ---- looking at it ----

  void evaluate(Progress& progress) {
    if (data_.validation) progress.validation(position_.step, validate(settings_.eval_batches));
  }

  std::vector<EvalResult> run_tasks(Progress& progress) {
    RowScorer<T> scorer(model_, source_, stage_, plan_.shape, gemm_, stream_);
    return run_eval_tasks(data_.tasks, scorer, position_.step, progress);
  }

  static void report(const std::vector<EvalResult>& results) {
    if (results.empty()) return;
    std::cout << eval_table(results) << std::flush;
    if (!std::cout) fail("stdout cannot be written");
  }

  std::vector<std::int32_t> prompt() const {
    const std::string text = settings_.prompt.empty() ? "\n" : settings_.prompt;
    std::vector<std::int32_t> ids = data_.tokenizer->encode(text);
    if (ids.empty())
      fail("--prompt '" + text + "' has no tokens", "a text with at least one token");
    const auto room = static_cast<std::size_t>(plan_.shape.T - 1);
    if (ids.size() > room) {
      fail("--prompt has " + std::to_string(ids.size()) + " tokens",
           "at most --seq-len - 1 = " + std::to_string(room));
    }
    return ids;
  }

  void show_sample(Progress& progress) {
    const std::vector<std::int32_t> start = prompt();
    const std::int64_t length =
        std::min(plan_.shape.T, static_cast<std::int64_t>(start.size()) + settings_.sample_tokens);
    const auto samples = sample_tokens(model_, source_, stage_, start, 1, length, settings_.seed,
                                       position_.step, gemm_, stream_);
    progress.note("sample: " + readable_text(data_.tokenizer->decode(samples[0])));
  }

  // As many rounds of full sequences as give --samples-tokens tokens, one sequence a line.
  void write_samples() {
    const std::vector<std::int32_t> start = prompt();
    std::string text;
    for (std::int64_t round = 0, tokens = 0; tokens < settings_.samples_tokens; ++round) {
      const auto samples = sample_tokens(
          model_, source_, stage_, start, plan_.shape.B, plan_.shape.T,
          settings_.seed + static_cast<std::uint64_t>(round) + 1, position_.step, gemm_, stream_);
      for (const auto& sample : samples) text += data_.tokenizer->decode(sample) + "\n";
      tokens += plan_.shape.rows();
    }
    write_file(settings_.samples_out, text);
    std::cerr << "samples: " << settings_.samples_out << "\n";
  }

  // ---- checkpoints ----

  void resume() {
    const FoundCheckpoint found = find_newest_checkpoint(settings_.out);
    for (const std::string& warning : found.warnings) std::cerr << "warning: " << warning << "\n";
    if (!found.path) {
      std::cerr << "resume: no good checkpoint in " << settings_.out << ", starting fresh\n";
      return;
    }
    position_ = load_checkpoint(*found.path, settings_.seed, state_, stream_);
    std::cerr << "resume: from " << found.path->string() << "\n";
  }

  // Nothing that is there is overwritten: neither checkpoints nor a log of another run.
  void prepare_output() const {
    if (!settings_.resume && !settings_.out.empty()) {
      const FoundCheckpoint found = find_newest_checkpoint(settings_.out);
      if (found.path) {
        fail("--out " + settings_.out + " holds checkpoints of another run (" +
                 found.path->string() + ")",
             "--resume goes on from there; or give another --out");
      }
    }
    if (settings_.log.empty()) return;
    if (settings_.resume) {
      trim_log(settings_.log, position_.step);
    } else {
      refuse_used_log();
    }
  }

  void refuse_used_log() const {
    if (std::filesystem::is_regular_file(settings_.log) &&
        std::filesystem::file_size(settings_.log) > 0) {
      fail("--log " + settings_.log + " exists",
           "give another name, or --resume the run it belongs to");
    }
  }

  void save(Progress& progress) {
    const HuggingFaceConfig config =
        to_huggingface(model_.config(), data_.tokenizer->end_of_text());
    const std::string path =
        save_checkpoint(settings_.out, config, position_, settings_.seed, state_, stream_);
    progress.note("saved " + path);
  }

  TrainSettings settings_;
  RunPlan plan_;
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
  Peak peak_;
};

}  // namespace llmc
