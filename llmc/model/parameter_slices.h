// The part of a parameter that one rank holds, as slices of a tensor in files.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "llmc/io/checkpoint/slice.h"
#include "llmc/model/parameters.h"

namespace llmc {

// Returns one slice per box of spec.local(place), in the same order. The tensor's name is `prefix`
// followed by spec.name. Several slices are stored as NAME[0], NAME[1] and so on, because names in
// a file are unique. A rank without elements of the parameter has no slice.
inline std::vector<Slice> slices_of(const ParameterSpec& spec, const MeshPlace& place,
                                    const std::string& prefix) {
  const TensorHeader tensor = {prefix + spec.name, TensorDtype::f32, spec.shape};
  const std::vector<ElementBox> boxes = spec.local(place).boxes;
  std::vector<Slice> slices;
  for (const ElementBox& box : boxes) {
    Shape offset = {box.global_begin / box.global_stride};
    Shape extent = {box.rows};
    if (spec.shape.size() > 1) {
      offset.push_back(box.global_begin % box.global_stride);
      extent.push_back(box.columns);
    }
    Slice slice = Slice::box(tensor, std::move(offset), std::move(extent));
    if (boxes.size() > 1)
      slice.stored_name = tensor.name + "[" + std::to_string(slices.size()) + "]";
    slices.push_back(std::move(slice));
  }
  return slices;
}

}  // namespace llmc
