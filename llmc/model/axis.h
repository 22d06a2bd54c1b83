// A named axis of a parameter, and the part of it that one rank of a mesh holds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "llmc/base/error.h"
#include "llmc/device/math.h"

namespace llmc {

// The coordinates of a rank in the mesh that determine which part of a parameter the rank holds.
struct MeshPlace {
  std::int64_t tensor_rank = 0;  // index among the ranks that split a layer
  std::int64_t tensor_ranks = 1;
  int pipeline_rank = 0;  // of the ranks that divide the layers into stages
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
  // with indices may have fewer than it stores, and the ranks after it have none. Where the
  // multiple would leave ranks without indices, kSmallMultiple takes its place.
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
    const std::int64_t stored = stored_size(place.tensor_ranks);
    const std::int64_t begin = std::min(size, place.tensor_rank * stored);
    return {begin, std::min(size - begin, stored), stored};
  }

 private:
  // Keeps rows of logits, of which each rank has one per index, aligned to 16 bytes.
  static constexpr std::int64_t kSmallMultiple = 8;

  std::int64_t stored_size(std::int64_t tensor_ranks) const {
    const std::int64_t even = ceil_div(size, tensor_ranks), stored = round_up(even, multiple);
    const bool all_have_indices = stored * (tensor_ranks - 1) < size;
    return all_have_indices ? stored : round_up(even, std::min(multiple, kSmallMultiple));
  }
};

}  // namespace llmc
