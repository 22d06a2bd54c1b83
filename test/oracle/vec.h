// The oracle's vectors of doubles, and functions that all its files use.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace llmc::oracle {

using Index = std::int64_t;
using Vec = std::vector<double>;
using Ints = std::vector<int>;

// Throws std::invalid_argument if a vector's length does not match its shape.
inline void expect_size(const char* name, std::size_t size, Index expected) {
  if (static_cast<Index>(size) != expected) {
    throw std::invalid_argument(std::string("oracle: ") + name + " has " + std::to_string(size) +
                                " elements, expected " + std::to_string(expected));
  }
}

// Converts any vector of numbers to doubles.
template <class T>
Vec to_double(const std::vector<T>& values) {
  Vec out;
  out.reserve(values.size());
  for (const T& v : values) out.push_back(static_cast<double>(v));
  return out;
}

// sum += addend, element by element: adds gradients from two paths.
inline void add_to(Vec& sum, const Vec& addend) {
  expect_size("addend", addend.size(), static_cast<Index>(sum.size()));
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += addend[i];
}

// (rows, columns) to (columns, rows).
inline Vec transposed(const Vec& matrix, Index rows, Index columns) {
  expect_size("matrix", matrix.size(), rows * columns);
  Vec out(matrix.size());
  for (Index r = 0; r < rows; ++r) {
    for (Index c = 0; c < columns; ++c) out[c * rows + r] = matrix[r * columns + c];
  }
  return out;
}

}  // namespace llmc::oracle
