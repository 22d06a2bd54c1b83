// Buckets of batch rows by token, which make the embedding's gradient deterministic. Built on the
// host from the tokens only, before they are copied to the device.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

namespace llmc {

struct TokenBuckets {
  std::vector<std::int32_t> token;  // the distinct ids, ascending
  std::vector<std::int32_t> start;  // one entry more; bucket i is position[start[i] .. start[i+1])
  std::vector<std::int32_t> position;  // flat positions b*T + t, ascending within a bucket
};

// The ids are not negative. Stable radix sort, one pass per 8 bits of the greatest id: two passes
// for any vocabulary below 65536.
inline TokenBuckets make_token_buckets(const std::vector<std::int32_t>& ids) {
  constexpr int kBits = 8, kDigits = 1 << kBits;
  TokenBuckets buckets;
  const std::size_t n = ids.size();
  buckets.position.resize(n);
  std::iota(buckets.position.begin(), buckets.position.end(), 0);
  std::int32_t all_bits = 0;
  for (const std::int32_t id : ids) all_bits |= id;
  std::vector<std::int32_t> sorted(n);
  for (int shift = 0; shift < 32 && (all_bits >> shift) != 0; shift += kBits) {
    std::int32_t next[kDigits + 1] = {};  // position of the next id with this digit
    for (const std::int32_t id : ids) ++next[((id >> shift) & (kDigits - 1)) + 1];
    for (int digit = 0; digit < kDigits; ++digit) next[digit + 1] += next[digit];
    for (const std::int32_t row : buckets.position) {
      sorted[next[(ids[row] >> shift) & (kDigits - 1)]++] = row;
    }
    buckets.position.swap(sorted);
  }
  for (std::size_t i = 0; i < n; ++i) {
    const std::int32_t id = ids[buckets.position[i]];
    if (!buckets.token.empty() && buckets.token.back() == id) continue;
    buckets.token.push_back(id);
    buckets.start.push_back(static_cast<std::int32_t>(i));
  }
  buckets.start.push_back(static_cast<std::int32_t>(n));
  return buckets;
}

}  // namespace llmc
