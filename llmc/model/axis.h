// A named axis of a parameter, and the part of it that one rank of a mesh holds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/device/math.h"

namespace llmc {

// The coordinates of a rank in the mesh that determine which part of a parameter the rank holds.
struct MeshPlace {
  std::int64_t tensor_rank = 0;  // index among the ranks that split a layer
  std::int64_t tensor_ranks = 1;
};

enum class AxisName { vocabulary, positions, channels, parts, heads, head_size, hidden };

inline const char* axis_text(AxisName name) {
  switch (name) {
    case AxisName::vocabulary:
      return "vocabulary";
    case AxisName::positions:
      return "positions";
    case AxisName::channels:
      return "channels";
    case AxisName::parts:
      return "parts";
    case AxisName::heads:
      return "heads";
    case AxisName::head_size:
      return "head size";
    case AxisName::hidden:
      return "hidden channels";
  }
  return "";
}

// Indices [begin, begin + size) of an axis. `stored_size` is their number in memory, with padding.
struct AxisPiece {
  std::int64_t begin = 0;
  std::int64_t size = 0;
  std::int64_t stored_size = 0;
};

struct Axis {
  AxisName name = AxisName::channels;
  std::int64_t size = 0;
  bool split = false;  // true if tensor parallelism splits the axis
  // If 1, every rank has the same number of indices; the number of ranks must divide the axis. If
  // larger, every rank stores the same multiple of this number, padding included. The last rank
  // with indices may have fewer than it stores, and the ranks after it have none.
  std::int64_t multiple = 1;

  // Returns the rank's part of the axis. Throws if the ranks cannot split it.
  AxisPiece piece(const MeshPlace& place) const {
    require(
        place.tensor_ranks >= 1 && place.tensor_rank >= 0 && place.tensor_rank < place.tensor_ranks,
        "tensor rank " + std::to_string(place.tensor_rank) + " of " +
            std::to_string(place.tensor_ranks) + " does not exist");
    if (!split) return {0, size, round_up(size, multiple)};
    if (multiple == 1 && size % place.tensor_ranks != 0) {
      fail(std::to_string(size) + " " + axis_text(name) + " cannot be split over " +
               std::to_string(place.tensor_ranks) + " tensor-parallel ranks",
           "the number of ranks must divide the " + std::string(axis_text(name)));
    }
    const std::int64_t stored_size = round_up(ceil_div(size, place.tensor_ranks), multiple);
    const std::int64_t begin = std::min(size, place.tensor_rank * stored_size);
    return {begin, std::min(size - begin, stored_size), stored_size};
  }
};

// Elements [global_begin, global_begin + size) of one axis of a tensor in a file. A rank stores
// them from local_begin on in the same axis of its own array.
struct Interval {
  std::int64_t global_begin = 0;
  std::int64_t local_begin = 0;
  std::int64_t size = 0;
};

// Returns the part that a rank holds of one axis of a tensor in a file. The axis is the product of
// `axes`, outermost first. A split of an inner axis yields one interval per index of the axes
// outside it: half of the heads of (3 parts, heads, head size) are three intervals. Contiguous
// elements form one interval.
inline std::vector<Interval> intervals_of(const std::vector<Axis>& axes, const MeshPlace& place) {
  std::vector<Interval> all = {{0, 0, 1}};  // in units of the remaining axes
  for (const Axis& axis : axes) {
    const AxisPiece piece = axis.piece(place);
    std::vector<Interval> split_intervals;
    for (const Interval& outer : all) {
      if (piece.size == axis.size && piece.stored_size == axis.size) {
        split_intervals.push_back({outer.global_begin * axis.size, outer.local_begin * axis.size,
                                   outer.size * axis.size});
        continue;
      }
      for (std::int64_t i = 0; i < outer.size && piece.size > 0; ++i) {
        split_intervals.push_back({(outer.global_begin + i) * axis.size + piece.begin,
                                   (outer.local_begin + i) * piece.stored_size, piece.size});
      }
    }
    all = std::move(split_intervals);
  }
  return all;
}

}  // namespace llmc
