// The bytes that a rank moves between the device and the places of offloaded state in a step:
// formulae, which equal what its transfers count.
#pragma once

#include <array>
#include <cstdint>

#include "llmc/comm/mesh.h"
#include "llmc/config/model_config.h"
#include "llmc/config/run_shape.h"
#include "llmc/device/dtype.h"
#include "llmc/offload/transfers.h"

namespace llmc {

// By kind of state.
struct OffloadTraffic {
  OffloadBytes optimizer, gradients, parameters, activations;

  bool operator==(const OffloadTraffic&) const = default;
  // The bytes of the kinds that `places` keeps in this place.
  OffloadBytes of(Place place, const OffloadPlaces& places) const;
};

// The traffic of rank `rank` of the mesh. Kinds that are not offloaded move nothing.
OffloadTraffic offload_traffic(Dtype dtype, const ModelConfig& config, const RunShape& run,
                               const Mesh& mesh, std::int64_t micro_batches, int rank);

}  // namespace llmc
