// The settings of train_gpt2: validation, samples, checkpoints, logs.
#pragma once

#include <cstdint>
#include <string>

#include "llmc/config/choices.h"
#include "llmc/config/relocation.h"
#include "llmc/config/setting.h"

namespace llmc {

template <template <class> class Value>
struct ValidationSettings {
  Value<std::int64_t> every;    // steps between evaluations; 0: never
  Value<std::int64_t> batches;  // batches per evaluation during training; 0: all
};

template <template <class> class Value>
struct SampleSettings {
  Value<std::int64_t> every;  // steps between samples; 0: never
  Value<std::int64_t> length;
  Value<std::string> prompt;     // empty: a line break
  Value<std::string> final_out;  // file for text sampled at the end of the run
  Value<std::int64_t> final_tokens;
};

template <template <class> class Value>
struct OutputSettings {
  Value<std::string> out;                // directory of the checkpoints
  Value<std::int64_t> checkpoint_every;  // steps between checkpoints; 0: only at the end
  Value<double> checkpoint_minutes;      // minutes between checkpoints; 0: no limit
  Value<SaveMode> save;
  Value<std::int64_t> keep_checkpoints;  // number of newest checkpoints to keep; 0: all
  Value<std::int64_t> milestone_every;   // steps between permanent checkpoints; 0: none
  Value<bool> keep_best;                 // save and keep the checkpoint of the best validation loss
  Value<KeepBestBy> keep_best_by;
  Value<bool> resume;
  Value<std::int64_t> stop_after;    // steps after which this process stops; 0: no limit
  Value<double> stop_after_minutes;  // age of the process at which it stops; 0: no limit
  Value<OnNan> on_nan;
  Value<std::int64_t> max_skipped;  // consecutive skipped updates at which the run fails
  Value<std::string> log;
  Value<bool> log_ranks;        // log the use of CPU, GPU and memory of each rank
  Value<std::int64_t> profile;  // number of steps to profile; 0: none
  Value<std::string> profile_out;
  Value<bool> quiet;  // print only results, warnings and errors
};

// The rows; their texts and rules are in train_output_settings.cpp.
struct TrainProgram;
Settings<TrainProgram> sample_rows();
Settings<TrainProgram> checkpoint_rows();
Settings<TrainProgram> output_rows();

}  // namespace llmc
