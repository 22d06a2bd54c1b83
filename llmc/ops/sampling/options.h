// Options of sampling. This header contains no device code.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace llmc {

// How the next token is drawn from logits. The defaults draw from the softmax of all logits. Steps
// are applied in this order: bias, penalties, top-k, typical, top-p, min-p, temperature.
struct SamplingOptions {
  double temperature = 1;  // 0: the likeliest token after bias and penalties
  std::int64_t top_k = 0;  // keep the k likeliest tokens; 0: all
  // Keep the fewest likeliest tokens with at least this probability; 1: all, 0: the likeliest
  // token.
  double top_p = 1;
  double min_p = 0;  // keep tokens with at least min_p times the probability of the likeliest
  // Keep the fewest most typical tokens with at least this probability; 1: all, 0: the likeliest
  // token.
  double typical = 1;
  double repeat_penalty = 1;     // divides positive and multiplies negative logits of seen tokens
  double presence_penalty = 0;   // subtracted from the logits of seen tokens
  double frequency_penalty = 0;  // subtracted once per occurrence
  std::int64_t repeat_last_n = 64;  // newest tokens that penalties see; 0: none, -1: all
  // Numbers added to logits, by token; -infinity bans a token.
  std::vector<std::pair<std::int32_t, double>> logit_bias = {};
};

// Whether the token is the likeliest one after bias and penalties, whatever is drawn. Values count
// in fp32, in which the device has them.
inline bool is_greedy(const SamplingOptions& options) {
  return static_cast<float>(options.temperature) == 0 || static_cast<float>(options.top_p) == 0 ||
         static_cast<float>(options.typical) == 0;
}

}  // namespace llmc
