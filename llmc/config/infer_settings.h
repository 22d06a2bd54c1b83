// The settings of infer_gpt2: an InferRequest holds the flags that were given, an InferConfig the
// values. The table of the flags is in infer_table.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "llmc/base/resolved.h"
#include "llmc/config/choices.h"

namespace llmc {

template <template <class> class Value>
struct InferSettings {
  Value<std::string> model;      // a directory with config.json and model.safetensors, or a .bin
  Value<std::string> tokenizer;  // empty: from the files in the directory, else bytes
  Value<std::string> prompt;     // "-": read from stdin; empty: only <|endoftext|>

  Value<std::int64_t> tokens;  // maximum number to generate
  Value<bool> ignore_eos;      // continue after <|endoftext|>
  Value<double> temperature;   // 0: greedy
  Value<std::int64_t> top_k;   // 0: the whole vocabulary
  Value<std::uint64_t> seed;

  Value<Dtype> dtype;
  Value<DeviceChoice> device;
  Value<bool> json;
  Value<bool> quiet;  // print only the text, warnings and errors
};

using InferRequest = InferSettings<std::optional>;
using InferConfig = InferSettings<Resolved>;

}  // namespace llmc
