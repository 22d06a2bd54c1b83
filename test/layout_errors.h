// How far the results of a layout of ranks are from those of one rank, next to one rank's own
// distance from the fp64 oracle.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "test/activations.h"
#include "test/layout_rig.h"

namespace llmc_test {

using NamedDoubles = std::map<std::string, std::vector<double>>;

// The results of the oracle, which trains like train() in layout_rig.h.
struct OracleResults {
  std::vector<double> losses, norms;
  NamedDoubles gradients, weights, first_moments, second_moments;
};

inline oracle::Config oracle_config(const ModelConfig& config) {
  return {.T_max = config.context,
          .V = config.vocabulary,
          .L = config.layers,
          .NH = config.heads,
          .C = config.channels,
          .activation = oracle_activation(config.activation),
          .inner = config.inner,
          .norm_epsilon = config.norm_epsilon,
          .scale_attention = config.scale_attention,
          .scale_attention_by_layer = config.scale_attention_by_layer,
          .tied_head = config.tied_head};
}

// The loss of a batch, whose targets each count 1 / `targets`, and its gradients.
inline double oracle_pass(const oracle::Config& config, const oracle::Tensors& parameters,
                          oracle::Batch batch, std::int64_t targets, const oracle::Dropout& dropout,
                          oracle::Tensors& gradients) {
  std::vector<double> weights;
  for (auto& target : batch.targets) {
    weights.push_back(target < 0 ? 0.0 : 1.0 / static_cast<double>(targets));
    target = std::max<oracle::Index>(target, 0);
  }
  oracle::Ints all_targets = std::exchange(batch.targets, {});
  oracle::Activations a = oracle::forward(config, parameters, batch, dropout);
  a.classifier = oracle::classifier(a.logits, all_targets, batch.B * batch.T, config.V, weights);
  for (const auto& [name, gradient] : oracle::backward(config, parameters, batch, a, dropout)) {
    oracle::add_to(gradients.at(name), gradient);
  }
  return a.classifier.loss;
}

inline OracleResults train_oracle(std::int64_t batches, const LayoutOptions& options) {
  const oracle::Config config = oracle_config(options.config());
  oracle::Tensors parameters;
  {
    ModelRig<float> rig(options.config(), {.B = 1, .T = kSequence});
    initialise(rig.state(), rig.stream());
    for (const auto& [name, values] : rig.weights()) {
      parameters[name] = {values.begin(), values.end()};
    }
  }
  oracle::Tensors first = oracle::zeros_like_parameters(config), second = first;
  const OptimizerOptions optimizer = optimizer_of(options);
  OracleResults results;
  for (std::int64_t step = 0; step < options.steps; ++step) {
    oracle::Tensors gradients = oracle::zeros_like_parameters(config);
    const std::int64_t targets = targets_of_step(step, batches, options);
    double loss = 0, squares = 0;
    for (std::int64_t i = 0; i < batches; ++i) {
      const oracle::Dropout dropout{.embedding = options.dropout.embedding,
                                    .attention = options.dropout.attention,
                                    .residual = options.dropout.residual,
                                    .seed = kSeed,
                                    .step = static_cast<std::uint32_t>(step),
                                    .first_sample = i * options.B};
      loss +=
          oracle_pass(config, parameters, batch_of(step, i, options), targets, dropout, gradients);
    }
    results.losses.push_back(loss);
    if (step == 0) results.gradients = gradients;
    for (const auto& [name, gradient] : gradients) squares += oracle::sum_of_squares(gradient);
    results.norms.push_back(std::sqrt(squares));
    const double factor = oracle::clip_factor(results.norms.back(), options.grad_clip);
    for (const oracle::NamedShape& p : oracle::parameter_shapes(config)) {
      for (double& g : gradients.at(p.name)) g *= factor;
      oracle::adamw_step(parameters.at(p.name), first.at(p.name), second.at(p.name),
                         gradients.at(p.name), step + 1,
                         {.lr = kLearningRate,
                          .beta1 = optimizer.beta1,
                          .beta2 = optimizer.beta2,
                          .eps = optimizer.eps,
                          .weight_decay = p.shape.size() < 2 ? 0 : optimizer.weight_decay});
    }
  }
  results.weights = std::move(parameters);
  results.first_moments = std::move(first);
  results.second_moments = std::move(second);
  return results;
}

// The difference between ranks and one rank, relative to the result, and one rank's difference from
// the oracle.
struct TensorError {
  std::string name;
  double error = 0, own_error = 0;

  // DESIGN.md, "N ranks against one".
  double bound() const { return std::max(2e-6, 2 * own_error); }
  double ratio() const { return error / bound(); }
};

namespace layout_errors_detail {

// ||a - b|| of elements [first, end) over ||b|| of all.
template <class A, class B>
double part_error(const std::vector<A>& a, const std::vector<B>& b, std::size_t first,
                  std::size_t end) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const auto value = static_cast<double>(b[i]);
    norm += value * value;
    if (i < first || i >= end) continue;
    error += std::pow(static_cast<double>(a[i]) - value, 2);
  }
  return error == 0 ? 0 : std::sqrt(error / norm);
}

inline void append_errors(std::vector<TensorError>& errors, const std::string& kind,
                          const NamedFloats& ranks, const NamedFloats& one,
                          const NamedDoubles& exact) {
  for (const auto& [name, values] : one) {
    const auto compare = [&](const std::string& part, std::size_t first, std::size_t end) {
      errors.push_back({kind + " of " + name + part, part_error(ranks.at(name), values, first, end),
                        part_error(values, exact.at(name), first, end)});
    };
    const std::size_t n = values.size();
    if (name.ends_with("c_attn.bias")) {
      // The true gradient of the keys' bias is zero: it is compared relative to the whole tensor.
      compare(" (queries)", 0, n / 3);
      compare(" (keys)", n / 3, 2 * n / 3);
      compare(" (values)", 2 * n / 3, n);
    } else {
      compare("", 0, n);
    }
  }
}

inline void append_numbers(std::vector<TensorError>& errors, const std::string& kind,
                           const std::vector<float>& ranks, const std::vector<float>& one,
                           const std::vector<double>& exact) {
  for (std::size_t i = 0; i < one.size(); ++i) {
    const auto value = static_cast<double>(one[i]);
    errors.push_back({kind + " of step " + std::to_string(i + 1),
                      std::abs(static_cast<double>(ranks[i]) - value) / std::abs(value),
                      std::abs(value - exact[i]) / std::abs(exact[i])});
  }
}

}  // namespace layout_errors_detail

// Loss and norm of each step, gradients of the first step, and weights and moments after the last.
inline std::vector<TensorError> layout_errors(const Results& ranks, const Results& one,
                                              const OracleResults& exact) {
  using namespace layout_errors_detail;
  std::vector<TensorError> errors;
  append_numbers(errors, "loss", ranks.losses, one.losses, exact.losses);
  append_numbers(errors, "norm", ranks.norms, one.norms, exact.norms);
  append_errors(errors, "gradient", ranks.gradients, one.gradients, exact.gradients);
  append_errors(errors, "weight", ranks.weights, one.weights, exact.weights);
  append_errors(errors, "first moment", ranks.first_moments, one.first_moments,
                exact.first_moments);
  append_errors(errors, "second moment", ranks.second_moments, one.second_moments,
                exact.second_moments);
  return errors;
}

// The one that is closest to its bound, or furthest beyond it. NaN counts as the furthest.
inline TensorError worst_error(const std::vector<TensorError>& errors) {
  return *std::ranges::max_element(errors, {}, [](const TensorError& error) {
    return std::isnan(error.ratio()) ? INFINITY : error.ratio();
  });
}

// A row of the table of worst tensors.
inline std::string error_row(const std::string& layout, const TensorError& worst) {
  char numbers[64];
  std::snprintf(numbers, sizeof numbers, "%.1e | %.1e", worst.error, worst.own_error);
  return layout + " | " + worst.name + " | " + numbers;
}

}  // namespace llmc_test
