#include <string>

#include "llmc/base/error.h"
#include "llmc/base/notice.h"
#include "llmc/infer/find_models.h"
#include "llmc/infer/quant_mode.h"
#include "llmc/io/checkpoint/adapter_card.h"
#include "llmc/models/merge_adapter.h"
#include "llmc/models/merged_config.h"
#include "llmc/models/pretrained.h"

namespace llmc {

void require_language_model(const std::string& name, const std::string& flags,
                            const HuggingFaceConfig& config) {
  if (config.label_names.empty()) return;
  fail(name + " is a classifier with " + std::to_string(config.label_names.size()) +
           " labels, not a language model",
       "use: infer_gpt2 classify FILE " + flags);
}

namespace {

// Throws unless the model, with its adapter, is of the kind that the command needs.
void check_kind(const InferConfig& settings) {
  const HuggingFaceConfig config = read_merged_config(settings.model, settings.adapter);
  const bool classifies = !settings.command.empty() && settings.command.front() == "classify";
  const std::string model = "--model " + settings.model;
  const std::string name = settings.adapter.empty() ? model : "--adapter " + settings.adapter;
  const std::string flags = settings.adapter.empty() ? model : name + " " + model;
  if (!classifies) return require_language_model(name, flags, config);
  if (!config.label_names.empty()) return;
  fail(name + " is a language model without labels: it cannot classify",
       "give a classifier, such as the --out of train_gpt2 --task classify");
}

}  // namespace

AdapterConfig check_adapter(const std::string& adapter, const std::string& base) {
  const AdapterMerge merge(adapter, base);
  Notice::print("adapter: " + adapter + ", " + adapter_summary(merge.config()) + ", merged into " +
                base);
  return merge.config();
}

void find_models(const InferRequest& request, InferConfig& settings) {
  // The command quantize has its model as an argument.
  const bool has_model = settings.command.empty() || settings.command.front() != "quantize";
  if (!settings.adapter.empty()) {
    settings.adapter = find_adapter("--adapter", settings.adapter);
    if (has_model && settings.model.empty())
      settings.model = find_adapter_base("--model", settings.adapter);
  }
  if (!settings.model.empty()) {
    settings.model = settings.adapter.empty() ? find_pretrained("--model", settings.model)
                                              : find_float_model("--model", settings.model);
    resolve_quant(request, settings);
    if (!settings.adapter.empty()) check_adapter(settings.adapter, settings.model);
    check_kind(settings);
  }
  if (settings.base.empty()) return;
  settings.base = find_float_model("--base", settings.base);
  require_language_model("--base " + settings.base, "--model " + settings.base,
                         read_pretrained_config(settings.base));
}

}  // namespace llmc
