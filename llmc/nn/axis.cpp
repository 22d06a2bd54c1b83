#include "llmc/nn/axis.h"

#include <algorithm>
#include <string>

#include "llmc/base/error.h"
#include "llmc/device/math.h"

namespace llmc {

const char* axis_text(AxisName name) {
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
    case AxisName::rank:
      return "rank";
    case AxisName::labels:
      return "labels";
  }
  return "";
}

AxisPiece Axis::piece(const MeshPlace& place) const {
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

std::int64_t Axis::stored_size(std::int64_t tensor_ranks) const {
  const std::int64_t even = ceil_div(size, tensor_ranks), stored = round_up(even, multiple);
  const bool all_have_indices = stored * (tensor_ranks - 1) < size;
  return all_have_indices ? stored : round_up(even, std::min(multiple, kSmallMultiple));
}

}  // namespace llmc
