// The settings of infer_gpt2: an InferRequest holds the flags that were given, an InferConfig the
// values. The table of the flags is in infer_table.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "llmc/base/resolved.h"
#include "llmc/config/choices.h"
#include "llmc/device/dtype.h"

namespace llmc {

// Format of the table that `infer_gpt2 bench` prints.
enum class BenchFormat { md, csv, json };

inline constexpr std::array<const char*, 3> choice_names(BenchFormat) {
  return {"md", "csv", "json"};
}

template <template <class> class Value>
struct InferSettings {
  using Texts = std::vector<std::string>;

  Value<Texts>
      command;  // empty: generate text; {"bench"}, {"perplexity", FILE}, {"score", ...}, ...

  Value<std::string> model;      // a directory with config.json and model.safetensors, or a .bin
  Value<std::string> adapter;    // merged into the model when it is loaded; empty: none
  Value<std::string> tokenizer;  // empty: from the files in the directory, else bytes
  Value<std::string> prompt;     // "-": read from stdin; empty: only <|endoftext|>
  Value<std::string> file;       // file with the prompt; empty: --prompt
  Value<std::string> prompts;    // file with one prompt per line; empty: one prompt

  Value<std::int64_t> tokens;   // maximum number to generate per completion
  Value<std::int64_t> samples;  // completions per prompt
  Value<std::int64_t> batch;    // maximum number of sequences decoded together
  Value<std::int64_t> chunk;    // prompt rows per pass
  Value<bool> slide;            // drop the oldest tokens at the end of the context
  Value<bool> ignore_eos;       // continue after <|endoftext|>
  Value<Texts> stop;            // texts that end a completion

  Value<double> temperature;  // 0: greedy
  Value<std::int64_t> top_k;  // 0: the whole vocabulary
  Value<double> top_p;        // 1: off
  Value<double> min_p;        // 0: off
  Value<double> typical;      // 1: off
  Value<double> repeat_penalty;
  Value<std::int64_t> repeat_last_n;  // tokens that penalties see; 0: none, -1: all
  Value<double> presence_penalty;
  Value<double> frequency_penalty;
  Value<Texts> logit_bias;   // "ID=VALUE" each; parse_logit_bias (infer_values.h) reads them
  Value<std::int64_t> seed;  // in an InferConfig 0 or more: resolve() draws a seed for -1

  Value<DeviceChoice> device;
  Value<Dtype> dtype;
  Value<CacheDtype> kv_dtype;
  Value<Quant> quant;
  Value<ZeroPoints> zero_points;  // of INT8 activations
  Value<Smoothing> smoothing;     // only with a calibration text
  Value<BinFormat> bin_format;    // of token files
  Value<std::string> calibrate;   // the calibration text; empty: none

  Value<bool> stream;          // print text as it is generated
  Value<bool> display_prompt;  // print the prompt before the text
  Value<bool> json;            // one object
  Value<bool> jsonl;           // one object per line and completion
  Value<bool> interactive;
  Value<bool> quiet;  // print only the text, warnings and errors

  // perplexity and score
  Value<std::string> base;      // model to compare with
  Value<std::string> base_log;  // log of a model to compare with
  Value<std::string> save_log;  // log to write
  Value<std::int64_t> seq_len;  // tokens per window; 0: the model's context
  Value<std::int64_t> stride;   // 0: half of the tokens per window, rounded up
  Value<std::int64_t> limit;    // windows or examples per file; 0: all

  // bench; the lists are whole numbers, which whole_numbers (infer_values.h) converts
  Value<Texts> prompt_tokens;
  Value<Texts> gen_tokens;
  Value<Texts> batches;
  Value<Texts> positions;
  Value<std::int64_t> repetitions;
  Value<BenchFormat> format;
};

// Whether activations are INT8.
inline bool quantizes_activations(Quant quant) {
  return quant == Quant::w8a8 || quant == Quant::w8a8_static;
}

using InferRequest = InferSettings<std::optional>;
using InferConfig = InferSettings<Resolved>;

}  // namespace llmc
