#include "llmc/tokenize/near_duplicates.h"

#include <cmath>

namespace llmc {

// ---- the same bytes ----------------------------------------------------------------------------

// ---- nearly the same words ---------------------------------------------------------------------

std::optional<MinHash> min_hash(std::string_view text) {
  // Each order is a bijection of 32-bit integers. The shingles are hashes already; the offset
  // before the multiplications makes the orders different.
  static const auto offsets = [] {
    std::array<std::uint32_t, kMinHashes> values{};
    for (std::size_t i = 0; i < kMinHashes; ++i) {
      values[i] = static_cast<std::uint32_t>(mix64(i + 1));
    }
    return values;
  }();
  std::array<std::uint32_t, kMinHashes> minima;
  minima.fill(std::numeric_limits<std::uint32_t>::max());
  const auto add_shingle = [&](std::uint32_t shingle) {
    for (std::size_t i = 0; i < kMinHashes; ++i) {
      std::uint32_t x = (shingle ^ offsets[i]) * 0x7feb352du;
      x = (x ^ (x >> 15)) * 0x846ca68bu;
      minima[i] = std::min(minima[i], x ^ (x >> 16));
    }
  };
  std::array<std::uint64_t, kShingleWords> last{};  // ring buffer of word hashes
  std::size_t words = 0;
  const auto shingle = [&] {
    std::uint64_t hash = 0;
    for (std::size_t i = 0; i < kShingleWords; ++i) {
      hash = mix64(hash, last[(words + i) % kShingleWords]);
    }
    return static_cast<std::uint32_t>(hash >> 32);
  };
  for_each_word(text, [&](std::uint64_t word) {
    last[words++ % kShingleWords] = word;
    if (words >= kShingleWords) add_shingle(shingle());
  });
  if (words == 0) return std::nullopt;
  if (words < kShingleWords) add_shingle(shingle());
  MinHash hash;
  std::transform(minima.begin(), minima.end(), hash.begin(),
                 [](std::uint32_t value) { return static_cast<std::uint16_t>(value); });
  return hash;
}

double similarity(const MinHash& a, const MinHash& b) {
  int same = 0;
  for (std::size_t i = 0; i < kMinHashes; ++i) same += a[i] == b[i] ? 1 : 0;
  return same / static_cast<double>(kMinHashes);
}

double Bands::probability(double s) const {
  return 1 - std::pow(1 - std::pow(s, static_cast<double>(rows)), static_cast<double>(count));
}

Bands bands_for(double threshold) {
  constexpr auto k = static_cast<std::int64_t>(kMinHashes);
  Bands best{k, 1};
  for (std::int64_t rows = 2; rows <= k; ++rows) {
    const Bands bands{k / rows, rows};
    if (bands.probability(threshold) >= 0.99) best = bands;
  }
  return best;
}

bool NearDuplicates::contains_or_add(const MinHash& hash) {
  const auto count = static_cast<std::size_t>(bands_.count);
  if (2 * (hashes_.size() + 1) * count > slots_.size()) grow();
  for (std::size_t band = 0; band < count; ++band) {
    const std::uint64_t band_key = key(hash, band);
    for (std::size_t at = slot(band_key); slots_[at].document != kFree; at = next(at)) {
      if (slots_[at].tag != tag(band_key)) continue;
      ++comparisons_;
      if (similarity(hash, hashes_[slots_[at].document]) >= threshold_) return true;
    }
  }
  hashes_.push_back(hash);
  insert_bands(hashes_.size() - 1);
  return false;
}

std::uint64_t NearDuplicates::key(const MinHash& hash, std::size_t band) const {
  std::uint64_t value = band;
  const auto rows = static_cast<std::size_t>(bands_.rows);
  for (std::size_t i = 0; i < rows; ++i) value = mix64(value, hash[band * rows + i]);
  return value;
}

void NearDuplicates::insert_bands(std::size_t document) {
  for (std::size_t band = 0; band < static_cast<std::size_t>(bands_.count); ++band) {
    insert(key(hashes_[document], band), static_cast<std::uint32_t>(document));
  }
}

void NearDuplicates::insert(std::uint64_t key, std::uint32_t document) {
  std::size_t at = slot(key);
  for (int num_same_key = 0; slots_[at].document != kFree; at = next(at)) {
    if (slots_[at].tag == tag(key) && ++num_same_key == kMaxInBand) return;
  }
  slots_[at] = {tag(key), document};
}

void NearDuplicates::grow() {
  std::size_t size = std::max<std::size_t>(1024, slots_.size());
  while (size < 2 * (hashes_.size() + 1) * static_cast<std::size_t>(bands_.count)) size *= 2;
  slots_.assign(size, Slot());
  for (std::size_t i = 0; i < hashes_.size(); ++i) insert_bands(i);
}

}  // namespace llmc
