// The store of a place.
#pragma once

#include <memory>
#include <string>

#include "llmc/config/offload_places.h"
#include "llmc/offload/store.h"

namespace llmc {

// `what` the store holds, for messages. The place must not be the device.
inline std::unique_ptr<Store> make_store(const OffloadPlace& place, const std::string& what) {
  require(place.place == Place::host, "no store for " + what);
  return std::make_unique<HostStore>();
}

}  // namespace llmc
