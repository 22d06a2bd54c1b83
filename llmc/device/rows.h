// Views of rows of a tensor.
#pragma once

#include <cstdint>

#include "llmc/device/tensor.h"

namespace llmc {

// The first n rows of a matrix; the first n elements of a vector.
template <class T>
Tensor<T, 2> first_rows(const Tensor<T, 2>& tensor, std::int64_t n) {
  return {tensor.data, {n, tensor.shape[1]}};
}
template <class T>
Tensor<T, 1> first_rows(const Tensor<T, 1>& tensor, std::int64_t n) {
  return {tensor.data, {n}};
}

// Rows [first, first + n).
template <class T>
Tensor<T, 2> row_range(const Tensor<T, 2>& tensor, std::int64_t first, std::int64_t n) {
  return {tensor.data + first * tensor.shape[1], {n, tensor.shape[1]}};
}
template <class T>
Tensor<T, 1> row_range(const Tensor<T, 1>& tensor, std::int64_t first, std::int64_t n) {
  return {tensor.data + first, {n}};
}

// All elements of a matrix, row by row.
template <class T>
Tensor<T, 1> flat(const Tensor<T, 2>& tensor) {
  return {tensor.data, {tensor.size()}};
}

}  // namespace llmc
