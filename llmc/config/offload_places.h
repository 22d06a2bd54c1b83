// Where each kind of training state is while the device does not need it (--offload).
#pragma once

#include <cstdint>
#include <string>

namespace llmc {

enum class Place { device, host, disk };

struct OffloadPlace {
  Place place = Place::device;
  std::string directory = {};  // of the file, if the place is a disk

  bool operator==(const OffloadPlace&) const = default;
};

struct OffloadPlaces {
  OffloadPlace optimizer;    // moments, and the master weights of half precision
  OffloadPlace gradients;    // fp32
  OffloadPlace parameters;   // the weights in use
  OffloadPlace activations;  // the values that blocks keep for their backward pass
  // Elements of an array that the optimizer has on the device at a time, twice; a multiple of 1024.
  std::int64_t chunk = std::int64_t{1} << 21;

  bool any() const {
    for (const OffloadPlace* kind : {&optimizer, &gradients, &parameters, &activations}) {
      if (kind->place != Place::device) return true;
    }
    return false;
  }
};

}  // namespace llmc
