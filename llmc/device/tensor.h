// Typed views with a shape. A view owns nothing; memory belongs to Buffers and arenas.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "llmc/base/error.h"
#include "llmc/device/target.h"

namespace llmc {

// Contiguous, row-major view with R dimensions.
template <class T, int R>
struct Tensor {
  T* data = nullptr;
  std::int64_t shape[R] = {};

  __host__ __device__ std::int64_t size() const {
    std::int64_t n = 1;
    for (int i = 0; i < R; ++i) n *= shape[i];
    return n;
  }

  template <class U>
  requires(std::is_same_v<U, const T> && !std::is_const_v<T>) operator Tensor<U, R>() const {
    Tensor<U, R> view;
    view.data = data;
    for (int i = 0; i < R; ++i) view.shape[i] = shape[i];
    return view;
  }
};

// Input parameter, read-only. It takes no part in template deduction (the outputs determine T), so
// a Tensor<T, R> converts to it.
template <class T, int R>
using In = std::type_identity_t<Tensor<const T, R>>;

// Output parameter that takes no part in template deduction: another argument determines T.
template <class T, int R>
using Out = std::type_identity_t<Tensor<T, R>>;

template <class T, class... Sizes>
Tensor<T, sizeof...(Sizes)> make_tensor(T* data, Sizes... sizes) {
  return {data, {static_cast<std::int64_t>(sizes)...}};
}

inline std::string shape_text(const std::int64_t* shape, int rank) {
  std::string text = "(";
  for (int i = 0; i < rank; ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + ")";
}

// Throws an Error that names the tensor, its shape and the expected shape if the shapes differ.
// Also throws if a tensor with elements has a null pointer.
template <class T, int R>
void check_shape(const char* name, const Tensor<T, R>& tensor,
                 std::initializer_list<std::int64_t> expected,
                 std::source_location location = std::source_location::current()) {
  bool same = static_cast<int>(expected.size()) == R;
  for (int i = 0; same && i < R; ++i) same = tensor.shape[i] == expected.begin()[i];
  if (!same) {
    fail("tensor '" + std::string(name) + "' has shape " + shape_text(tensor.shape, R) +
             ", expected " + shape_text(expected.begin(), static_cast<int>(expected.size())),
         {}, location);
  }
  if (tensor.data == nullptr && tensor.size() > 0) {
    fail("tensor '" + std::string(name) + "' has no memory", {}, location);
  }
}

}  // namespace llmc
