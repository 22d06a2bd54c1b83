// Bigram and trigram models: how well only the last one or two words predict the next one.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace llmc::toy {

// Maximum likelihood, interpolated with the next shorter context by the method of Witten and Bell
// (1991; Chen and Goodman 1999, §2.5): a context seen n times with d different next words trusts
// its own counts with weight n / (n + d).
class NgramModel {
 public:
  // `order` is the number of words including the predicted one: 2 is a bigram model. Token ids are
  // below `vocabulary`, which must be below 2^16 so that a context of three words fits a 64-bit
  // key.
  NgramModel(int order, std::int64_t vocabulary, std::span<const std::int32_t> text)
      : order_(order), vocabulary_(vocabulary), contexts_(order) {
    for (std::size_t at = 0; at < text.size(); ++at)
      for (int length = 0; length < order_ && length <= static_cast<int>(at); ++length)
        count(contexts_[length][key(text, at, length)], text[at]);
  }

  // Mean -log p of the tokens of `text`, each given those before it; nats per token.
  double loss(std::span<const std::int32_t> text) const {
    double sum = 0;
    for (std::size_t at = 0; at < text.size(); ++at) sum -= std::log(probability(text, at));
    return sum / static_cast<double>(text.size());
  }

 private:
  struct Context {
    double total = 0;
    std::unordered_map<std::int32_t, double> next;
  };

  static void count(Context& context, std::int32_t token) {
    ++context.total;
    ++context.next[token];
  }

  // The key of the `length` tokens before `at`.
  static std::uint64_t key(std::span<const std::int32_t> text, std::size_t at, int length) {
    std::uint64_t key = 0;
    for (int back = 1; back <= length; ++back)
      key = key << 16 | static_cast<std::uint16_t>(text[at - back]);
    return key;
  }

  double probability(std::span<const std::int32_t> text, std::size_t at) const {
    double p = 1.0 / static_cast<double>(vocabulary_);
    for (int length = 0; length < order_ && length <= static_cast<int>(at); ++length) {
      const auto context = contexts_[length].find(key(text, at, length));
      if (context == contexts_[length].end()) break;
      const auto& [total, next] = context->second;
      const auto entry = next.find(text[at]);
      const double num_distinct = static_cast<double>(next.size());
      p = ((entry == next.end() ? 0 : entry->second) + num_distinct * p) / (total + num_distinct);
    }
    return p;
  }

  int order_;
  std::int64_t vocabulary_;
  std::vector<std::unordered_map<std::uint64_t, Context>> contexts_;  // by context length
};

}  // namespace llmc::toy
