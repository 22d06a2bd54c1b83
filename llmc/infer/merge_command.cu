#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/base/notice.h"
#include "llmc/device/device.h"
#include "llmc/infer/find_models.h"
#include "llmc/infer/merge_command.h"
#include "llmc/infer/new_model.h"
#include "llmc/io/checkpoint/adapter_card.h"
#include "llmc/io/checkpoint/huggingface.h"
#include "llmc/io/checkpoint/model_card.h"
#include "llmc/io/checkpoint/safetensors.h"
#include "llmc/io/checkpoint/tensor_dtype.h"
#include "llmc/io/tokenizer/tokenizer_files.h"
#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/models/loadable_weights.h"
#include "llmc/models/merge_adapter.h"
#include "llmc/models/merged_config.h"
#include "llmc/models/pretrained.h"
#include "llmc/nn/parameter_table.h"

namespace llmc {

namespace {

// Writes each parameter, in the order of the table, to a file as it is loaded.
class FileWeights final : public LoadableWeights {
 public:
  FileWeights(const ParameterTable& table, const std::filesystem::path& path)
      : table_(table), writer_(path, headers(table)) {}

  const ParameterTable& table() const override { return table_; }
  void set_weight(const ParameterSpec& spec, const float* values, Stream&) override {
    writer_.write(huggingface_name(spec.name), values,
                  spec.size() * static_cast<std::int64_t>(sizeof(float)));
  }
  void finish() { writer_.finish(); }

 private:
  static std::vector<TensorHeader> headers(const ParameterTable& table) {
    std::vector<TensorHeader> tensors;
    for (const ParameterSpec& spec : table.specs())
      tensors.push_back({spec.name, TensorDtype::f32, spec.shape});
    return huggingface_tensors(std::move(tensors));
  }

  const ParameterTable& table_;
  SafetensorsWriter writer_;
};

std::string merged_card_text(const std::string& name, const std::string& base,
                             const std::string& adapter, const AdapterConfig& adapter_config,
                             const HuggingFaceConfig& config) {
  using namespace model_card_detail;
  std::vector<std::pair<std::string, std::string>> rows = {{"base model", code(base)},
                                                           {"adapter", code(adapter)}};
  for (auto& row : adapter_rows(adapter_config)) rows.push_back(std::move(row));
  rows.emplace_back("tensors", code("fp32"));
  const bool classifies = !config.label_names.empty();
  const std::string tag = classifies ? "text-classification" : "text-generation";
  const std::string kind = classifies ? "classifier" : "language model";
  const std::string use =
      classifies ? "./infer_gpt2 classify FILE --model " + printable(name)
                 : "./infer_gpt2 --model " + printable(name) + " --prompt \"...\" --tokens 40";
  return "---\npipeline_tag: " + tag + "\ntags:\n- gpt2\n- " + tag + "\n---\n\n# " +
         printable(name) + "\n\nA GPT-2 " + kind + ": the weights of " + code(base) +
         ", into which the adapter\n" + code(adapter) +
         " is merged, by\n\n    ./infer_gpt2 merge BASE ADAPTER OUT\n\n" + table(rows) +
         "The licences and the descriptions of the base model and the adapter apply; they are not\n"
         "repeated here.\n\n## Use\n\n    " +
         use + "\n";
}

void add_pad_token(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const std::string_view name : kTokenRoleFileNames) {
    const std::filesystem::path path = folder / name;
    if (!std::filesystem::exists(path, ignored)) continue;
    write_file(path, with_pad_token({std::string(name), read_file(path)}));
  }
}

}  // namespace

void merge_model(const InferConfig& settings) {
  const std::string base = find_float_model("merge", settings.command.at(1));
  const std::string adapter = find_adapter("merge", settings.command.at(2));
  NewModel out("merge", settings.command.at(3));
  const AdapterConfig adapter_config = check_adapter(adapter, base);
  const HuggingFaceConfig config = read_merged_config(base, adapter);
  const ParameterTable table = gpt2_parameters(pretrained_shape(base, config));
  const std::filesystem::path& folder = out.open(base);
  std::string config_text = change_config_dtype(float_config_text(base, config), "float32");
  if (!config.label_names.empty()) {
    config_text = classifier_config_text(config_text, config);
    add_pad_token(folder);
  }
  write_file(folder / kConfigName, config_text);
  write_file(folder / kModelCardName, merged_card_text(out.path().filename().string(), base,
                                                       adapter, adapter_config, config));
  Stream stream;
  FileWeights weights(table, folder / kWeightsName);
  load_merged_weights(base, adapter, weights, stream);
  weights.finish();
  out.commit();
  Notice::print(
      "merged: " + out.path().string() + ", fp32, " +
      byte_text(static_cast<std::int64_t>(std::filesystem::file_size(out.path() / kWeightsName))));
}

}  // namespace llmc
