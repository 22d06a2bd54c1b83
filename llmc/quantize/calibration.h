// Measures the inputs of the linear layers of a float model on a calibration text.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "llmc/base/work_progress.h"
#include "llmc/model/engine.h"
#include "llmc/model/int8_weights.h"
#include "llmc/ops/quantize.h"
#include "llmc/quantize/host_weights.h"

namespace llmc {

// The inputs of a block's linear layers, in the order of kBlockLayers.
enum class InputSite { c_attn, attention_c_proj, c_fc, mlp_c_proj };
inline constexpr std::array kInputSites = {InputSite::c_attn, InputSite::attention_c_proj,
                                           InputSite::c_fc, InputSite::mlp_c_proj};

inline const char* site_name(InputSite site) {
  return kBlockLayers[static_cast<std::size_t>(site)];
}

// Measurements of an input (rows, K) on the text.
struct InputStatistics {
  std::vector<ValueRange> channels;  // (K): the range of each channel and 0
  std::vector<float> rows;           // (count, K): rows of the text, evenly spaced

  std::int64_t K() const { return std::ssize(channels); }
  std::int64_t count() const { return K() == 0 ? 0 : std::ssize(rows) / K(); }
};

// The measurements of all sites, layer by layer.
using Calibration = std::vector<std::array<InputStatistics, 4>>;

struct CalibrationOptions {
  std::int64_t window = 512;  // tokens of a window, at most the context
  std::int64_t windows = 16;  // maximum number, evenly spaced in the text
  std::int64_t rows = 128;    // rows of each input that are kept
};

namespace calibration_detail {

inline void add_rows(InputStatistics& statistics, const std::vector<float>& x, std::int64_t K,
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

inline std::vector<float> to_host(const Tensor<float, 2>& x, Stream& stream) {
  std::vector<float> values(static_cast<std::size_t>(x.size()));
  copy_to_host(values.data(), x.data, x.size(), stream);
  stream.synchronize();
  return values;
}

}  // namespace calibration_detail

// Runs the model, in fp32, over windows of `tokens`. Throws if there are fewer than two tokens, or
// if an input is not finite.
inline Calibration calibrate(const Gpt2Config& config, const HostWeights& weights,
                             std::span<const std::int32_t> tokens,
                             const CalibrationOptions& options = {}) {
  using namespace calibration_detail;
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
          engine.runner().activations().block(l, engine.context().tensor.share(T));
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
