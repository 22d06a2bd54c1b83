// Compares an engine's loss, logits and gradients with PyTorch's fp64 results. The allowed error is
// a multiple of PyTorch's own error in the same dtype on the same case.
//
//   fp32: 3 x PyTorch fp32's error, at least 1e-6        bf16, fp16: 2 x PyTorch's error in it
//
// PyTorch's error of a tensor is the greater of its error on this case and its rms over 8 draws of
// the parameters (one draw of a short tensor may be lucky). For the loss, a single number, and for
// the losses and norms of training, it is the largest of the draws. Each is the greater of the
// errors with eager and with flash attention. fp32 losses of training have their own bound.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/device/dtype.h"
#include "llmc/device/vec.h"
#include "test/oracle/errors.h"
#include "test/oracle/fixture.h"
#include "test/oracle/gpt2.h"
#include "test/oracle/vec.h"

namespace llmc::oracle {

struct Comparison {
  std::string name;
  double error = 0, allowed_error = 0;
  bool ok() const { return error <= allowed_error; }  // false for NaN
};

// "h.0.ln_1.bias: error 3.1e-06, allowed 2.0e-06".
std::string describe(const Comparison& c);

// The allowed error of a quantity (a parameter's name, "logits", "loss", "all", ...) in this dtype.
double allowed_error(const Fixture& fixture, const std::string& quantity, Dtype dtype);

double norm(const Vec& x);

Vec difference(const Vec& a, const Vec& b);

// Compares a QKV bias (3C): q and v parts by relative L2. Adding a constant to all keys changes no
// softmax, so the true gradient of the key part is zero and its value is only rounding. Its rms is
// compared with that of the whole tensor.
std::vector<Comparison> compare_qkv_bias(const std::string& name, Vec actual, Vec expected);

// Compares wte.weight's gradient (V, C) of a wide vocabulary: the stored rows, the column sums
// (relative to the norm of the whole tensor, because they nearly cancel), and the norms of blocks
// of rows, which stand for the rest.
std::vector<Comparison> compare_sampled(const Fixture& fixture, const std::string& name,
                                        const Vec& actual);

// Compares every parameter's gradient of the mean loss with the fixture. `gradients` maps Hugging
// Face names to vectors of any number type, complete and unpadded, with the fixture's shapes.
// Throws std::out_of_range if a parameter is missing.
template <class Vector>
std::vector<Comparison> compare_gradients(const Fixture& fixture,
                                          const std::map<std::string, Vector>& gradients,
                                          Dtype dtype) {
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
  for (Comparison& c : all) c.allowed_error = allowed_error(fixture, c.name, dtype);
  return all;
}

// logits: (B * T, V), unpadded. For a wide vocabulary, compares some columns, the norms of blocks
// of columns, and each row's log-sum-exp.
std::vector<Comparison> compare_logits(const Fixture& fixture, const Vec& logits, Dtype dtype);

Comparison compare_loss(const Fixture& fixture, double loss, Dtype dtype);

// Compares every step's loss (before the update) and gradient norm (before clipping) of the
// training fixture with PyTorch's fp64 run. Plain and accumulated runs have the same reference.
std::vector<Comparison> compare_training(const Fixture& fixture, const Vec& losses,
                                         const Vec& grad_norms, Dtype dtype);

// The micro-batches of step `step` (from 0) of a training fixture. Its global batches (B, T) are
// used in a cycle, each cut into `pieces` along B.
std::vector<Batch> training_batches(const Fixture& fixture, Index step, Index pieces);

}  // namespace llmc::oracle
