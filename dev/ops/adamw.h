// AdamW over all parameters of a GPT-2: one launch for all tensors; one launch per tensor (as in
// training, where weight decay differs between tensors); one number per thread; and stochastically
// rounded weights, of a whole tensor and of the pieces of one that a rank has. Also begin_adamw,
// which counts the update before them.
#pragma once

#include <numeric>

#include "dev/harness/op_case.h"
#include "dev/variants/scalar.h"
#include "llmc/ops/optimizer/adamw.h"
#include "test/oracle/ops.h"
#include "test/oracle/rounding.h"

namespace llmc_dev::adamw {

namespace oracle = llmc::oracle;

struct Shape {
  const char* name;
  std::int64_t L, C, V, T;
  std::int64_t tail = 0;  // more elements of the last tensor, which then fills no vector
  bool fp16 = true;

  // Elements of each tensor, all multiples of C except the last one.
  std::vector<std::int64_t> tensors() const {
    std::vector<std::int64_t> sizes = {V * C, T * C};
    for (std::int64_t l = 0; l < L; ++l) {
      sizes.insert(sizes.end(), {C, C, 3 * C * C, 3 * C, C * C, C});      // attention
      sizes.insert(sizes.end(), {C, C, 4 * C * C, 4 * C, 4 * C * C, C});  // MLP
    }
    sizes.insert(sizes.end(), {C, C + tail});
    return sizes;
  }
};

constexpr llmc::OptimizerOptions kOptions{.beta1 = 0.9,
                                          .beta2 = 0.95,
                                          .eps = 1e-8,
                                          .weight_decay = 0.1,
                                          .grad_clip = 1,
                                          .loss_scale_window = 2000};
constexpr double kLearningRate = 1e-3;
constexpr int kUpdates = 10;
constexpr std::int64_t kMaxCompared = 65536;
constexpr float kGradientScale = 0.5f;
constexpr llmc::StochasticRounding kRounded{.seed = 0xfedcba9876543210, .tensor = 5};
// The same for a rank with one of two halves of each piece of three per row.
constexpr std::int64_t kPiece = 12;
constexpr llmc::StochasticRounding kRoundedPieces{.seed = kRounded.seed,
                                                  .tensor = kRounded.tensor,
                                                  .index = {.begin = kPiece,
                                                            .row_size = 3 * kPiece,
                                                            .piece = kPiece,
                                                            .global_row_size = 6 * kPiece,
                                                            .global_piece = 2 * kPiece},
                                                  .first = 16};

inline llmc::OptimizerState state_after(int updates) {
  const double t = updates;
  return {.gradient_scale = kGradientScale,
          .finite = 1,
          .updates = updates,
          .bias_correction1 = static_cast<float>(1 - std::pow(kOptions.beta1, t)),
          .bias_correction2_root = static_cast<float>(std::sqrt(1 - std::pow(kOptions.beta2, t)))};
}

// The working weights of these rows, each `columns` long, if the masters are `p`. They are exact to
// the bit: a stochastically rounded element has a fixed draw.
template <class T>
oracle::Vec rounded(oracle::Vec p, const std::string& variant,
                    const std::vector<std::int64_t>& rows, std::int64_t columns) {
  const bool pieces = variant == "stochastic_pieces";
  const bool is_stochastic = pieces || variant == "stochastic";
  const auto element = [&](std::int64_t i) {
    const std::int64_t local = kRoundedPieces.first + i;
    return pieces ? (local / kPiece * 2 + 1) * kPiece + local % kPiece : i;
  };
  const oracle::StochasticRounding definition{kRounded.seed, kRounded.tensor, kUpdates};
  constexpr auto kFormat = std::is_same_v<T, fp16> ? oracle::kFp16 : oracle::kBf16;
  for (std::size_t k = 0; k < p.size(); ++k) {
    const auto i = static_cast<std::int64_t>(k);
    p[k] = is_stochastic
               ? definition.round(p[k], element(rows[i / columns] * columns + i % columns), kFormat)
               : static_cast<double>(llmc::to_float(llmc::from_float<T>(static_cast<float>(p[k]))));
  }
  return p;
}

// T: the dtype of the working weights; everything else is fp32. As in training, fp32 has no working
// copy and uses the masters directly.
template <class T>
void adamw(OpRunner& runner, const Shape& s) {
  constexpr bool kCopy = sizeof(T) < sizeof(float);
  std::vector<std::string> variants = {"one_launch", "per_tensor", "scalar"};
  if (kCopy) variants.insert(variants.end(), {"stochastic", "stochastic_pieces"});
  const std::vector<std::int64_t> tensors = s.tensors();
  const std::int64_t n = std::accumulate(tensors.begin(), tensors.end(), std::int64_t{0});
  OpCase c(runner,
           {.op = "adamw",
            .shape = std::string(s.name) + " " + std::to_string(n),
            .dtype = kDtypeOf<T>,
            .variants = variants,
            .bytes = (7.0 * sizeof(float) + (kCopy ? sizeof(T) : 0)) * static_cast<double>(n)});
  if (!c.is_selected()) return;
  auto& param = c.output<float>(n, normal(1, 0.02f));
  auto& m = c.output<float>(n, normal(2, 0.1f));
  auto& v = c.output<float>(n, positive(3, 0.1f));
  DeviceArray<T>* working = kCopy ? &c.output<T>(n) : nullptr;
  const auto copy_at = [=](int set, std::int64_t first) {
    return working != nullptr ? working->at(set) + first : nullptr;
  };
  auto& gradient = c.input<float>(n, normal(4));
  const Buffer<llmc::OptimizerState> state(1);
  const llmc::OptimizerState now = state_after(kUpdates);
  llmc::copy_to_device(state.data(), &now, 1, runner.stream());
  runner.stream().synchronize();

  c.variant("one_launch", [&](int i) {
    llmc::adamw<T>(param.at(i), copy_at(i, 0), m.at(i), v.at(i), gradient.at(i), n, kOptions,
                   kLearningRate, true, state.data(), runner.stream());
  });
  c.variant("per_tensor", [&](int i) {
    std::int64_t first = 0;
    for (const std::int64_t size : tensors) {
      llmc::adamw<T>(param.at(i) + first, copy_at(i, first), m.at(i) + first, v.at(i) + first,
                     gradient.at(i) + first, size, kOptions, kLearningRate, true, state.data(),
                     runner.stream());
      first += size;
    }
  });
  c.variant("scalar", [&](int i) {
    llmc::launch_elementwise<1>(adamw_scalar_kernel<T>, n, runner.stream(), param.at(i),
                                copy_at(i, 0), m.at(i), v.at(i), gradient.at(i), n,
                                llmc::make_adamw_step(kOptions, kLearningRate, true), state.data());
  });
  if constexpr (kCopy) {
    const auto stochastic = [&](const llmc::StochasticRounding& rounding) {
      return [&, rounding](int i) {
        llmc::adamw<T>(param.at(i), working->at(i), m.at(i), v.at(i), gradient.at(i), n, kOptions,
                       kLearningRate, true, state.data(), runner.stream(), rounding);
      };
    };
    c.variant("stochastic", stochastic(kRounded));
    c.variant("stochastic_pieces", stochastic(kRoundedPieces));
  }

  // A small array is one row, so that all of it is compared. A large one has no tail.
  const std::int64_t columns = n <= kMaxCompared ? n : s.C;
  const auto rows = sample(n / columns, 500);
  oracle::Vec expected_param = param.rows(rows, columns), expected_m = m.rows(rows, columns),
              expected_v = v.rows(rows, columns), g = gradient.rows(rows, columns);
  for (double& x : g) x *= static_cast<double>(kGradientScale);
  oracle::adamw_step(expected_param, expected_m, expected_v, g, kUpdates,
                     {.lr = kLearningRate,
                      .beta1 = kOptions.beta1,
                      .beta2 = kOptions.beta2,
                      .eps = kOptions.eps,
                      .weight_decay = kOptions.weight_decay});
  c.finish([&]([[maybe_unused]] const std::string& variant) {
    const oracle::Vec actual = param.rows(rows, columns);
    std::vector all = {compare("param", actual, expected_param, tolerance<float>()),
                       compare("m", m.rows(rows, columns), expected_m, tolerance<float>()),
                       compare("v", v.rows(rows, columns), expected_v, tolerance<float>())};
    if constexpr (kCopy) {
      all.push_back(compare("working", working->rows(rows, columns),
                            rounded<T>(actual, variant, rows, columns), 0));
    }
    return all;
  });
}

// One thread does the work, so this measures the cost of a launch.
inline void begin(OpRunner& runner) {
  OpCase c(runner,
           {.op = "begin_adamw", .shape = "1", .bytes = 2.0 * sizeof(llmc::OptimizerState)});
  if (!c.is_selected()) return;
  auto& corrections = c.output<float>(2);
  const Buffer<llmc::OptimizerState> state(1);
  const llmc::OptimizerState before = state_after(kUpdates - 1), after = state_after(kUpdates);
  c.variant(
      "used",
      [&](int i) {
        llmc::begin_adamw(state.data(), kOptions, runner.stream());
        // The report compares arrays of numbers, so two fields of the state are copied into one.
        llmc::copy_on_device(corrections.at(i), &state.data()->bias_correction1, 2,
                             runner.stream());
      },
      {.prepare = [&](int) { llmc::copy_to_device(state.data(), &before, 1, runner.stream()); }});
  c.finish([&] {
    return std::vector{compare("corrections", corrections.values(),
                               {static_cast<double>(after.bias_correction1),
                                static_cast<double>(after.bias_correction2_root)},
                               tolerance<float>())};
  });
}

inline void cases(OpRunner& runner) {
  begin(runner);
  const Shapes<Shape> shapes = {
      .tiny = {{"tiny", 1, 8, 11, 3}, {"odd", 0, 8, 1, 1, 5}},
      .small = {{"small", 2, 40, 67, 9}, {"odd", 0, 8, 250, 3, 13}},
      .gpt2 = {{"124M", 12, 768, 50304, 1024}, {"1558M", 48, 1600, 50304, 1024, 0, false}}};
  for (const Shape& s : runner.select(shapes)) {
    for_each_dtype(runner, s.fp16, [&]<class T>() { adamw<T>(runner, s); });
  }
}

}  // namespace llmc_dev::adamw
