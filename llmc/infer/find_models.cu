#include <string>

#include "llmc/base/notice.h"
#include "llmc/infer/find_models.h"
#include "llmc/infer/quant_mode.h"
#include "llmc/io/checkpoint/adapter_card.h"
#include "llmc/models/merge_adapter.h"
#include "llmc/models/pretrained.h"

namespace llmc {

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
  }
  if (!settings.base.empty()) settings.base = find_float_model("--base", settings.base);
}

}  // namespace llmc
