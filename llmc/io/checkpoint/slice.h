// Which part of a tensor a file holds. A tensor may be split over the files of many ranks. A part
// is a box (tensor parallelism splits an axis), a flat range (ZeRO cuts buckets of elements), or a
// flat range of a box (both at once). Readers need not know the layout that wrote the checkpoint:
// slices are reassembled by tensor name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/io/checkpoint/tensor_dtype.h"

namespace llmc {

struct Slice {
  std::string name;
  TensorDtype dtype = TensorDtype::f32;
  Shape shape;   // shape of the whole tensor
  Shape offset;  // start of the box, one number per axis
  Shape extent;  // shape of the box
  // Elements [begin, end) of the box, counted row by row.
  std::int64_t begin = 0;
  std::int64_t end = 0;
  // Name of the slice in the file, unique there; empty: the tensor's name.
  std::string stored_name = {};

  // The whole tensor, a box of it, or a flat range of it. All three throw if the shape is
  // impossible or the part is outside the tensor.
  static Slice whole(const TensorHeader& tensor) {
    return box(tensor, Shape(tensor.shape.size(), 0), tensor.shape);
  }
  static Slice box(const TensorHeader& tensor, Shape offset, Shape extent) {
    Slice slice{
        tensor.name, tensor.dtype, tensor.shape, std::move(offset), std::move(extent), 0, 0};
    slice.end = checked_count(slice.extent).value_or(0);
    slice.check();
    return slice;
  }
  static Slice flat(const TensorHeader& tensor, std::int64_t begin, std::int64_t end) {
    return whole(tensor).range(begin, end);
  }
  // Elements [from, to) of this slice's box.
  Slice range(std::int64_t from, std::int64_t to) const {
    Slice slice = *this;
    slice.begin = from;
    slice.end = to;
    slice.check();
    return slice;
  }

  std::int64_t count() const { return end - begin; }
  bool is_whole_box() const { return begin == 0 && end == *checked_count(extent); }
  bool is_whole() const { return is_whole_box() && extent == shape; }

  const std::string& name_in_file() const { return stored_name.empty() ? name : stored_name; }
  // The header of the slice in a file: a box keeps its axes, a flat range has one.
  TensorHeader stored_header() const {
    return {name_in_file(), dtype, is_whole_box() ? extent : Shape{count()}};
  }

  // Throws unless the box is inside the tensor and the range is inside the box.
  void check() const {
    const std::string what = "slice of tensor " + name;
    tensor_bytes({name, dtype, shape});  // throws for an impossible shape
    require(offset.size() == shape.size() && extent.size() == shape.size(),
            what + ": its box has another number of axes than " + shape_text(shape));
    for (std::size_t i = 0; i < shape.size(); ++i) {
      require(offset[i] >= 0 && extent[i] >= 0 && offset[i] <= shape[i] &&
                  extent[i] <= shape[i] - offset[i],
              what + ": box " + shape_text(extent) + " at " + shape_text(offset) + " is outside " +
                  shape_text(shape));
    }
    require(begin >= 0 && begin <= end && end <= *checked_count(extent),
            what + ": elements " + std::to_string(begin) + " to " + std::to_string(end) +
                " are outside its box " + shape_text(extent));
  }

  bool operator==(const Slice&) const = default;
};

// Returns whether two slices of one tensor share an element. For flat ranges of two different boxes
// that intersect, returns true without comparing elements: no layout creates such slices.
inline bool slices_overlap(const Slice& a, const Slice& b) {
  if (a.count() == 0 || b.count() == 0) return false;
  if (a.offset == b.offset && a.extent == b.extent) return a.begin < b.end && b.begin < a.end;
  for (std::size_t i = 0; i < a.shape.size(); ++i) {
    if (a.offset[i] >= b.offset[i] + b.extent[i]) return false;
    if (b.offset[i] >= a.offset[i] + a.extent[i]) return false;
  }
  return true;
}

// Throws unless the slices, all of one tensor, agree in shape and dtype and hold each element once.
// Compares all pairs: fast enough for thousands of slices per tensor, not for millions.
inline void check_slices_cover(const std::vector<Slice>& slices) {
  require(!slices.empty(), "no slices to assemble");
  const Slice& first = slices.front();
  const std::string what = "tensor " + first.name;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const Slice& slice = slices[i];
    require(slice.dtype == first.dtype && slice.shape == first.shape,
            what + ": its slices disagree in dtype or shape");
    for (std::size_t j = 0; j < i; ++j) {
      require(!slices_overlap(slice, slices[j]), what + ": its slices overlap");
    }
    count += slice.count();
  }
  const std::int64_t num_elements = *checked_count(first.shape);
  require(count == num_elements, what + ": its slices hold " + std::to_string(count) + " of " +
                                     std::to_string(num_elements) + " elements");
}

// Copies the elements of the slice from `part`, where they are contiguous, to their positions in
// `whole`, the full tensor in host memory.
inline void copy_slice_into(const Slice& slice, std::span<const std::byte> part, std::byte* whole) {
  const std::int64_t width = tensor_dtype_bytes(slice.dtype);
  require(static_cast<std::int64_t>(part.size()) == slice.count() * width,
          "slice of tensor " + slice.name + ": wrong number of bytes");
  const std::size_t axes = slice.shape.size();
  const std::int64_t row = axes == 0 ? 1 : slice.extent.back();  // contiguous elements
  for (std::int64_t at = slice.begin; at < slice.end;) {
    const std::int64_t column = at % row;
    const std::int64_t run = std::min(row - column, slice.end - at);
    // Position in the tensor of element `at` of the box, from its index along each axis, last axis
    // first.
    std::int64_t rest = at;
    std::int64_t position = 0;
    std::int64_t stride = 1;
    for (std::size_t axis = axes; axis-- > 0;) {
      position += (slice.offset[axis] + rest % slice.extent[axis]) * stride;
      rest /= slice.extent[axis];
      stride *= slice.shape[axis];
    }
    std::memcpy(whole + position * width, part.data() + (at - slice.begin) * width,
                static_cast<std::size_t>(run * width));
    at += run;
  }
}

}  // namespace llmc
