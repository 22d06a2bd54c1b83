#include "llmc/config/offload_places.h"

#include <array>
#include <cstddef>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/suggestions.h"

namespace llmc {

namespace {

constexpr const char* kNone = "none";

// The kind and the place of an entry.
std::pair<std::string, std::string> split_entry(const std::string& entry) {
  const std::size_t equals = entry.find('=');
  if (equals == entry.npos) return {entry, "host"};
  return {entry.substr(0, equals), entry.substr(equals + 1)};
}

OffloadPlace OffloadPlaces::*kind_of(const std::string& name) {
  for (const OffloadKind& kind : kOffloadKinds) {
    if (name == kind.name) return kind.place;
  }
  return nullptr;
}

}  // namespace

const char* place_name(Place place) {
  constexpr std::array<const char*, 3> kNames = {"device", "host", "disk"};
  return kNames[static_cast<std::size_t>(place)];
}

std::string offload_error(const std::string& entry) {
  if (entry == kNone) return {};
  const auto [kind, place] = split_entry(entry);
  if (kind_of(kind) == nullptr) {
    return "'" + kind + "' is not one of optimizer, gradients, parameters, activations" +
           did_you_mean(nearest_answers(kind, {{"optimizer", "optimizer"},
                                               {"moments", "optimizer"},
                                               {"gradients", "gradients"},
                                               {"grads", "gradients"},
                                               {"parameters", "parameters"},
                                               {"weights", "parameters"},
                                               {"params", "parameters"},
                                               {"activations", "activations"}}));
  }
  if (place.empty()) return "'" + entry + "' has no place after =; use host or a directory";
  return {};
}

OffloadPlaces parse_offload(const std::vector<std::string>& entries) {
  OffloadPlaces places;
  for (const std::string& entry : entries) {
    if (entry == kNone && entries.size() == 1) break;
    if (entry == kNone) fail_usage("--offload none stands next to kinds", "leave none out");
    const auto [kind, place] = split_entry(entry);
    OffloadPlace& target = places.*kind_of(kind);
    if (target.place != Place::device) {
      fail_usage("--offload gives " + kind + " two places", "give each kind once");
    }
    target = place == "host" ? OffloadPlace{Place::host, {}} : OffloadPlace{Place::disk, place};
  }
  return places;
}

}  // namespace llmc
