#include "test/oracle/dropout.h"

#include <cmath>

namespace llmc::oracle {

Words philox_words(std::uint32_t key0, std::uint32_t key1, Words x) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = 0xD2511F53ull * x[0];
    const std::uint64_t b = 0xCD9E8D57ull * x[2];
    x = {static_cast<std::uint32_t>(b >> 32) ^ x[1] ^ key0, static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ x[3] ^ key1, static_cast<std::uint32_t>(a)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return x;
}

double Dropout::factor(double rate, Index site, Index b, Index row, Index column,
                       Index plane) const {
  if (rate == 0) return 1;
  const auto low_word = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto sample = static_cast<std::uint64_t>(first_sample + b);
  const Words sample_words =
      philox_words(low_word(seed), low_word(seed >> 32),
                   {low_word(sample), low_word(sample >> 32), step, low_word(256 * site + 3)});
  const Words bits =
      philox_words(sample_words[0], sample_words[1],
                   {low_word(column / 4), low_word(row), low_word(plane), sample_words[2]});
  const double threshold = std::round(rate * 4294967296.0);
  return bits[column % 4] < threshold ? 0 : 1 / (1 - threshold / 4294967296.0);
}

void apply_dropout(Vec& x, const Dropout& dropout, double rate, Index site, Index B, Index T,
                   Index C) {
  expect_size("x", static_cast<Index>(x.size()), B * T * C);
  if (rate == 0) return;
  for (Index b = 0; b < B; ++b) {
    for (Index t = 0; t < T; ++t) {
      for (Index c = 0; c < C; ++c) {
        x[(b * T + t) * C + c] *= dropout.factor(rate, site, b, t, c, 0);
      }
    }
  }
}

}  // namespace llmc::oracle
