#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <string>
#include <utility>

#include "llmc/base/threads.h"
#include "llmc/base/work_progress.h"
#include "llmc/ops/gemm/quantize_weight.h"
#include "llmc/quantize/smoothing.h"

namespace llmc {

ValueRange smooth_range(const InputStatistics& input, const std::vector<float>& factors) {
  ValueRange range;
  for (std::size_t k = 0; k < input.channels.size(); ++k) {
    const float factor = factors.empty() ? 1 : factors[k];
    range = range.merged({input.channels[k].min / factor, input.channels[k].max / factor});
  }
  return range;
}

namespace {

// x (rows, K) times weight (K, N), in fp64.
std::vector<double> product(const std::vector<float>& x, const std::vector<float>& weight,
                            std::int64_t K) {
  const std::size_t k_count = static_cast<std::size_t>(K);
  const std::size_t rows = x.size() / k_count, N = weight.size() / k_count;
  std::vector<double> out(rows * N);
  for_each_parallel(rows, available_processors(), [&](std::size_t r) {
    double* const sums = out.data() + r * N;
    for (std::size_t k = 0; k < k_count; ++k) {
      const double factor = x[r * k_count + k];
      const float* const row = weight.data() + k * N;
      for (std::size_t n = 0; n < N; ++n) sums[n] += factor * row[n];
    }
  });
  return out;
}

// The size of the difference of two lists, relative to that of the first one.
double relative_error(const std::vector<double>& exact, const std::vector<double>& values) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    error += (values[i] - exact[i]) * (values[i] - exact[i]);
    size += exact[i] * exact[i];
  }
  return size > 0 ? std::sqrt(error / size) : 0;
}

// The relative error of X W = exact, X (rows, K) and W (K, N), if both are quantized after
// smoothing by `factors`.
double output_error(const InputStatistics& input, const std::vector<float>& weight,
                    const std::vector<double>& exact, const std::vector<float>& factors,
                    const ActivationMode& mode) {
  const std::int64_t K = input.K(), N = std::ssize(weight) / K, rows = input.count();
  std::vector<float> smooth_weight(weight.size()), smooth_rows(input.rows.size());
  for (std::int64_t k = 0; k < K; ++k) {
    const float factor = factors.empty() ? 1 : factors[static_cast<std::size_t>(k)];
    for (std::int64_t n = 0; n < N; ++n) smooth_weight[k * N + n] = weight[k * N + n] * factor;
    for (std::int64_t r = 0; r < rows; ++r) smooth_rows[r * K + k] = input.rows[r * K + k] / factor;
  }
  const WeightCodes codes =
      quantize_weight(smooth_weight.data(), K, N, OutputAxis::columns, "smoothed weight");
  for (std::int64_t i = 0; i < K * N; ++i)
    smooth_weight[i] = static_cast<float>(codes.codes[i]) * codes.scales[i % N];
  const Quantization fixed =
      activation_quantization(smooth_range(input, factors), mode.zero_points);
  for (std::int64_t r = 0; r < rows; ++r) {
    float* const row = smooth_rows.data() + r * K;
    ValueRange range;
    for (std::int64_t k = 0; k < K; ++k) range = range.merged({row[k], row[k]});
    const Quantization q =
        mode.is_static ? fixed : activation_quantization(range, mode.zero_points);
    const CodeRounding rounding(q);
    for (std::int64_t k = 0; k < K; ++k) row[k] = dequantize(rounding.code(row[k]), q);
  }
  return relative_error(exact, product(smooth_rows, smooth_weight, K));
}

std::vector<float> factors_of(const InputStatistics& input, const std::vector<float>& weight,
                              double alpha) {
  const std::int64_t K = input.K(), N = std::ssize(weight) / K;
  std::vector<float> factors(static_cast<std::size_t>(K), 1.0f);
  for (std::int64_t k = 0; k < K; ++k) {
    double largest = 0;
    for (std::int64_t n = 0; n < N; ++n)
      largest = std::max(largest, std::fabs(static_cast<double>(weight[k * N + n])));
    const ValueRange& channel = input.channels[static_cast<std::size_t>(k)];
    const double magnitude = std::max(channel.max, -channel.min);
    if (largest <= 0 || magnitude <= 0) continue;
    const double factor = std::pow(magnitude, alpha) / std::pow(largest, 1 - alpha);
    factors[static_cast<std::size_t>(k)] = static_cast<float>(std::clamp(factor, 1e-5, 1e5));
  }
  return factors;
}

}  // namespace

SmoothingChoice choose_smoothing(const InputStatistics& input, const std::vector<float>& weight,
                                 const ActivationMode& mode) {
  const std::vector<double> exact = product(input.rows, weight, input.K());
  SmoothingChoice best;
  best.error = best.plain_error = output_error(input, weight, exact, {}, mode);
  for (int tenths = 3; tenths <= 9; ++tenths) {
    const double alpha = 0.1 * tenths;
    std::vector<float> factors = factors_of(input, weight, alpha);
    const double error = output_error(input, weight, exact, factors, mode);
    if (error >= best.error) continue;
    best.alpha = alpha;
    best.error = error;
    best.factors = std::move(factors);
  }
  return best;
}

namespace {

// Multiplies row k of a weight by factors[k].
void scale_rows(std::vector<float>& weight, const std::vector<float>& factors) {
  const std::size_t N = weight.size() / factors.size();
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] *= factors[i / N];
}
// Divides values[first + k], or column first + k of a matrix with `columns` columns, by factors[k].
void divide_columns(std::vector<float>& values, const std::vector<float>& factors,
                    std::size_t columns, std::size_t first) {
  for (std::size_t row = 0; row < values.size(); row += columns) {
    for (std::size_t k = 0; k < factors.size(); ++k) values[row + first + k] /= factors[k];
  }
}

}  // namespace

void fold_smoothing(HostWeights& weights, std::int64_t layer, const BlockSmoothing& block) {
  const std::string h = "h." + std::to_string(layer) + ".";
  for (const InputSite site : kInputSites) {
    const std::vector<float>& factors = block[static_cast<std::size_t>(site)].factors;
    if (factors.empty()) continue;
    const std::size_t C = weights.of(h + "ln_1.weight").size();
    scale_rows(weights.of(h + site_name(site) + ".weight"), factors);
    if (site == InputSite::c_attn || site == InputSite::c_fc) {
      const std::string norm = h + (site == InputSite::c_attn ? "ln_1" : "ln_2");
      divide_columns(weights.of(norm + ".weight"), factors, C, 0);
      divide_columns(weights.of(norm + ".bias"), factors, C, 0);
    } else if (site == InputSite::attention_c_proj) {
      divide_columns(weights.of(h + "attn.c_attn.weight"), factors, 3 * C, 2 * C);
      divide_columns(weights.of(h + "attn.c_attn.bias"), factors, 3 * C, 2 * C);
    }
  }
}

std::vector<BlockSmoothing> smooth(HostWeights& weights, const Calibration& calibration,
                                   const ActivationMode& mode) {
  std::vector<BlockSmoothing> choices(calibration.size());
  WorkProgress progress("smoothing", std::ssize(calibration) * std::ssize(kInputSites));
  for (std::size_t l = 0; l < calibration.size(); ++l) {
    for (const InputSite site : kInputSites) {
      const auto i = static_cast<std::size_t>(site);
      choices[l][i] = choose_smoothing(
          calibration[l][i],
          weights.of("h." + std::to_string(l) + "." + site_name(site) + ".weight"), mode);
      progress.add(1);
    }
    fold_smoothing(weights, static_cast<std::int64_t>(l), choices[l]);
  }
  return choices;
}

}  // namespace llmc
