#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "llmc/base/checksum.h"
#include "llmc/base/file.h"
#include "llmc/base/notice.h"
#include "llmc/config/choices.h"
#include "llmc/device/device.h"
#include "llmc/device/dtype.h"
#include "llmc/infer/find_models.h"
#include "llmc/infer/load_model.h"
#include "llmc/infer/new_model.h"
#include "llmc/infer/quantize_command.h"
#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/io/checkpoint/model_card.h"
#include "llmc/io/checkpoint/quantized_config.h"
#include "llmc/io/checkpoint/tensor_dtype.h"
#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/models/merge_adapter.h"
#include "llmc/models/merged_config.h"
#include "llmc/models/pretrained.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/quantize/calibrated_scales.h"
#include "llmc/quantize/host_weights.h"
#include "llmc/quantize/quantized_tensors.h"

namespace llmc {

namespace {

// ContentChecksum of the names and fp32 values of the float tensors, in the order of the table.
std::string hash_of(const HostWeights& weights) {
  ContentChecksum hash;
  for (const ParameterSpec& spec : weights.table().specs()) {
    hash.add(std::as_bytes(std::span(spec.name)));
    hash.add(std::as_bytes(std::span(weights.of(spec))));
  }
  return hash.text();
}

std::string card_text(const std::string& name, const std::string& source,
                      const std::string& adapter, const QuantizedFormat& format) {
  using namespace model_card_detail;
  const std::string activations =
      !format.quantizes_activations ? "not quantized"
      : format.is_static            ? "8 bits, a fixed scale per input of a layer (experimental)"
      : format.zero_points ? "8 bits, a scale and a zero point per token, computed while it runs"
                           : "8 bits, symmetric, a scale per token, computed while it runs";
  const std::string flags =
      std::string(" --quant ") + format.mode() + (format.zero_points ? "" : " --zero-points off") +
      (format.calibration.empty() ? "" : " --calibrate TEXT") +
      (adapter.empty() ? "" : " --adapter ADAPTER") + " --dtype " + format.dtype;
  return "---\npipeline_tag: text-generation\ntags:\n- gpt2\n- text-generation\n- int8\n---\n\n# " +
         printable(name) +
         "\n\nA GPT-2 language model with INT8 weights, made without further training from the "
         "float\nmodel " +
         code(source) + (adapter.empty() ? "" : " with the merged adapter " + code(adapter)) +
         " by\n\n    ./infer_gpt2 quantize IN OUT" + flags + "\n\n" +
         table({{"mode", code(format.mode())},
                {"weights of linear layers", "8 bits, symmetric, a scale per output"},
                {"token embeddings", "8 bits, symmetric, a scale per token"},
                {"other tensors", code(format.dtype)},
                {"activations", activations},
                {"XXH3-128 of the float tensors", code(format.source)},
                {"XXH3-128 of the calibration text's tokens",
                 format.calibration.empty() ? "none" : code(format.calibration)}}) +
         "`NAME.weight` times `NAME.weight_scale` is a float weight in the layout of "
         "GPT2LMHeadModel.\nThe licence and the description of the float model apply; they are "
         "not repeated here.\n\n## Use\n\n    ./infer_gpt2 --model " +
         printable(name) + " --prompt \"...\" --tokens 40\n";
}

}  // namespace

void quantize_model(const InferConfig& settings) {
  const std::string model = find_float_model("quantize", settings.command.at(1));
  NewModel out("quantize", settings.command.at(2));
  if (!settings.adapter.empty()) check_adapter(settings.adapter, model);
  const HuggingFaceConfig config = read_merged_config(model, settings.adapter);
  const std::string adapter = settings.adapter.empty() ? "" : "--adapter " + settings.adapter;
  require_language_model("quantize " + model + (adapter.empty() ? "" : " with " + adapter),
                         (adapter.empty() ? "" : adapter + " ") + "--model " + model, config);
  const ModelConfig shape = pretrained_shape(model, config);
  const ParameterTable table = gpt2_parameters(shape);
  Stream stream;
  HostWeights weights(table);
  load_merged_weights(model, settings.adapter, weights, stream);
  QuantizedFormat format = {.quantizes_activations = quantizes_activations(settings.quant),
                            .is_static = settings.quant == Quant::w8a8_static,
                            .zero_points = settings.zero_points == ZeroPoints::automatic,
                            .dtype = dtype_name(settings.dtype),
                            .source = hash_of(weights)};
  QuantizedTensors tensors(table, settings.dtype);
  if (!settings.calibrate.empty()) {
    const std::vector<std::int32_t> text = read_calibration_text(settings, model);
    ContentChecksum hash;
    hash.add(std::as_bytes(std::span(text)));
    format.calibration = hash.text();
    const CalibratedScales scales =
        calibrate_scales(shape, weights, text, quantize_options(settings));
    format.smooths_gelu = !scales.gelu_factors.empty();
    tensors.set_scales(scales);
  }
  weights.copy_to(tensors, stream);

  const std::filesystem::path& folder = out.open(model);
  write_file(folder / kConfigName, quantized_config_text(float_config_text(model, config), format));
  write_file(folder / kModelCardName,
             card_text(out.path().filename().string(), model, settings.adapter, format));
  tensors.write(folder / kWeightsName);
  out.commit();
  Notice::print(
      "quantized: " + out.path().string() + ", " + format.mode() + ", " +
      byte_text(static_cast<std::int64_t>(std::filesystem::file_size(out.path() / kWeightsName))));
}

}  // namespace llmc
