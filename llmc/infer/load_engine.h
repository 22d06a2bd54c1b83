// Brings a model into memory and tells on stderr what it needs.
#pragma once

#include <string>

#include "llmc/base/notice.h"
#include "llmc/config/infer_settings.h"
#include "llmc/device/device.h"
#include "llmc/infer/batch_model.h"
#include "llmc/infer/calibrated_scales.h"
#include "llmc/infer/calibration_text.h"
#include "llmc/infer/prompt.h"
#include "llmc/model/engine.h"
#include "llmc/model/pretrained.h"

namespace llmc {

// The shape of an engine whose model runs only over a key-value cache.
inline RunShape decode_shape(const InferConfig& settings) {
  return {.B = 1, .T = 1, .training = false, .int8_weights = settings.quant != Quant::none};
}

template <class T>
Int8Pass int8_pass(const InferConfig& settings, Engine<T>& engine) {
  Int8Pass pass{.quantizes_rows = quantizes_activations(settings.quant),
                .zero_points = settings.zero_points == ZeroPoints::automatic};
  if (const auto* weights = engine.state().quantized()) pass.scales = &weights->activations();
  return pass;
}

// Prints the model, the device and the memory; throws if the device has too little free memory.
inline void describe_model(const Gpt2Config& config, Dtype dtype, const MemoryPlan& memory) {
  const DeviceProperties device = device_properties();
  Notice::print("model: " + std::to_string(config.layers) + " layers, " +
                std::to_string(config.heads) + " heads, " + std::to_string(config.channels) +
                " channels, context " + std::to_string(config.context) + ", vocabulary " +
                std::to_string(config.vocabulary) + ", " + dtype_name(dtype));
  Notice::print("device: " + std::string(device.name) + ", " + megabytes(device.free_memory) +
                " free");
  Notice::print("memory: " + memory.report());
  if (memory.total() <= device.free_memory) return;
  fail("the model needs " + megabytes(memory.total()) + " of device memory, " +
           megabytes(device.free_memory) + " are free",
       "use --dtype bf16, which needs half the memory of fp32, shorter prompts, a smaller --batch "
       "or a smaller --tokens");
}

// Prints what describe_model() prints, allocates all that is reserved and loads the weights at
// `path`. Throws if memory is short or the weights are not those of the engine's config.
template <class T>
void load_engine(Engine<T>& engine, const std::string& path) {
  describe_model(engine.config(), kDtypeOf<T>, engine.memory());
  engine.allocate();
  load_weights(path, engine.state(), engine.stream());
}

// The tokens of --calibrate for the model at `model`.
inline std::vector<std::int32_t> read_calibration_text(const InferConfig& settings,
                                                       const std::string& model) {
  InferConfig own = settings;
  own.model = model;
  return calibration_tokens(settings.calibrate, *read_model_files(own).tokenizer);
}

inline QuantizeOptions quantize_options(const InferConfig& settings) {
  return {.activations = {.zero_points = settings.zero_points == ZeroPoints::automatic,
                          .is_static = settings.quant == Quant::w8a8_static},
          .smoothing = settings.smoothing == Smoothing::automatic};
}

// The same for --model in the mode of --quant, smoothed and with fixed scales if there is a
// calibration text.
template <class T>
void load_engine(Engine<T>& engine, const InferConfig& settings) {
  if (settings.calibrate.empty()) {
    load_engine(engine, settings.model);
    if (settings.quant != Quant::w8a8_static) return;
    if (engine.state().quantized()->activations().fixed.empty()) {
      fail_usage("--quant w8a8-static: " + settings.model + " has no scales of activations",
                 "give a calibration text with --calibrate");
    }
    return;
  }
  describe_model(engine.config(), kDtypeOf<T>, engine.memory());
  engine.allocate();
  HostWeights weights(engine.table());
  load_weights(settings.model, weights, engine.stream());
  const CalibratedScales scales =
      calibrate_scales(engine.config(), weights, read_calibration_text(settings, settings.model),
                       quantize_options(settings));
  weights.copy_to(engine.state(), engine.stream());
  set_scales(*engine.state().quantized(), scales, engine.stream());
}

}  // namespace llmc
