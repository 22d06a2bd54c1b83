// Rows of choices that cover all pairs of choices of two dimensions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace llmc_test {

using ChoiceRow = std::vector<int>;  // the choice of each dimension, from 0

// Calls each(row) for all rows of `sizes[i]` choices of dimension i that are valid.
inline std::vector<ChoiceRow> all_rows(const std::vector<int>& sizes,
                                       const std::function<bool(const ChoiceRow&)>& valid) {
  std::vector<ChoiceRow> rows;
  ChoiceRow row(sizes.size());
  for (std::size_t i = 0; i < sizes.size();) {
    if (i == 0 && valid(row)) rows.push_back(row);
    i = ++row[i] < sizes[i] ? 0 : (row[i] = 0, i + 1);
  }
  return rows;
}

// Rows, one after the other, each of those with the most pairs that no row before it has, until
// they have all pairs of the valid rows.
inline std::vector<ChoiceRow> covering_rows(const std::vector<int>& sizes,
                                            const std::function<bool(const ChoiceRow&)>& valid) {
  constexpr int kMaxChoices = 32;
  const std::vector<ChoiceRow> candidates = all_rows(sizes, valid);
  const std::size_t n = sizes.size();
  std::vector<std::uint32_t> missing(n * n * kMaxChoices);  // a bit per choice of the second
  const auto mask = [&](const ChoiceRow& row, std::size_t i, std::size_t j) -> std::uint32_t& {
    return missing[(i * n + j) * kMaxChoices + static_cast<std::size_t>(row[i])];
  };
  const auto for_each_pair = [&](const ChoiceRow& row, const auto& each) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = i + 1; j < n; ++j) each(mask(row, i, j), std::uint32_t{1} << row[j]);
    }
  };
  for (const ChoiceRow& row : candidates) {
    for_each_pair(row, [](std::uint32_t& bits, std::uint32_t bit) { bits |= bit; });
  }
  std::vector<ChoiceRow> chosen;
  while (true) {
    const ChoiceRow* best = nullptr;
    int best_count = 0;
    for (const ChoiceRow& row : candidates) {
      int count = 0;
      for_each_pair(row,
                    [&](std::uint32_t& bits, std::uint32_t bit) { count += (bits & bit) != 0; });
      if (count > best_count) best = &row, best_count = count;
    }
    if (best == nullptr) return chosen;
    for_each_pair(*best, [](std::uint32_t& bits, std::uint32_t bit) { bits &= ~bit; });
    chosen.push_back(*best);
  }
}

}  // namespace llmc_test
