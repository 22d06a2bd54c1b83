// Helpers of the tests of comparisons: stored predictions, random ones, and texts of token ids.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "llmc/eval/comparison.h"
#include "llmc/eval/perplexity.h"
#include "llmc/io/data/token_file.h"
#include "llmc/io/tokenizer/id_tokenizer.h"
#include "test/support.h"

namespace llmc_test {

// A stored prediction.
struct Prediction {
  std::int32_t token = 0, likeliest = 0;
  float log_prob = 0;
  std::vector<float> log_probs;

  llmc::TokenLogProbs view() const { return {token, likeliest, log_prob, log_probs}; }
};
using Predictions = std::vector<Prediction>;

class StoredPredictions : public llmc::LogProbSource {
 public:
  explicit StoredPredictions(const Predictions& predictions) : predictions_(predictions) {}
  std::int64_t vocabulary_size() const override {
    return std::ssize(predictions_.front().log_probs);
  }
  const llmc::TokenLogProbs* next() override {
    if (index_ == predictions_.size()) return nullptr;
    current_ = predictions_[index_++].view();
    return &current_;
  }

 private:
  const Predictions& predictions_;
  std::size_t index_ = 0;
  llmc::TokenLogProbs current_;
};

inline Prediction prediction_of(const std::vector<float>& logits, std::int32_t token) {
  Prediction prediction{token, 0, 0, {}};
  llmc::log_softmax(logits, prediction.log_probs);
  prediction.log_prob = prediction.log_probs[token];
  prediction.likeliest =
      static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  return prediction;
}

// Predictions of two models whose logits differ by normal noise of the given size. Tokens are
// drawn from the base model.
struct Pair {
  Predictions base, model;
};

inline Pair random_pair(std::int64_t tokens, std::int64_t V, float noise) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  Pair pair;
  for (std::int64_t i = 0; i < tokens; ++i) {
    std::vector<float> base(static_cast<std::size_t>(V)), model(base.size());
    for (std::size_t v = 0; v < base.size(); ++v) {
      base[v] = 3 * normal(random);
      model[v] = base[v] + noise * normal(random);
    }
    std::vector<double> weights;
    for (const float x : base) weights.push_back(std::exp(static_cast<double>(x)));
    std::discrete_distribution<std::int32_t> draw(weights.begin(), weights.end());
    const std::int32_t token = draw(random);
    pair.base.push_back(prediction_of(base, token));
    pair.model.push_back(prediction_of(model, token));
  }
  return pair;
}

inline bool always(std::int64_t) {
  return true;
}

inline llmc::ComparisonResult compare(const Predictions& base, const Predictions& model) {
  StoredPredictions base_source(base), model_source(model);
  return llmc::compare_tokens(base_source, model_source, always).result();
}

// A text of token ids, in windows.
class TokenText {
 public:
  TokenText(std::int64_t V, std::int64_t size, std::uint64_t seed) : V_(V) {
    llmc::TokenFileWriter writer(folder_.file("text.bin"), V, size);
    writer.append(random_ints(size, seed, V));
    writer.finish();
  }

  llmc::PerplexityTask task(std::int64_t T, std::int64_t stride) const {
    return {
        "perplexity", folder_.file("text.bin"), llmc::IdTokenizer(V_), {.T = T, .stride = stride}};
  }

 private:
  std::int64_t V_;
  TemporaryDirectory folder_;
};

inline Predictions predictions_of(llmc::LogProbSource& source) {
  Predictions all;
  while (const llmc::TokenLogProbs* next = source.next()) {
    all.push_back({next->token,
                   next->likeliest,
                   next->log_prob,
                   {next->log_probs.begin(), next->log_probs.end()}});
  }
  return all;
}

}  // namespace llmc_test
