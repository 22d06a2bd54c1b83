// The settings of train_gpt2 in groups. A Request holds the flags that were given, a RunConfig the
// values of a run. The table of the flags is in train_table.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "llmc/base/resolved.h"
#include "llmc/config/choices.h"
#include "llmc/config/gpt2_config.h"
#include "llmc/config/run_shape.h"
#include "llmc/ops/optimizer/optimizer_options.h"

namespace llmc {

template <class P>
struct Setting;

template <template <class> class Value>
struct DataSettings {
  Value<std::string> train,
      val;  // lists (source_list.h); no val: the end of train; no train: a toy
  Value<std::string> tokenizer;
  Value<std::string> text_field;  // key of the text in JSON lines
  Value<std::string> cache_dir;   // for tokens of texts; empty: next to each text
  Value<bool> no_cache;
  Value<bool> document_mask;  // attention stays inside documents
};

template <template <class> class Value>
struct ModelSettings {
  Value<std::string> name;       // "d12"
  Value<std::string> init_from;  // file or directory of the initial weights; empty: random ones
  Value<std::int64_t> layers, heads, channels, context;
};

template <template <class> class Value>
struct BatchSettings {
  Value<std::int64_t> batch_size;          // B, sequences in a micro-batch
  Value<std::int64_t> seq_len;             // T, tokens in a sequence
  Value<std::int64_t> grad_accum;          // micro-batches in a step
  Value<std::int64_t> total_batch_tokens;  // tokens in a step
  Value<std::int64_t> logits_rows;         // rows of logits that exist at once; 0: all
};

template <template <class> class Value>
struct ScheduleSettings {
  Value<std::int64_t> steps;
  Value<double> epochs;  // 0: the run is as long as `steps` says
  Value<double> peak;    // learning rate after warm-up
  Value<std::int64_t> warmup;
  Value<Decay> decay;
  Value<double> decay_fraction;  // wsd: the last part of the steps, in which the rate falls
  Value<double> final_fraction;  // of the peak, at the last step
};

template <template <class> class Value>
struct DropoutSettings {
  Value<double> all;  // default of the other three
  Value<double> embedding, attention, residual;
};

template <template <class> class Value>
struct PrecisionSettings {
  Value<Dtype> dtype;
  Value<double> loss_scale;         // fp16: of the first step
  Value<bool> stochastic_rounding;  // of fp32 masters to bf16 or fp16 weights
  Value<Attention> attention;
  Value<bool> tf32;
};

template <template <class> class Value>
struct DeviceSettings {
  Value<DeviceChoice> choice;
  Value<double> peak_tflops;  // what MFU is measured against; 0: the device's, or measured
};

template <template <class> class Value>
struct EvaluationSettings {
  Value<std::vector<std::string>> tasks;  // TASK:FILE each (eval_spec.h)
  Value<std::int64_t> every;              // steps; 0: only at the end
  Value<std::int64_t> limit;              // examples of a file; 0: all
  Value<std::int64_t> stride;             // tokens between the windows of a perplexity
};

template <template <class> class Value>
struct ValidationSettings {
  Value<std::int64_t> every;    // steps; 0: never
  Value<std::int64_t> batches;  // of each evaluation during training; 0: all
};

template <template <class> class Value>
struct SampleSettings {
  Value<std::int64_t> every;  // steps; 0: never
  Value<std::int64_t> length;
  Value<std::string> prompt;     // empty: a line break
  Value<std::string> final_out;  // a file of text sampled at the end
  Value<std::int64_t> final_tokens;
};

template <template <class> class Value>
struct OutputSettings {
  Value<std::string> out;                // directory of the checkpoints
  Value<std::int64_t> checkpoint_every;  // steps; 0: only at the end
  Value<std::int64_t> keep_checkpoints;  // newest ones that stay; 0: all
  Value<std::int64_t> milestone_every;   // steps between checkpoints that always stay; 0: none
  Value<bool> resume;
  Value<std::int64_t> stop_after;   // steps of this process; 0: no limit
  Value<std::int64_t> max_skipped;  // updates skipped in a row before the run fails
  Value<std::string> log;
  Value<std::int64_t> profile;  // steps to time operation by operation; 0: none
  Value<std::string> profile_out;
};

// The settings that reading the data depends on. None of them follows from the number of steps,
// which --epochs leaves open until the data are read.
template <template <class> class Value>
struct InputSettings {
  DataSettings<Value> data;
  ModelSettings<Value> model;
  BatchSettings<Value> batch;
  EvaluationSettings<Value> evaluation;
  Value<std::uint64_t> seed;
};

template <template <class> class Value>
struct TrainSettings : InputSettings<Value> {
  ScheduleSettings<Value> schedule;
  OptimizerSettings<Value> optimizer;
  DropoutSettings<Value> dropout;
  PrecisionSettings<Value> precision;
  DeviceSettings<Value> device;
  ValidationSettings<Value> validation;
  SampleSettings<Value> samples;
  OutputSettings<Value> output;
};

// The flags that were given.
using Request = TrainSettings<std::optional>;

using InputConfig = InputSettings<Resolved>;

// Everything that a run does. train/run/resolve.h makes it.
struct RunConfig : TrainSettings<Resolved> {
  Gpt2Config shape;  // of the model

  bool training() const { return schedule.steps > 0; }
  RunShape run_shape() const {
    return {.B = batch.batch_size,
            .T = batch.seq_len,
            .training = training(),
            .attention = precision.attention,
            .logits_rows = batch.logits_rows};
  }
  DropoutRates dropout_rates() const {
    return {.embedding = dropout.embedding,
            .attention = dropout.attention,
            .residual = dropout.residual};
  }
  std::int64_t global_batch() const { return batch.batch_size * batch.grad_accum; }  // sequences
  std::int64_t tokens_per_step() const { return global_batch() * batch.seq_len; }
};

// What only weights, data and the device know about a run.
struct RunFacts {
  Gpt2Config default_shape = {};           // sizes without --model and --init-from; the vocabulary
  std::optional<Gpt2Config> weights = {};  // the shape of --init-from
  std::optional<std::int64_t> windows = {};  // of the training text, once it is read
  Request preset = {};                       // defaults of this kind of run
};

// train_gpt2, as setting.h and command_line.h want a program.
struct TrainProgram {
  using Request = llmc::Request;
  using Config = RunConfig;
  using Facts = RunFacts;

  static constexpr const char* kName = "train_gpt2";
  static constexpr const char* kDescription =
      "Trains a GPT-2 from scratch or from given weights, on a GPU or on the CPU. Without "
      "arguments: a small model on a toy language.";
  static const std::vector<Setting<TrainProgram>>& settings();
  static std::string contradiction(const Request&) { return {}; }
};

}  // namespace llmc
