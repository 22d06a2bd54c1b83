#include "llmc/io/checkpoint/slice.h"

#include <algorithm>
#include <cstring>
#include <queue>

#include "llmc/base/error.h"
#include "llmc/base/file.h"

namespace llmc {

Slice Slice::box(const TensorHeader& tensor, Shape view, Shape offset, Shape extent) {
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

Slice Slice::range(std::int64_t from, std::int64_t to) const {
  Slice slice = *this;
  slice.begin = from;
  slice.end = to;
  slice.check();
  return slice;
}

void Slice::check() const {
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

void Slice::check_view(const std::string& what) const {
  if (view.empty()) return;
  const bool is_short = view.size() <= kMaxViewAxes;
  if (is_short && checked_count(view) == checked_count(shape)) return;
  fail(what + ": its view " +
       (is_short ? shape_text(view) : "of " + std::to_string(view.size()) + " axes") +
       " is not a shape of at most " + std::to_string(kMaxViewAxes) +
       " axes with the elements of " + shape_text(shape));
}

namespace {

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

}  // namespace

void check_slices_cover(const std::vector<Slice>& slices) {
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

std::int64_t copy_common(const Slice& from, std::span<const std::byte> source, const Slice& to,
                         std::byte* dst) {
  const std::int64_t width = tensor_dtype_bytes(from.dtype);
  require(static_cast<std::int64_t>(source.size()) == from.count() * width,
          "slice of tensor " + printable(from.name) + ": wrong number of bytes");
  std::int64_t count = 0;
  SliceRuns a(from), b(to);
  while (!a.done() && !b.done()) {
    const std::int64_t a_end = a.in_tensor() + a.size(), b_end = b.in_tensor() + b.size();
    const std::int64_t begin = std::max(a.in_tensor(), b.in_tensor());
    const std::int64_t n = std::min(a_end, b_end) - begin;
    if (n > 0) {
      std::memcpy(dst + (b.in_slice() + begin - b.in_tensor()) * width,
                  source.data() + (a.in_slice() + begin - a.in_tensor()) * width,
                  static_cast<std::size_t>(n * width));
      count += n;
    }
    if (a_end <= b_end) a.advance();
    if (b_end <= a_end) b.advance();
  }
  return count;
}

void copy_slice_into(const Slice& slice, std::span<const std::byte> part, std::byte* whole) {
  copy_common(slice, part, Slice::whole({slice.name, slice.dtype, slice.shape}), whole);
}

std::int64_t tensor_index(const Slice& slice, std::int64_t i) {
  SliceRuns run(slice);
  while (i >= run.in_slice() + run.size()) run.advance();
  return run.in_tensor() + i - run.in_slice();
}

}  // namespace llmc
