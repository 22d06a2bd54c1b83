// The oracle's vectors of doubles, and what every one of its files needs.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace llmc::oracle {

using Index = std::int64_t;
using Vec = std::vector<double>;
using Ints = std::vector<int>;

// Throws std::invalid_argument when a vector is not as long as its shape says.
inline void expect_size(const char* name, std::size_t size, Index wanted) {
  if (static_cast<Index>(size) != wanted) {
    throw std::invalid_argument(std::string("oracle: ") + name + " has " + std::to_string(size) +
                                " elements, wanted " + std::to_string(wanted));
  }
}

// Any vector of numbers as doubles.
template <class T>
Vec to_double(const std::vector<T>& values) {
  Vec out;
  out.reserve(values.size());
  for (const T& v : values) out.push_back(static_cast<double>(v));
  return out;
}

// sum += addend, element by element: how gradients from two paths meet.
inline void add_to(Vec& sum, const Vec& addend) {
  expect_size("addend", addend.size(), static_cast<Index>(sum.size()));
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += addend[i];
}

}  // namespace llmc::oracle
