// Brings a model into memory and tells on stderr what it needs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "llmc/config/choices.h"
#include "llmc/config/infer_settings.h"
#include "llmc/config/model_config.h"
#include "llmc/infer/generation_pass.h"
#include "llmc/infer/generation_runner.h"
#include "llmc/quantize/calibrated_scales.h"

namespace llmc {

// How a runner with the weights of --quant computes.
Int8Pass int8_pass(const InferConfig& settings, GenerationRunner& runner);

// A runner with the weights of --quant for passes of generation.
std::unique_ptr<GenerationRunner> make_decoding_runner(const InferConfig& settings,
                                                       const ModelConfig& config);

// A pass of generation with the cache of --kv-dtype.
inline std::unique_ptr<GenerationPass> make_pass(const InferConfig& settings,
                                                 GenerationRunner& runner,
                                                 const BatchShape& shape) {
  return runner.make_pass(dtype_of(settings.kv_dtype), shape, int8_pass(settings, runner));
}

// Prints what describe_model() prints, allocates all that is reserved and loads the weights at
// `path`, with an adapter merged unless its path is empty. Throws if memory is short or the weights
// are not those of the runner's config.
void load_model(GenerationRunner& runner, const std::string& path, const std::string& adapter = {});

// The tokens of --calibrate for the model at `model`.
std::vector<std::int32_t> read_calibration_text(const InferConfig& settings,
                                                const std::string& model);

QuantizeOptions quantize_options(const InferConfig& settings);

// The same for --model and --adapter in the mode of --quant, smoothed and with fixed scales if
// there is a calibration text.
void load_model(GenerationRunner& runner, const InferConfig& settings);

}  // namespace llmc
