// A named axis of a parameter, and the part of it that one rank of a mesh holds.
#pragma once

#include <cstdint>

namespace llmc {

// The coordinates of a rank in the mesh that determine which part of a parameter the rank holds.
struct MeshPlace {
  std::int64_t tensor_rank = 0;  // index among the ranks that split a layer
  std::int64_t tensor_ranks = 1;
  int pipeline_rank = 0;  // of the ranks that divide the layers into stages
};

enum class AxisName {
  vocabulary,
  positions,
  channels,
  parts,
  heads,
  head_size,
  hidden,
  rank,
  labels
};

const char* axis_text(AxisName name);

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
  AxisPiece piece(const MeshPlace& place) const;

 private:
  // Keeps rows of logits, of which each rank has one per index, aligned to 16 bytes.
  static constexpr std::int64_t kSmallMultiple = 8;

  std::int64_t stored_size(std::int64_t tensor_ranks) const;
};

}  // namespace llmc
