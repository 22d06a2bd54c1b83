// Compares an engine's loss, logits and gradients with PyTorch's fp64 results. The allowed error is
// a multiple of PyTorch's own error in the same dtype on the same case.
//
//   fp32: 3 x PyTorch fp32's error, at least 1e-6        bf16, fp16: 2 x PyTorch's error in it
//
// PyTorch's error of a tensor is the greater of its error on this case and its rms over 8 draws of
// the parameters (one draw of a short tensor may be lucky). For the loss, a single number, and for
// the losses and norms of training, it is the largest of the draws. Each is the greater of the
// errors with eager and with flash attention. fp32 losses of training have their own bound.
//
// A program may add the V products of the head's input gradient in one chain, as cuBLASLt does.
// Each of the V roundings, at most 2^-24 of a partial sum that grows with the root of its terms,
// contributes to an error with an rms of 2^-24 * sqrt(V / 6) of the sum; twice that is allowed.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "llmc/device/dtype.h"
#include "test/oracle/errors.h"
#include "test/oracle/fixture.h"

namespace llmc::oracle {

constexpr double kFp32Factor = 3, kHalfFactor = 2;
constexpr double kFp32Floor = 1e-6;
constexpr double kFp32TrainingLoss = 2e-6;
constexpr double kChainFactor = 2;
// Floors for the key part of a QKV bias, one rounding: PyTorch's result may be exactly zero.
constexpr double kBf16KeyFloor = 0x1p-9, kFp16KeyFloor = 0x1p-12;

struct Comparison {
  std::string name;
  double error = 0, allowed_error = 0;
  bool ok() const { return error <= allowed_error; }  // false for NaN
};

// "h.0.ln_1.bias: error 3.1e-06, allowed 2.0e-06".
inline std::string describe(const Comparison& c) {
  std::ostringstream out;
  out << c.name << ": error " << c.error << ", allowed " << c.allowed_error;
  return out.str();
}

// The allowed error of a quantity (a parameter's name, "logits", "loss", "all", ...) in this dtype.
inline double allowed_error(const Fixture& fixture, const std::string& quantity, Dtype dtype) {
  const bool fp32 = dtype == Dtype::fp32;
  const Vec pytorch_errors = fixture.doubles("error." + std::string(dtype_name(dtype)) + "." +
                                             quantity);  // case, rms, max
  const bool is_scalar = quantity == "loss" || quantity == "losses" || quantity == "grad_norms" ||
                         quantity.ends_with(".key");
  const double reference_error =
      is_scalar ? pytorch_errors.at(2) : std::max(pytorch_errors.at(0), pytorch_errors.at(1));
  if (fp32 && quantity == "losses") return kFp32TrainingLoss;
  if (fp32) return std::max(kFp32Floor, kFp32Factor * reference_error);
  const double key_floor = dtype == Dtype::bf16 ? kBf16KeyFloor : kFp16KeyFloor;
  return std::max(quantity.ends_with(".key") ? key_floor : 0.0, kHalfFactor * reference_error);
}

inline double norm(const Vec& x) {
  return std::sqrt(sum_of_squares(x));
}

inline Vec difference(const Vec& a, const Vec& b) {
  expect_size("b", b.size(), static_cast<Index>(a.size()));
  Vec d(a.size());
  std::transform(a.begin(), a.end(), b.begin(), d.begin(), std::minus<>());
  return d;
}

// L2 norm of each block of 256 rows of a (rows, columns) matrix.
inline Vec block_norms(const Vec& matrix, Index rows, Index columns) {
  expect_size("matrix", matrix.size(), rows * columns);
  Vec norms((rows + 255) / 256);
  for (Index i = 0; i < rows * columns; ++i) norms[i / columns / 256] += matrix[i] * matrix[i];
  for (double& x : norms) x = std::sqrt(x);
  return norms;
}

// Root mean square of actual / expected - 1.
inline double rms_ratio_error(const Vec& actual, const Vec& expected) {
  expect_size("actual", actual.size(), static_cast<Index>(expected.size()));
  double sum = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) sum += std::pow(actual[i] / expected[i] - 1, 2);
  return std::sqrt(sum / static_cast<double>(actual.size()));
}

inline Vec rows_of(const Vec& matrix, const Ints& rows, Index columns) {
  Vec out;
  for (const int row : rows) {
    out.insert(out.end(), matrix.begin() + row * columns, matrix.begin() + (row + 1) * columns);
  }
  return out;
}

// Compares a QKV bias (3C): q and v parts by relative L2. Adding a constant to all keys changes no
// softmax, so the true gradient of the key part is zero and its value is only rounding. Its rms is
// compared with that of the whole tensor.
inline std::vector<Comparison> compare_qkv_bias(const std::string& name, Vec actual, Vec expected) {
  const auto third = static_cast<Index>(expected.size()) / 3;
  expect_size(name.c_str(), actual.size(), 3 * third);
  const Vec key(actual.begin() + third, actual.begin() + 2 * third);
  const double key_error = std::sqrt(3.0) * norm(key) / norm(expected);
  actual.erase(actual.begin() + third, actual.begin() + 2 * third);
  expected.erase(expected.begin() + third, expected.begin() + 2 * third);
  return {{name, relative_l2(actual, expected), 0}, {name + ".key", key_error, 0}};
}

// Compares wte.weight's gradient (V, C) of a wide vocabulary: the stored rows, the column sums
// (relative to the norm of the whole tensor, because they nearly cancel), and the norms of blocks
// of rows, which stand for the rest.
inline std::vector<Comparison> compare_sampled(const Fixture& fixture, const std::string& name,
                                               const Vec& actual) {
  const Index V = fixture.integer("V");
  const Index C = fixture.integer("C");
  expect_size(name.c_str(), actual.size(), V * C);
  const std::string key = "grad." + name;
  const Vec columns = bias_backward(actual, V, C);
  const Vec blocks = fixture.doubles(key + ".blocks");
  return {
      {name, relative_l2(rows_of(actual, fixture.ints(key + ".rows"), C), fixture.doubles(key)), 0},
      {name + ".column_sums",
       norm(difference(columns, fixture.doubles(key + ".column_sums"))) / norm(blocks), 0},
      {name + ".blocks", rms_ratio_error(block_norms(actual, V, C), blocks), 0}};
}

// Compares every parameter's gradient of the mean loss with the fixture. `gradients` maps Hugging
// Face names to vectors of any number type, complete and unpadded, with the fixture's shapes.
// `chain`: the number of terms that the program adds one after the other, 0 if few. Throws
// std::out_of_range if a parameter is missing.
template <class Vector>
std::vector<Comparison> compare_gradients(const Fixture& fixture,
                                          const std::map<std::string, Vector>& gradients,
                                          Dtype dtype, Index chain = 0) {
  std::vector<Comparison> all;
  for (const NamedShape& p : fixture.shapes()) {
    const Vec actual = to_double(gradients.at(p.name));
    std::vector<Comparison> comparisons;
    if (fixture.has("grad." + p.name + ".rows")) {
      comparisons = compare_sampled(fixture, p.name, actual);
    } else if (p.name.ends_with("c_attn.bias")) {
      comparisons = compare_qkv_bias(p.name, actual, fixture.doubles("grad." + p.name));
    } else {
      comparisons = {{p.name, relative_l2(actual, fixture.doubles("grad." + p.name)), 0}};
    }
    all.insert(all.end(), comparisons.begin(), comparisons.end());
  }
  const double chain_error = 0x1p-24 * std::sqrt(static_cast<double>(chain) / 6);
  for (Comparison& c : all) {
    c.allowed_error = std::max(allowed_error(fixture, c.name, dtype), kChainFactor * chain_error);
  }
  return all;
}

// logits: (B * T, V), unpadded. For a wide vocabulary, compares some columns, the norms of blocks
// of columns, and each row's log-sum-exp.
inline std::vector<Comparison> compare_logits(const Fixture& fixture, const Vec& logits,
                                              Dtype dtype) {
  const Index V = fixture.integer("V");
  const auto N = fixture.integer("B") * fixture.integer("T");
  expect_size("logits", logits.size(), N * V);
  std::vector<Comparison> all;
  if (fixture.has("logits.columns")) {
    const Vec columns_of_logits = transposed(logits, N, V);
    const Ints columns = fixture.ints("logits.columns");
    const Vec stored_columns =
        transposed(rows_of(columns_of_logits, columns, N), static_cast<Index>(columns.size()), N);
    // A row's log-sum-exp is the loss of target 0 plus the logit of target 0.
    Vec log_sum_exp = classifier(logits, Ints(N, 0), N, V).row_loss;
    for (Index n = 0; n < N; ++n) log_sum_exp[n] += logits[n * V];
    all = {
        {"logits", relative_l2(stored_columns, fixture.doubles("logits")), 0},
        {"logits.blocks",
         rms_ratio_error(block_norms(columns_of_logits, V, N), fixture.doubles("logits.blocks")),
         0},
        {"logits.log_sum_exp", relative_l2(log_sum_exp, fixture.doubles("logits.log_sum_exp")), 0}};
  } else {
    all = {{"logits", relative_l2(logits, fixture.doubles("logits")), 0}};
  }
  for (Comparison& c : all) c.allowed_error = allowed_error(fixture, c.name, dtype);
  return all;
}

inline Comparison compare_loss(const Fixture& fixture, double loss, Dtype dtype) {
  const double expected = fixture.number("loss");
  return {"loss", std::abs(loss - expected) / std::abs(expected),
          allowed_error(fixture, "loss", dtype)};
}

// max over i of |actual[i] / expected[i] - 1|; NaN if any is.
inline double worst_ratio_error(const Vec& actual, const Vec& expected) {
  expect_size("actual", actual.size(), static_cast<Index>(expected.size()));
  double max_error = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(actual[i] / expected[i] - 1);
    if (std::isnan(error)) return error;
    max_error = std::max(max_error, error);
  }
  return max_error;
}

// Compares every step's loss (before the update) and gradient norm (before clipping) of the
// training fixture with PyTorch's fp64 run. Plain and accumulated runs have the same reference.
inline std::vector<Comparison> compare_training(const Fixture& fixture, const Vec& losses,
                                                const Vec& grad_norms, Dtype dtype) {
  return {{"losses", worst_ratio_error(losses, fixture.doubles("losses.fp64")),
           allowed_error(fixture, "losses", dtype)},
          {"grad_norms", worst_ratio_error(grad_norms, fixture.doubles("grad_norms.fp64")),
           allowed_error(fixture, "grad_norms", dtype)}};
}

// The micro-batches of step `step` (from 0) of a training fixture. Its global batches (B, T) are
// used in a cycle, each cut into `pieces` along B.
inline std::vector<Batch> training_batches(const Fixture& fixture, Index step, Index pieces) {
  const Index T = fixture.integer("T");
  const Index B = fixture.integer("B") / pieces;
  const Ints tokens = fixture.ints("tokens");    // (batches, B, T)
  const Ints targets = fixture.ints("targets");  // (batches, B, T)
  const Index start = step % fixture.integer("batches") * pieces * B * T;
  std::vector<Batch> batches;
  for (Index i = 0; i < pieces; ++i) {
    const Index begin = start + i * B * T;
    const auto slice = [&](const Ints& all) {
      return Ints(all.begin() + begin, all.begin() + begin + B * T);
    };
    batches.push_back({B, T, slice(tokens), slice(targets), {}});
  }
  return batches;
}

}  // namespace llmc::oracle
