// Where each kind of training state is while the device does not need it (--offload).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

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
  // Whether the CPU updates the weights; the optimizer's place is then the host.
  bool optimizer_on_cpu = false;
  // Elements of an array that the optimizer has on the device at a time, twice; a multiple of 1024.
  std::int64_t chunk = std::int64_t{1} << 21;

  // Whether any kind is in this place, or not on the device.
  bool uses(Place place) const;
  bool any() const { return uses(Place::host) || uses(Place::disk); }
};

// A kind of state, by its name in --offload.
struct OffloadKind {
  const char* name;
  OffloadPlace OffloadPlaces::*place;
};
inline constexpr std::array<OffloadKind, 4> kOffloadKinds = {
    {{"optimizer", &OffloadPlaces::optimizer},
     {"gradients", &OffloadPlaces::gradients},
     {"parameters", &OffloadPlaces::parameters},
     {"activations", &OffloadPlaces::activations}}};

inline bool OffloadPlaces::uses(Place place) const {
  return std::ranges::any_of(
      kOffloadKinds, [&](const OffloadKind& kind) { return (this->*kind.place).place == place; });
}

// "device", "host" or "disk".
const char* place_name(Place place);

// Returns the error of an entry KIND, KIND=host or KIND=DIR of --offload, or an empty text.
std::string offload_error(const std::string& entry);

// The places of the kinds in a list of valid entries; "none" is an empty list. Throws a usage error
// if a kind has two places.
OffloadPlaces parse_offload(const std::vector<std::string>& entries);

}  // namespace llmc
