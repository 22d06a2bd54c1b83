// What a training run is told, with the defaults. train_command_line.h reads it from flags and
// files; the rest of the program knows only this.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace llmc {

struct TrainSettings {
  // Data.
  std::string train, val;  // lists (source_list.h); no val: the end of train; no train: a toy
  std::string tokenizer = "bytes";
  std::string text_field = "text";  // key of the text in JSON lines
  std::string cache_dir;            // for tokens of texts; empty: beside each text
  bool no_cache = false;
  bool document_mask = false;  // attention stays inside documents

  // Model; 0: from `model`, from `init_from`, or a default that suits the device.
  std::string model;
  std::int64_t layers = 0, heads = 0, channels = 0, context = 0;
  std::string init_from;

  // Batch; 0: a default.
  std::int64_t batch_size = 0;          // sequences in a micro-batch
  std::int64_t seq_len = 0;             // tokens in a sequence
  std::int64_t grad_accum = 0;          // micro-batches in a step
  std::int64_t total_batch_tokens = 0;  // tokens in a step, instead of grad_accum
  std::int64_t logits_rows = 4096;      // rows of logits that exist at once; 0: all

  // Optimisation.
  std::int64_t steps = -1;   // -1: a default
  double epochs = 0;         // instead of steps; 0: by steps
  double lr = -1;            // -1: a default
  std::int64_t warmup = -1;  // -1: a twentieth of the steps
  std::string schedule = "cosine";
  double decay_fraction = -1;  // of the steps, the last ones, in wsd; -1: a default
  double final_lr = -1;        // fraction of lr at the last step; -1: a default
  double weight_decay = -1;    // -1: a default
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double clip = 1.0;
  // Dropout; -1: what `dropout` says.
  double dropout = 0, embedding_dropout = -1, attention_dropout = -1, residual_dropout = -1;
  std::int64_t max_skipped = 10;  // updates skipped in a row before the run gives up

  // Numbers.
  std::string dtype = "fp32";
  double loss_scale = 0;               // fp16: of the first step; 0: a default
  std::int64_t loss_scale_window = 0;  // good steps after which it doubles; 0: a default
  bool stochastic_rounding = false;    // of fp32 masters to bf16 or fp16 weights
  std::string attention = "flash";
  bool tf32 = false;
  std::uint64_t seed = 1337;
  std::string device = "auto";
  double peak_tflops = 0;  // what MFU is measured against; 0: the device's, or measured

  // Output.
  std::string out;
  std::int64_t checkpoint_every = 0;  // steps; 0: at the end only
  std::int64_t keep = 0;              // newest checkpoints that stay; 0: all
  std::int64_t milestone_every = 0;   // steps between checkpoints that always stay; 0: none
  bool resume = false;
  std::int64_t stop_after = 0;  // steps of this run; 0: no limit
  std::string log;
  std::int64_t profile = 0;          // steps to time operation by operation; 0: none
  std::string profile_out;           // a file for what was found, JSON lines
  std::int64_t eval_every = -1;      // steps; -1: ten times in the run; 0: never
  std::int64_t eval_batches = 20;    // of each evaluation during training; 0: all
  std::vector<std::string> eval;     // TASK:FILE each; eval_files.h says which tasks
  std::int64_t eval_stride = 0;      // tokens; 0: half a sequence
  std::int64_t eval_limit = 0;       // examples of a file; 0: all
  std::int64_t eval_task_every = 0;  // steps; 0: at the end only
  std::int64_t sample_every = -1;    // steps; -1: five times in the run; 0: never
  std::int64_t sample_tokens = 48;
  std::string prompt;
  std::string samples_out;             // a file of text sampled at the end
  std::int64_t samples_tokens = 4096;  // how much of it
};

}  // namespace llmc
