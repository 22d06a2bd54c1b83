// Detects documents that occurred before: the same bytes, or nearly the same words.
//
// The similarity of two documents is the Jaccard index s = |A n B| / |A u B| of their sets of
// shingles, which are all runs of five words. MinHash (Broder, "On the resemblance and containment
// of documents", 1997) estimates it. Under a random order of all shingles, the first one of A and
// the first one of B are the same with probability s. So of K such orders about s K agree (standard
// deviation of the estimate sqrt(s (1 - s) / K), at most 0.045).
//
// Banding avoids comparing all pairs (Leskovec, Rajaraman, Ullman, "Mining of massive datasets",
// 3.4). The K values are cut into b bands of r rows, and only documents that agree in all rows of
// some band are compared. One band agrees with probability s^r and none of b with (1 - s^r)^b. So a
// pair is compared with probability 1 - (1 - s^r)^b: a steep step, which r and b place below the
// threshold.
#pragma once

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "llmc/base/hash.h"
#include "llmc/base/utf8.h"

namespace llmc {

// ---- the same bytes ----------------------------------------------------------------------------

// 128 bits: among 10^10 different documents, the probability that any two have the same hash is
// 10^-19.
struct ContentHash {
  std::uint64_t low = 0, high = 0;
  bool operator==(const ContentHash&) const = default;
};

inline ContentHash content_hash(std::string_view text) {
  return {XXH64(text.data(), text.size(), 0), XXH64(text.data(), text.size(), 1)};
}

class ExactDuplicates {
 public:
  // Returns true if it contains the hash. Otherwise adds it.
  bool contains_or_add(const ContentHash& hash) { return !hashes_.insert(hash).second; }

 private:
  struct Low {
    std::size_t operator()(const ContentHash& hash) const { return hash.low; }
  };
  std::unordered_set<ContentHash, Low> hashes_;
};

// ---- nearly the same words ---------------------------------------------------------------------

inline constexpr std::size_t kShingleWords = 5;
inline constexpr std::size_t kMinHashes = 128;  // K

// The lowest 16 bits of each minimum. Two different minima agree in them with probability 1 /
// 65536, which is far below the error of the estimate.
using MinHash = std::array<std::uint16_t, kMinHashes>;

// Calls each(hash) for the words of a text, so that punctuation and the case of ASCII letters do
// not count. A word is a run of ASCII letters, digits and two-byte UTF-8 characters from U+00C0 on
// (Latin, Greek, Cyrillic, Hebrew, Arabic and other alphabets). Each longer UTF-8 character is a
// word of its own, because most of these belong to scripts without spaces. Everything else
// separates words, and so does general punctuation (U+2000 to U+207F).
template <class Each>
void for_each_word(std::string_view text, Each&& each) {
  constexpr std::uint64_t kOffsetBasis = 0xcbf29ce484222325u;  // FNV-1a
  std::uint64_t word = kOffsetBasis;
  const auto add = [&](std::uint8_t byte) { word = (word ^ byte) * 0x100000001b3u; };
  const auto end = [&] {
    if (word != kOffsetBasis) each(mix64(word));
    word = kOffsetBasis;
  };
  for (std::size_t at = 0; at < text.size();) {
    const auto first = static_cast<std::uint8_t>(text[at]);
    if (first < 0x80) {
      const bool capital = first >= 'A' && first <= 'Z';
      const bool part = capital || (first >= 'a' && first <= 'z') || (first >= '0' && first <= '9');
      if (part) {
        add(capital ? first | 0x20 : first);
      } else {
        end();
      }
      ++at;
      continue;
    }
    const std::size_t length = utf8_length(text.substr(at, 4));
    const bool separates = length == 0 || first == 0xc2 ||
                           (first == 0xe2 && static_cast<std::uint8_t>(text[at + 1]) <= 0x81);
    if (separates || length > 2) end();
    for (std::size_t i = 0; i < length && !separates; ++i) {
      add(static_cast<std::uint8_t>(text[at + i]));
    }
    if (length > 2) end();
    at += std::max<std::size_t>(length, 1);
  }
  end();
}

// Returns nothing for a text without words. A text of fewer than five words is one shingle.
std::optional<MinHash> min_hash(std::string_view text);

// The estimate of the Jaccard index: the fraction of values that agree.
double similarity(const MinHash& a, const MinHash& b);

struct Bands {
  std::int64_t count, rows;  // b and r; b r <= K

  // Probability that two documents of similarity s are compared.
  double probability(double s) const;
};

// The longest bands, and therefore the fewest comparisons, that find at least 99% of the pairs at
// the threshold.
Bands bands_for(double threshold);

// Maximum number of documents stored under one value of a band. If more documents share it, it is
// from a text that half the corpus contains (a licence, a menu), and comparing all of them with
// each other would take quadratic time. Documents that are similar elsewhere too are found by
// another band.
inline constexpr int kMaxInBand = 256;

// The documents kept so far. Which ones are kept depends only on the documents and their order.
// Memory: 600 to 900 bytes per kept document at a threshold of 0.8.
class NearDuplicates {
 public:
  explicit NearDuplicates(double threshold) : threshold_(threshold), bands_(bands_for(threshold)) {}

  // Returns true if it contains a document that is at least as similar as the threshold.
  // Otherwise adds this document.
  bool contains_or_add(const MinHash& hash);

  // Number of pairs compared so far.
  std::int64_t comparisons() const { return comparisons_; }

 private:
  // An entry of an open-addressing hash table in which one key can occur many times.
  static constexpr std::uint32_t kFree = std::numeric_limits<std::uint32_t>::max();
  struct Slot {
    std::uint32_t tag = 0, document = kFree;
  };

  std::uint64_t key(const MinHash& hash, std::size_t band) const;

  static std::uint32_t tag(std::uint64_t key) { return static_cast<std::uint32_t>(key >> 32); }
  std::size_t slot(std::uint64_t key) const { return key & (slots_.size() - 1); }
  std::size_t next(std::size_t at) const { return (at + 1) & (slots_.size() - 1); }

  void insert_bands(std::size_t document);

  void insert(std::uint64_t key, std::uint32_t document);

  // Grows the table to a power of two with at least half of its slots free, and inserts all
  // documents again.
  void grow();

  double threshold_;
  Bands bands_;
  std::vector<MinHash> hashes_;
  std::vector<Slot> slots_;
  std::int64_t comparisons_ = 0;
};

}  // namespace llmc
