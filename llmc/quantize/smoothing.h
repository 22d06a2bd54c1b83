// Smoothing (SmoothQuant, Xiao et al., 2023): the channels of an input are divided by factors s,
// and the rows of the weight that follows are multiplied by them. This changes no result in exact
// arithmetic, and channels with large values then cost the others less resolution.
//
// s[k] = m[k]^a / w[k]^(1 - a), with m[k] the largest magnitude of channel k on the calibration
// text and w[k] that of row k of the weight. a is chosen per input, from 0.3 to 0.9, by the error
// of the layer's outputs on rows of the text. An input is smoothed only if this reduces the error.
//
// The factors of the norms' outputs are folded into the norms' weights and biases, those of the
// attention's output into the columns of the values in c_attn, both exactly. Those of GELU's output
// are multiplied where GELU is computed.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "llmc/ops/quantize.h"
#include "llmc/quantize/calibration.h"
#include "llmc/quantize/host_weights.h"

namespace llmc {

// The factors of one input.
struct SmoothingChoice {
  double alpha = 0;              // 0: not smoothed
  std::vector<float> factors{};  // (K), empty if it is not smoothed
  double error = 0;              // relative error of the outputs
  double plain_error = 0;        // without smoothing
};

// How activations are quantized.
struct ActivationMode {
  bool zero_points = true;
  bool is_static = false;  // by the range of the calibration text, not per token
};

// The range of an input after its channels are divided by factors, if there are any.
ValueRange smooth_range(const InputStatistics& input, const std::vector<float>& factors);

// Chooses the factors of an input of the weight (K, N).
SmoothingChoice choose_smoothing(const InputStatistics& input, const std::vector<float>& weight,
                                 const ActivationMode& mode);

// The choices for a block, in the order of kInputSites.
using BlockSmoothing = std::array<SmoothingChoice, 4>;

// Folds the factors of a block into its weights, except the division of GELU's results.
void fold_smoothing(HostWeights& weights, std::int64_t layer, const BlockSmoothing& block);

// Chooses the factors of all inputs and folds them into the weights.
std::vector<BlockSmoothing> smooth(HostWeights& weights, const Calibration& calibration,
                                   const ActivationMode& mode);

}  // namespace llmc
