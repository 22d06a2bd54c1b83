#include <vector>

#include "llmc/base/error.h"
#include "llmc/config/huggingface_shape.h"
#include "llmc/io/checkpoint/adapter_files.h"
#include "llmc/models/load_adapter.h"

namespace llmc {

namespace {

void check_base(const std::filesystem::path& directory, const AdapterConfig& stored,
                const AdapterConfig& adapter) {
  if (stored.base_hash.empty() || stored.base_hash == adapter.base_hash) return;
  fail("the adapter in " + directory.string() + " belongs to another model than " + adapter.base +
           ": it was trained on " + stored.base,
       "give that model");
}

}  // namespace

void load_adapter(const std::filesystem::path& directory, const AdapterConfig& adapter,
                  const ModelConfig& model, LoadableWeights& weights, Stream& stream) {
  const HuggingFaceConfig config = to_huggingface(model, std::nullopt);
  const AdapterFiles files(directory, config, adapter.shape.fixes_query);
  if (weights.first_rank()) check_base(directory, files.config(), adapter);
  std::vector<float> values;
  for (const AdapterTensor& tensor : adapter_tensors(adapter, config)) {
    const ParameterSpec& spec = weights.table().find(tensor.name);
    values.resize(static_cast<std::size_t>(spec.size()));
    files.load(tensor.name, values);
    weights.set_weight(spec, values.data(), stream);
  }
}

}  // namespace llmc
