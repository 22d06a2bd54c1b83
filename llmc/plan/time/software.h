// A software file: how a program computes and communicates, as far as the time of a step depends on
// it. scripts/machines/software/ has some.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "llmc/base/json.h"

namespace llmc {

struct Software {
  std::string name;
  // Attention. With materialized scores, each pass moves `score_bytes` per score and computes all
  // of them; otherwise a kernel keeps scores on chip and computes the causal half.
  double score_bytes = 0;     // 0: scores are kept on chip
  double attention_rate = 1;  // of the products of attention, relative to other products
  // Bytes that the other operations of a layer move per token and channel in a forward pass: of
  // activations that tensor ranks divide, and of those that each has (with sequence parallelism
  // they are divided too). A backward pass moves twice as much.
  double divided_bytes = 0, copied_bytes = 0;
  double logit_bytes = 0;       // per logit, in both passes
  double weight_bytes = 2;      // of a weight or an activation
  double gradient_bytes = 2;    // of a gradient that data ranks reduce
  double optimizer_bytes = 18;  // that an update moves per parameter
  // Whether a pipeline rank computes while its messages are on the way.
  double overlaps_messages = 0;
  // Share of the last backward pass that can hide the traffic of gradients, and of a step's passes
  // that can hide the gathers of ZeRO-3.
  double overlaps_gradients = 0, overlaps_gathers = 0;
  // Whether the ranks of a tensor group send a message once together.
  double divides_messages = 0;
};

// A member of Software, with its name in a file and its meaning.
struct SoftwareConstant {
  const char* name;
  const char* meaning;
  double Software::*value;
};
const std::vector<SoftwareConstant>& software_constants();

// Throws an Error that names the file and the constant if one is missing, unknown or negative.
Software read_software(const std::filesystem::path& path);

}  // namespace llmc
