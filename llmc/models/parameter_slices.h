// The part of a parameter that one rank holds, as a slice of a tensor in files.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/io/checkpoint/slice.h"
#include "llmc/models/loadable_weights.h"
#include "llmc/nn/parameter_table.h"

namespace llmc {

// Returns the slice of spec.local(place), in the order of the rank's elements, of the tensor of
// this name. It views the tensor with one axis per axis of the parameter. Empty if the rank has no
// elements of the parameter.
inline std::optional<Slice> slice_of(const ParameterSpec& spec, const MeshPlace& place,
                                     const std::string& name) {
  const TensorHeader tensor = {name, TensorDtype::f32, spec.shape};
  Shape view, offset, extent;
  for (const auto* axes : {&spec.axes.rows, &spec.axes.columns}) {
    for (const Axis& axis : *axes) {
      const AxisPiece piece = axis.piece(place);
      if (piece.size == 0) return std::nullopt;
      view.push_back(axis.size);
      offset.push_back(piece.begin);
      extent.push_back(piece.size);
    }
  }
  return Slice::box(tensor, std::move(view), std::move(offset), std::move(extent));
}

// Returns the slice of some elements of that part. Throws if the rank at `place` does not have
// them.
inline Slice slice_of(const ParameterSpec& spec, const MeshPlace& place, const std::string& name,
                      const ElementRange& range) {
  const std::optional<Slice> part = slice_of(spec, place, name);
  require(part.has_value(), "this rank has nothing of " + name);
  return part->range(range.first, range.first + range.count);
}

}  // namespace llmc
