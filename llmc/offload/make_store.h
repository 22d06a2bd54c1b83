// The store of a place.
#pragma once

#include <memory>

#include "llmc/base/error.h"
#include "llmc/config/offload_places.h"
#include "llmc/offload/disk_store.h"
#include "llmc/offload/store.h"
#include "llmc/offload/transfers.h"

namespace llmc {

// The place must not be the device. `transfers` must outlive the store.
inline std::unique_ptr<Store> make_store(const OffloadPlace& place, Transfers& transfers) {
  require(place.place != Place::device, "state on the device has no store");
  if (place.place == Place::disk) {
    transfers.start_thread();
    return std::make_unique<DiskStore>(place.directory, transfers);
  }
  return std::make_unique<HostStore>();
}

}  // namespace llmc
