// Which part of a tensor a file holds. A tensor may be split over the files of many ranks. A part
// is a box (tensor parallelism splits an axis), a flat range (ZeRO cuts buckets of elements), or a
// flat range of a box (both at once). Readers need not know the layout that wrote the checkpoint:
// slices are reassembled by tensor name.
//
// A box may be cut from another shape of the tensor, its view. c_attn.weight (C, 3C), split by
// heads, is one box of the view (C, 3, heads, head size): {0, 0, first head, 0} to all of C, all of
// q, k and v, and the rank's heads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <queue>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
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
  static Slice box(const TensorHeader& tensor, Shape view, Shape offset, Shape extent) {
    Slice slice{.name = tensor.name,
                .dtype = tensor.dtype,
                .shape = tensor.shape,
                .view = std::move(view),
                .offset = std::move(offset),
                .extent = std::move(extent)};
    slice.end = checked_count(slice.extent).value_or(0);
    slice.check();
    return slice.view.empty() || !slice.is_whole() ? slice : whole(tensor);
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
  void check() const {
    const std::string what = "slice of tensor " + printable(name);
    tensor_bytes({name, dtype, shape});  // throws for an impossible shape
    check_view(what);
    const Shape& axes = viewed_shape();
    require(offset.size() == axes.size() && extent.size() == axes.size(),
            what + ": its box has another number of axes than " + shape_text(axes));
    for (std::size_t i = 0; i < axes.size(); ++i) {
      require(offset[i] >= 0 && extent[i] >= 0 && offset[i] <= axes[i] &&
                  extent[i] <= axes[i] - offset[i],
              what + ": box " + shape_text(extent) + " at " + shape_text(offset) + " is outside " +
                  shape_text(axes));
    }
    require(begin >= 0 && begin <= end && end <= *checked_count(extent),
            what + ": elements " + std::to_string(begin) + " to " + std::to_string(end) +
                " are outside its box " + shape_text(extent));
  }

  bool operator==(const Slice&) const = default;

 private:
  void check_view(const std::string& what) const {
    if (view.empty()) return;
    const bool is_short = view.size() <= kMaxViewAxes;
    if (is_short && checked_count(view) == checked_count(shape)) return;
    fail(what + ": its view " +
         (is_short ? shape_text(view) : "of " + std::to_string(view.size()) + " axes") +
         " is not a shape of at most " + std::to_string(kMaxViewAxes) +
         " axes with the elements of " + shape_text(shape));
  }
};

// The runs of a slice: ranges of elements that are contiguous both in the slice and in the tensor,
// in ascending order. The slice must have passed check() and outlive this object.
class SliceRuns {
 public:
  explicit SliceRuns(const Slice& slice) : slice_(&slice), next_(slice.begin) {
    if (slice.count() == 0) return;  // the products below might overflow
    const Shape& axes = slice.viewed_shape();
    for (std::size_t axis = axes.size(); axis-- > 0;) {
      row_ *= slice.extent[axis];
      if (slice.extent[axis] != axes[axis]) break;
    }
    find_run();
  }

  bool done() const { return next_ == slice_->end; }
  // Index of the run's first element in the slice, and in the tensor.
  std::int64_t in_slice() const { return next_ - slice_->begin; }
  std::int64_t in_tensor() const { return in_tensor_; }
  std::int64_t size() const { return size_; }
  void advance() {
    next_ += size_;
    if (!done()) find_run();
  }

 private:
  void find_run() {
    size_ = std::min(row_ - next_ % row_, slice_->end - next_);
    // Index of element next_ of the box along each axis, last axis first.
    const Shape& axes = slice_->viewed_shape();
    std::int64_t rest = next_, stride = 1;
    in_tensor_ = 0;
    for (std::size_t axis = axes.size(); axis-- > 0;) {
      in_tensor_ += (slice_->offset[axis] + rest % slice_->extent[axis]) * stride;
      rest /= slice_->extent[axis];
      stride *= axes[axis];
    }
  }

  const Slice* slice_;
  std::int64_t row_ = 1;  // contiguous elements of the box
  std::int64_t next_;     // element of the box at which the run begins
  std::int64_t in_tensor_ = 0, size_ = 0;
};

// Throws unless the slices, all of one tensor, agree in shape and dtype and hold each element once.
// They may have different views: the runs of all slices are merged in ascending order. The time is
// proportional to the number of runs, and the memory to the number of slices.
inline void check_slices_cover(const std::vector<Slice>& slices) {
  require(!slices.empty(), "no slices to assemble");
  const Slice& first = slices.front();
  const std::string what = "tensor " + printable(first.name);
  const std::int64_t num_elements = *checked_count(first.shape);
  const auto is_later = [](const SliceRuns& a, const SliceRuns& b) {
    return a.in_tensor() > b.in_tensor();
  };
  std::priority_queue<SliceRuns, std::vector<SliceRuns>, decltype(is_later)> next(is_later);
  std::int64_t count = 0;
  for (const Slice& slice : slices) {
    require(slice.dtype == first.dtype && slice.shape == first.shape,
            what + ": its slices disagree in dtype or shape");
    require(slice.count() <= num_elements - count, what + ": its slices overlap");
    count += slice.count();
    if (slice.count() > 0) next.push(SliceRuns(slice));
  }
  require(count == num_elements, what + ": its slices hold " + std::to_string(count) + " of " +
                                     std::to_string(num_elements) + " elements");
  for (std::int64_t end = 0; !next.empty();) {
    SliceRuns run = next.top();
    next.pop();
    require(run.in_tensor() >= end, what + ": its slices overlap");
    end = run.in_tensor() + run.size();
    run.advance();
    if (!run.done()) next.push(run);
  }
}

// Copies the elements of the slice from `part`, where they are contiguous, to their positions in
// `whole`, the full tensor in host memory.
inline void copy_slice_into(const Slice& slice, std::span<const std::byte> part, std::byte* whole) {
  const std::int64_t width = tensor_dtype_bytes(slice.dtype);
  require(static_cast<std::int64_t>(part.size()) == slice.count() * width,
          "slice of tensor " + printable(slice.name) + ": wrong number of bytes");
  for (SliceRuns run(slice); !run.done(); run.advance()) {
    std::memcpy(whole + run.in_tensor() * width, part.data() + run.in_slice() * width,
                static_cast<std::size_t>(run.size() * width));
  }
}

}  // namespace llmc
