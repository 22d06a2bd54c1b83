#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <string>

#include "llmc/base/error.h"
#include "llmc/base/work_progress.h"
#include "llmc/device/device.h"
#include "llmc/device/math.h"
#include "llmc/device/tensor.h"
#include "llmc/models/engine.h"
#include "llmc/models/gpt2/activations.h"
#include "llmc/models/int8_layout.h"
#include "llmc/quantize/calibration.h"

namespace llmc {

const char* site_name(InputSite site) {
  return kBlockLayers[static_cast<std::size_t>(site)];
}

std::int64_t InputStatistics::K() const {
  return std::ssize(channels);
}

std::int64_t InputStatistics::count() const {
  return K() == 0 ? 0 : std::ssize(rows) / K();
}

namespace {

void add_rows(InputStatistics& statistics, const std::vector<float>& x, std::int64_t K,
              std::int64_t keep) {
  statistics.channels.resize(static_cast<std::size_t>(K));
  const std::int64_t rows = std::ssize(x) / K;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t k = 0; k < K; ++k) {
      const float value = x[static_cast<std::size_t>(r * K + k)];
      ValueRange& channel = statistics.channels[static_cast<std::size_t>(k)];
      channel = channel.merged({value, value});
    }
  }
  for (std::int64_t i = 0; i < keep; ++i) {
    const auto row = x.begin() + i * rows / keep * K;
    statistics.rows.insert(statistics.rows.end(), row, row + K);
  }
}

std::vector<float> to_host(const Tensor<float, 2>& x, Stream& stream) {
  std::vector<float> values(static_cast<std::size_t>(x.size()));
  copy_to_host(values.data(), x.data, x.size(), stream);
  stream.synchronize();
  return values;
}

}  // namespace

Calibration calibrate(const ModelConfig& config, const HostWeights& weights,
                      std::span<const std::int32_t> tokens, const CalibrationOptions& options) {
  const std::int64_t total = std::ssize(tokens);
  require(total >= 2, "the calibration text has fewer than two tokens");
  const std::int64_t T = std::min({options.window, config.context, total});
  const std::int64_t windows = std::min(options.windows, total / T);
  const std::int64_t keep = std::min(T, ceil_div(options.rows, windows));
  // The activations of all layers exist only in the shape of training.
  Engine<float> engine(config, {.B = 1, .T = T});
  engine.allocate();
  Stream& stream = engine.stream();
  weights.copy_to(engine.state(), stream);
  Calibration calibration(static_cast<std::size_t>(config.layers));
  WorkProgress progress("calibrating", windows * T);
  for (std::int64_t w = 0; w < windows; ++w) {
    const auto first = tokens.begin() + w * (total - T) / std::max<std::int64_t>(1, windows - 1);
    engine.runner().forward(
        engine.runner().put({.batch = {.B = 1, .T = T, .inputs = {first, first + T}}}));
    for (std::int64_t l = 0; l < config.layers; ++l) {
      const BlockActivations<float> a =
          engine.runner().activations().block(l, engine.context().tensor.rows_of_rank(T));
      const Tensor<float, 2> inputs[] = {a.ln_1, a.attention, a.ln_2, a.gelu};
      for (const InputSite site : kInputSites) {
        const auto i = static_cast<std::size_t>(site);
        const std::vector<float> x = to_host(inputs[i], stream);
        for (const float value : x) {
          if (std::isfinite(value)) continue;
          fail("calibration: the input of h." + std::to_string(l) + "." + site_name(site) +
               " is not finite");
        }
        add_rows(calibration[static_cast<std::size_t>(l)][i], x, inputs[i].shape[1], keep);
      }
    }
    progress.add(T);
  }
  return calibration;
}

}  // namespace llmc
