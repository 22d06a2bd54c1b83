#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/device/device.h"
#include "llmc/device/dtype.h"
#include "llmc/infer/load_model.h"
#include "llmc/infer/prompt.h"
#include "llmc/models/merge_adapter.h"
#include "llmc/nn/memory_plan.h"
#include "llmc/quantize/calibration_text.h"
#include "llmc/quantize/host_weights.h"

namespace llmc {

Int8Pass int8_pass(const InferConfig& settings, GenerationRunner& runner) {
  Int8Pass pass{.quantizes_rows = quantizes_activations(settings.quant),
                .zero_points = settings.zero_points == ZeroPoints::automatic};
  if (const auto* codes = runner.weights().quantized()) pass.scales = &codes->activations();
  return pass;
}

std::unique_ptr<GenerationRunner> make_decoding_runner(const InferConfig& settings,
                                                       const ModelConfig& config) {
  return make_generation_runner(settings.dtype, config,
                                decode_shape(settings.quant != Quant::none));
}

namespace {

// Prints the model, the device and the memory; throws if the device has too little free memory.
void describe_model(const ModelConfig& config, Dtype dtype, const MemoryPlan& memory) {
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

}  // namespace

void load_model(GenerationRunner& runner, const std::string& path, const std::string& adapter) {
  describe_model(runner.config(), runner.dtype(), runner.memory());
  runner.allocate();
  load_merged_weights(path, adapter, runner.weights(), runner.stream());
}

std::vector<std::int32_t> read_calibration_text(const InferConfig& settings,
                                                const std::string& model) {
  InferConfig own = settings;
  own.model = model;
  return calibration_tokens(settings.calibrate, settings.bin_format,
                            *read_model_files(own).tokenizer);
}

QuantizeOptions quantize_options(const InferConfig& settings) {
  return {.activations = {.zero_points = settings.zero_points == ZeroPoints::automatic,
                          .is_static = settings.quant == Quant::w8a8_static},
          .smoothing = settings.smoothing == Smoothing::automatic};
}

void load_model(GenerationRunner& runner, const InferConfig& settings) {
  if (settings.calibrate.empty()) {
    load_model(runner, settings.model, settings.adapter);
    if (settings.quant != Quant::w8a8_static) return;
    if (runner.weights().quantized()->activations().fixed.empty()) {
      fail_usage("--quant w8a8-static: " + settings.model + " has no scales of activations",
                 "give a calibration text with --calibrate");
    }
    return;
  }
  describe_model(runner.config(), runner.dtype(), runner.memory());
  runner.allocate();
  Stream& stream = runner.stream();
  HostWeights weights(runner.weights().table());
  load_merged_weights(settings.model, settings.adapter, weights, stream);
  const CalibratedScales scales =
      calibrate_scales(runner.config(), weights, read_calibration_text(settings, settings.model),
                       quantize_options(settings));
  weights.copy_to(runner.weights(), stream);
  set_scales(*runner.weights().quantized(), scales, stream);
}

}  // namespace llmc
