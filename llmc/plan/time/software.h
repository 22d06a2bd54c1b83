// A software file: how a program computes and communicates, as far as the time of a step depends on
// it. scripts/machines/software/ has some.
#pragma once

#include <string>

namespace llmc {

struct Software {
  std::string name;
  std::string accuracy = {};  // how far predictions were from measured times
  // Values that operations other than products read or write, each of weight_bytes.
  // Per score of attention in a forward pass; 0: a kernel keeps scores on chip and computes only
  // the causal half, otherwise all scores are computed.
  double score_values = 0;
  // Per token and channel in the forward pass of a layer: of activations that tensor ranks divide,
  // and of those that each has, unless sequence parallelism divides them too. A backward pass moves
  // twice as many.
  double divided_values = 0, copied_values = 0;
  double logit_values = 0;      // per logit, in both passes
  double attention_rate = 1;    // of the products of attention, relative to other products
  double weight_bytes = 2;      // of a weight or an activation
  double gradient_bytes = 2;    // of a gradient that data ranks reduce
  double optimizer_bytes = 18;  // that an update moves per parameter
  // In each micro-batch but one, per parameter: to add its gradient, outside of products.
  double accumulation_bytes = 0;
  double recompute_sums = 2;  // all-reduces of a layer that is recomputed in full
  // Whether a pipeline rank computes while its messages are on the way, and whether the ranks of a
  // tensor group send a message once together.
  double overlaps_messages = 0, divides_messages = 0;
  // Whether a backward pass hides the reduction of the gradients that it has completed, and the
  // passes of a step the gathers of ZeRO-3.
  double overlaps_gradients = 0, overlaps_gathers = 0;
  // Whether the bytes that ranks send are those that this engine's formulae count
  // (plan/step_traffic.h).
  double counted_traffic = 0;
};

// The program of a name or a file (plan_file.h). Throws an Error that names the file and the
// constant if one is missing, unknown or negative.
Software read_software(const std::string& name);

}  // namespace llmc
