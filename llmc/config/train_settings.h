// The settings of train_gpt2, assembled from their groups. A Request holds the flags that were
// given, a RunConfig the values of a run. The table of the flags is in train_table.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "llmc/base/resolved.h"
#include "llmc/comm/mesh.h"
#include "llmc/config/model_config.h"
#include "llmc/config/run_shape.h"
#include "llmc/config/setting.h"
#include "llmc/config/train_finetune_settings.h"
#include "llmc/config/train_input_settings.h"
#include "llmc/config/train_memory_settings.h"
#include "llmc/config/train_optimizer_settings.h"
#include "llmc/config/train_output_settings.h"
#include "llmc/config/train_qat_settings.h"
#include "llmc/config/train_rank_settings.h"
#include "llmc/config/train_task_settings.h"
#include "llmc/ops/optimizer/optimizer_options.h"
#include "llmc/pipeline/pipeline.h"
#include "llmc/pipeline/schedule.h"

namespace llmc {

// The settings that reading the data depends on. None of them depends on the number of steps, which
// is unknown until the data are read if --epochs is given.
template <template <class> class Value>
struct InputSettings {
  DataSettings<Value> data;
  TaskSettings<Value> task;
  ModelSettings<Value> model;
  BatchSettings<Value> batch;
  EvaluationSettings<Value> evaluation;
  Value<std::uint64_t> seed;
};

template <template <class> class Value>
struct TrainSettings : InputSettings<Value> {
  RankSettings<Value> ranks;
  MemorySettings<Value> memory;
  FinetuneSettings<Value> finetune;
  ScheduleSettings<Value> schedule;
  OptimizerSettings<Value> optimizer;
  DropoutSettings<Value> dropout;
  PrecisionSettings<Value> precision;
  QatSettings<Value> qat;
  DeviceSettings<Value> device;
  ValidationSettings<Value> validation;
  SampleSettings<Value> samples;
  OutputSettings<Value> output;
};

// The flags that were given.
using Request = TrainSettings<std::optional>;

using InputConfig = InputSettings<Resolved>;

// The complete configuration of a run. config/resolve.h computes it.
struct RunConfig : TrainSettings<Resolved> {
  ModelConfig shape;  // of the model
  Pipeline pipeline;  // as the flags, the shape and the frozen parameters imply
  // Names of the parameters that training does not change; models/trainable_set.h sets them.
  std::vector<std::string> frozen;
  AdapterConfig adapter;  // that learns, and freezes the model; models/trainable_set.h sets it

  bool training() const { return schedule.steps > 0; }
  RunShape run_shape() const;
  // The mode of step `step`, counted from 1, and of evaluations after it. A run without training is
  // quantized as a whole.
  QuantizedPass quantized_pass(std::int64_t step) const;
  // The ranks that train on different samples: each stands for a pipeline of tensor groups.
  std::int64_t data_ranks() const { return ranks.ranks / (ranks.tp * ranks.pp); }
  Mesh mesh() const;
  PipelineShape pipeline_shape() const;
  // The numbers of --pp-layers, whose texts the table has checked.
  std::vector<std::int64_t> stage_layers() const;
  DropoutRates dropout_rates() const;
  // Sequences of a step, on all ranks. The ranks of a tensor group and those of a pipeline train on
  // the same ones.
  std::int64_t global_batch() const { return batch.batch_size * batch.grad_accum * data_ranks(); }
  std::int64_t tokens_per_step() const { return global_batch() * batch.seq_len; }
};

// Facts about a run that only the weights, the data and the device determine.
struct RunFacts {
  // Sizes if neither --model nor weights set them, and the vocabulary of the tokenizer.
  ModelConfig default_shape = {};
  // The weights that the run starts from, of --init-from or of the resumed checkpoint: their shape
  // and path.
  std::optional<ModelConfig> weights = {};
  std::string weights_path = {};
  std::string tokenizer = "bytes";           // name of the tokenizer
  std::optional<std::int64_t> windows = {};  // number of training samples, once the data are read
  std::int64_t labels = 2;  // of a classifier, once the data are read; 2 for a plan without them
  std::int64_t ranks = 1;
  std::int64_t default_batch_size = 8;
  std::optional<std::int64_t> default_step_tokens = {};  // empty: one micro-batch per step
  // Values of the flags that are not typed: those of the resumed checkpoint, else the defaults of
  // this kind of run.
  Request preset = {};
};

// train_gpt2 as a program P of setting.h and command_line.h.
struct TrainProgram {
  using Request = llmc::Request;
  using Config = RunConfig;
  using Facts = RunFacts;

  static constexpr const char* kName = "train_gpt2";
  static constexpr const char* kDescription =
      "Trains a GPT-2 model from scratch or from existing weights, on a GPU or on the CPU. Without "
      "--train, it trains a small model on a toy language, which has defaults of its own.";
  static constexpr const char* kExamples[] = {
      "./train_gpt2 --out toy",
      "./train_gpt2 --train text.txt --val val.txt --out run --log run.jsonl",
      "./train_gpt2 --out run --resume"};
  static const std::vector<Setting<TrainProgram>>& settings();
  static std::string contradiction(const Request& request);
  // Whether a flag that another one needs may come from the checkpoint of a resumed run.
  static bool comes_later(const Setting<TrainProgram>& row, const Request& request) {
    return request.output.resume.value_or(false) && row.on_resume != OnResume::process;
  }
};

}  // namespace llmc
