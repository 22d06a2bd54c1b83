// Reads a part of a tensor, from one or several pieces in files, as float.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "llmc/io/checkpoint/element_check.h"
#include "llmc/io/checkpoint/slice.h"
#include "llmc/io/checkpoint/tensor_dtype.h"

namespace llmc {

// Sets dst to the part.count() elements of a part of a tensor that files have in this dtype.
// copy(target, bytes) copies the elements of `target`, the part in that dtype, to `bytes`. Throws
// if the dtype cannot be converted, or if an element is not finite. label() returns the name of the
// tensor.
template <class Copy, class Label>
void read_part(const Slice& part, TensorDtype dtype, const Copy& copy, float* dst,
               const Label& label) {
  part.check();
  Slice target = part;
  target.dtype = dtype;
  const auto index = [&](std::int64_t i) { return tensor_index(part, i); };
  if (dtype == TensorDtype::f32) {
    copy(target, reinterpret_cast<std::byte*>(dst));
    const std::span<const float> values(dst, static_cast<std::size_t>(part.count()));
    return check_part(values, part.shape, index, is_not_finite, "not finite", label, kDivergedHint);
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(part.count() * tensor_dtype_bytes(dtype)));
  copy(target, bytes.data());
  read_floats(dtype, part.shape, bytes, dst, label, index);
}

}  // namespace llmc
