// Which part of a tensor a file holds. A tensor may be split over the files of many ranks. A part
// is a box (tensor parallelism splits an axis), a flat range (ZeRO cuts buckets of elements), or a
// flat range of a box (both at once). Readers need not know the layout that wrote the checkpoint:
// slices are reassembled by tensor name.
//
// A box may be cut from another shape of the tensor, its view. c_attn.weight (C, 3C), split by
// heads, is one box of the view (C, 3, heads, head size): {0, 0, first head, 0} to all of C, all of
// q, k and v, and the rank's heads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "llmc/io/checkpoint/tensor_dtype.h"

namespace llmc {

struct Slice {
  static constexpr std::size_t kMaxViewAxes = 8;

  std::string name;
  TensorDtype dtype = TensorDtype::f32;
  Shape shape;      // shape of the whole tensor
  Shape view = {};  // shape with the same number of elements; empty: `shape`
  Shape offset;     // start of the box, one number per axis of the view
  Shape extent;     // shape of the box
  // Elements [begin, end) of the box, counted row by row.
  std::int64_t begin = 0;
  std::int64_t end = 0;
  // Name of the slice in the file, unique there; empty: the tensor's name.
  std::string stored_name = {};

  // The whole tensor, a box of it, a box of a view of it, or a flat range of it. All of them throw
  // if the shape is impossible or the part is outside the tensor.
  static Slice whole(const TensorHeader& tensor) {
    return box(tensor, Shape(tensor.shape.size(), 0), tensor.shape);
  }
  static Slice box(const TensorHeader& tensor, Shape offset, Shape extent) {
    return box(tensor, {}, std::move(offset), std::move(extent));
  }
  // A box with all elements is Slice::whole and needs no view.
  static Slice box(const TensorHeader& tensor, Shape view, Shape offset, Shape extent);
  static Slice flat(const TensorHeader& tensor, std::int64_t begin, std::int64_t end) {
    return whole(tensor).range(begin, end);
  }
  // Elements [from, to) of this slice's box.
  Slice range(std::int64_t from, std::int64_t to) const;

  std::int64_t count() const { return end - begin; }
  const Shape& viewed_shape() const { return view.empty() ? shape : view; }
  bool is_whole_box() const { return begin == 0 && end == *checked_count(extent); }
  bool is_whole() const { return is_whole_box() && extent == viewed_shape(); }

  const std::string& name_in_file() const { return stored_name.empty() ? name : stored_name; }
  // The header of the slice in a file: a whole tensor has its shape, a box keeps its axes, and a
  // flat range has one axis.
  TensorHeader stored_header() const {
    return {name_in_file(), dtype, is_whole() ? shape : is_whole_box() ? extent : Shape{count()}};
  }

  // Throws unless the view has the elements of the tensor, the box is inside the view and the range
  // is inside the box.
  void check() const;

  bool operator==(const Slice&) const = default;

 private:
  void check_view(const std::string& what) const;
};

// Throws unless the slices, all of one tensor, agree in shape and dtype and hold each element once.
// They may have different views: the runs of all slices are merged in ascending order. The time is
// proportional to the number of runs, and the memory to the number of slices.
void check_slices_cover(const std::vector<Slice>& slices);

// Copies the elements that two slices of a tensor have in common from `source`, which has those of
// `from` one after the other, to `dst`, which has those of `to`. Returns the number of elements.
// The time is proportional to the number of runs of both.
std::int64_t copy_common(const Slice& from, std::span<const std::byte> source, const Slice& to,
                         std::byte* dst);

// Copies the elements of the slice from `part`, where they are contiguous, to their positions in
// `whole`, the full tensor in host memory.
void copy_slice_into(const Slice& slice, std::span<const std::byte> part, std::byte* whole);

// The index in the tensor of the slice's element i.
std::int64_t tensor_index(const Slice& slice, std::int64_t i);

}  // namespace llmc
