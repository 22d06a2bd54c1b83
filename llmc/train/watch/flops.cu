#include "llmc/device/peak.h"
#include "llmc/train/watch/flops.h"

namespace llmc {

FlopsPerToken flops_per_token(const ParameterTable& table, const ModelConfig& config,
                              std::int64_t T) {
  std::int64_t forward = 0;
  for (const ParameterSpec& spec : table.specs()) forward += spec.flops_per_token();
  const double products = 3.0 * static_cast<double>(forward);
  const double attention = 6.0 * static_cast<double>(config.layers * T * config.channels);
  return {products + attention, products + 2 * attention};
}

Peak known_peak(double override_tflops, const DeviceProperties& properties, Dtype dtype,
                bool tf32) {
  if (override_tflops > 0) return {1e12 * override_tflops, "--peak-tflops"};
  const DataSheetPeak data_sheet = data_sheet_peak(properties, dtype, tf32);
  if (data_sheet.flops() > 0) {
    return {data_sheet.flops(), "data sheet: " + data_sheet.text()};
  }
  return {0, "measured: the fastest matrix product", true};
}

}  // namespace llmc
