#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/notice.h"
#include "llmc/config/choices.h"
#include "llmc/device/device.h"
#include "llmc/device/dtype.h"
#include "llmc/infer/load_model.h"
#include "llmc/infer/quantize_command.h"
#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/io/checkpoint/llmc_model_file.h"
#include "llmc/io/checkpoint/model_card.h"
#include "llmc/io/checkpoint/pending_directory.h"
#include "llmc/io/checkpoint/quantized_config.h"
#include "llmc/io/checkpoint/tensor_dtype.h"
#include "llmc/io/tokenizer/tokenizer_files.h"
#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/models/load_weights.h"
#include "llmc/models/pretrained.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/quantize/calibrated_scales.h"
#include "llmc/quantize/host_weights.h"
#include "llmc/quantize/quantized_tensors.h"

namespace llmc {

namespace {

// The absolute path of a directory that may be created. Throws if it exists and is not an empty
// directory.
std::filesystem::path new_directory(const std::string& out) {
  std::error_code error;
  std::filesystem::path path =
      std::filesystem::weakly_canonical(std::filesystem::absolute(out), error);
  if (error) fail_file("examine", out, error.value());
  if (!path.has_filename()) path = path.parent_path();
  if (!path_exists(path)) return path;
  const bool empty = std::filesystem::is_directory(path, error) &&
                     std::filesystem::is_empty(path, error) && !error;
  if (!empty) {
    fail("quantize: " + out + " exists and is not an empty directory",
         "give a new name; quantize overwrites nothing");
  }
  return path;
}

// ContentChecksum of the names and fp32 values of the float tensors, in the order of the table.
std::string hash_of(const HostWeights& weights) {
  ContentChecksum hash;
  for (const ParameterSpec& spec : weights.table().specs()) {
    hash.add(std::as_bytes(std::span(spec.name)));
    hash.add(std::as_bytes(std::span(weights.of(spec))));
  }
  return hash.text();
}

// config.json of the float model at `model`.
std::string float_config_text(const std::string& model, const HuggingFaceConfig& config) {
  if (is_llmc_model_file(model)) return huggingface_config_text(config, TensorDtype::f32);
  return read_file(std::filesystem::path(model) / kConfigName);
}

// Copies the files of the tokenizer, and the defaults of generation.
void copy_text_files(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::vector<const char*> names(kTokenizerFileNames.begin(), kTokenizerFileNames.end());
  names.push_back(kGenerationConfigName);
  std::error_code ignored;
  for (const char* name : names) {
    if (std::filesystem::is_regular_file(from / name, ignored)) {
      write_file(to / name, read_file(from / name));
    }
  }
}

std::string card_text(const std::string& name, const std::string& source,
                      const QuantizedFormat& format) {
  using namespace model_card_detail;
  const std::string activations =
      !format.quantizes_activations ? "not quantized"
      : format.is_static            ? "8 bits, a fixed scale per input of a layer (experimental)"
      : format.zero_points ? "8 bits, a scale and a zero point per token, computed while it runs"
                           : "8 bits, symmetric, a scale per token, computed while it runs";
  const std::string flags =
      std::string(" --quant ") + format.mode() + (format.zero_points ? "" : " --zero-points off") +
      (format.calibration.empty() ? "" : " --calibrate TEXT") + " --dtype " + format.dtype;
  return "---\npipeline_tag: text-generation\ntags:\n- gpt2\n- text-generation\n- int8\n---\n\n# " +
         printable(name) +
         "\n\nA GPT-2 language model with INT8 weights, made without further training from the "
         "float\nmodel " +
         code(source) + " by\n\n    ./infer_gpt2 quantize IN OUT" + flags + "\n\n" +
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
  const std::filesystem::path out = new_directory(settings.command.at(2));
  const HuggingFaceConfig config = read_pretrained_config(model);
  const ModelConfig shape = pretrained_shape(model, config);
  const ParameterTable table = gpt2_parameters(shape);
  Stream stream;
  HostWeights weights(table);
  load_weights(model, weights, stream);
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

  make_directory(out.parent_path());
  remove_unfinished_directories(out.parent_path(), out.filename().string() + ".");
  PendingDirectory pending(out);
  const std::filesystem::path& folder = pending.path();
  if (!is_llmc_model_file(model)) copy_text_files(model, folder);
  write_file(folder / kConfigName, quantized_config_text(float_config_text(model, config), format));
  write_file(folder / kModelCardName, card_text(out.filename().string(), model, format));
  tensors.write(folder / kWeightsName);
  // Replaces only an empty directory.
  if (::rename(folder.c_str(), out.c_str()) != 0) fail_file("name", out, errno);
  pending.release();
  sync_directory(out.parent_path());
  Notice::print(
      "quantized: " + out.string() + ", " + format.mode() + ", " +
      byte_text(static_cast<std::int64_t>(std::filesystem::file_size(out / kWeightsName))));
}

}  // namespace llmc
