#include "llmc/eval/log_probs.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace llmc {

const TokenLogProbs* ObservedSource::next() {
  const TokenLogProbs* const prediction = source_.next();
  if (prediction != nullptr) on_token_(*prediction);
  return prediction;
}

void log_softmax(std::span<const float> logits, std::vector<float>& log_probs) {
  const auto max = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - max);
  const double normalizer = max + std::log(sum);
  log_probs.resize(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    log_probs[i] = static_cast<float>(static_cast<double>(logits[i]) - normalizer);
  }
}

}  // namespace llmc
