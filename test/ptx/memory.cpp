#include "test/ptx/memory.h"

#include <algorithm>
#include <optional>

#include "test/ptx/device_memory.h"
#include "test/ptx/races.h"

namespace llmc_ptx {

namespace {

constexpr std::uint64_t kSharedEnd = kSharedWindow + kWindowSize,
                        kLocalEnd = kLocalWindow + kWindowSize,
                        kParamEnd = kParamWindow + kWindowSize;

std::string hex(std::uint64_t address) {
  char text[20];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

[[noreturn]] void outside(const Warp& warp, const std::string& what, std::uint64_t address,
                          std::uint64_t bytes, std::int64_t size, int lane) {
  warp.error("an access of " + std::to_string(bytes) + " bytes at " +
                 std::to_string(static_cast<std::int64_t>(address)) + " of " + what +
                 ", which has " + std::to_string(size) + " bytes,",
             lane);
}

// The place at `address` of memory of `size` bytes that begins at `begin`.
std::byte* place_in(const Warp& warp, const char* what, std::byte* begin, std::int64_t size,
                    std::uint64_t address, std::uint64_t bytes, int lane) {
  if (address + bytes > static_cast<std::uint64_t>(size) || address + bytes < address) {
    outside(warp, what, address, bytes, size, lane);
  }
  return begin + address;
}

// Throws the Error for an access outside the tensors of its pointers.
[[noreturn]] void outside_tensors(const Warp& warp, const std::vector<Range>& tensors,
                                  std::uint64_t address, std::uint64_t bytes, int lane) {
  const Range& tensor = tensors.front();
  outside(warp, tensors.size() == 1 ? "the tensor" : "one of the tensors", address - tensor.begin,
          bytes, static_cast<std::int64_t>(tensor.end - tensor.begin), lane);
}

std::byte* global_place(Warp& warp, std::uint64_t address, std::uint64_t bytes, int lane) {
  Range& last = warp.last_range();
  if (const std::vector<Range>& tensors = warp.tensors(); !tensors.empty()) {
    const auto tensor = std::ranges::find_if(
        tensors, [=](const Range& range) { return range.holds(address, bytes); });
    if (tensor == tensors.end()) outside_tensors(warp, tensors, address, bytes, lane);
    last = *tensor;
  } else if (!last.holds(address, bytes)) {
    const Range range = DeviceMemory::instance().find(address);
    if (range.end == 0) {
      warp.error("an access of " + std::to_string(bytes) + " bytes at the address " + hex(address) +
                     ", which is in no allocation,",
                 lane);
    }
    if (!range.holds(address, bytes)) {
      outside(warp, "an allocation", address - range.begin, bytes,
              static_cast<std::int64_t>(range.end - range.begin), lane);
    }
    last = range;
  }
  return reinterpret_cast<std::byte*>(address);
}

std::byte* place_of(Warp& warp, Space space, std::uint64_t address, std::uint64_t bytes, int lane) {
  Block& block = warp.block();
  if (space == Space::generic) {
    if (address >= kSharedWindow && address < kSharedEnd) {
      space = Space::shared;
      address -= kSharedWindow;
    } else if (address >= kLocalWindow && address < kLocalEnd) {
      space = Space::local;
      address -= kLocalWindow;
    } else if (address >= kParamWindow && address < kParamEnd) {
      space = Space::param;
      address -= kParamWindow;
    }
  }
  switch (space) {
    case Space::shared:
      return place_in(warp, "the block's shared memory", block.shared, block.shared_bytes, address,
                      bytes, lane);
    case Space::local: {
      const std::int64_t size = block.program->local_bytes;
      return place_in(warp, "the thread's local memory", warp.local() + lane * size, size, address,
                      bytes, lane);
    }
    case Space::param:
      return place_in(warp, "the parameters", const_cast<std::byte*>(block.parameters),
                      block.program->parameter_bytes, address, bytes, lane);
    default:
      return global_place(warp, address, bytes, lane);
  }
}

}  // namespace

namespace {

bool is_shared(const Block& block, const std::byte* place) {
  return place >= block.shared && place < block.shared + block.shared_bytes;
}
bool is_private(Warp& warp, const std::byte* place) {
  const Block& block = warp.block();
  const std::int64_t local = block.program->local_bytes * kLanes;
  return (place >= warp.local() && place < warp.local() + local) ||
         (place >= block.parameters && place < block.parameters + block.program->parameter_bytes);
}

const char* name_of(Access access) {
  return access == Access::read ? "a read" : access == Access::write ? "a write" : "an atomic";
}

void note(Warp& warp, int lane, const std::byte* place, std::uint64_t bytes, Access access) {
  const Block& block = warp.block();
  if (block.shared_races == nullptr) return;
  const auto count = static_cast<std::int64_t>(bytes);
  std::optional<std::string> other;
  if (is_shared(block, place)) {
    const int thread = warp.index() * kLanes + lane;
    const std::int64_t offset = place - block.shared;
    other = access == Access::read ? block.shared_races->read(thread, offset, count)
                                   : block.shared_races->write(thread, offset, count);
  } else if (is_global(warp, place)) {
    const auto address = reinterpret_cast<std::uintptr_t>(place);
    if (block.earlier != nullptr && !warp.has_waited()) {
      other = block.earlier->conflict(access, address, count);
      if (other)
        warp.error(std::string(name_of(access)) + " before the wait for the launches before, and " +
                       *other + ",",
                   lane);
    }
    other = block.global_races->note(access, warp.index(), address, count);
  }
  if (!other) return;
  warp.error(
      std::string("a race: ") + name_of(access) + ", and " + *other + ", which nothing orders,",
      lane);
}

// Whether an access is in the tensor of its pointer, or in that of the last access if its pointer
// is unknown.
bool is_in_one_tensor(Warp& warp, std::uint64_t least, std::uint64_t bytes) {
  const std::vector<Range>& tensors = warp.tensors();
  if (tensors.empty()) return warp.last_range().holds(least, bytes);
  if (!tensors.front().holds(least, bytes)) return false;
  warp.last_range() = tensors.front();
  return true;
}

}  // namespace

bool is_global(Warp& warp, const std::byte* place) {
  return !is_shared(warp.block(), place) && !is_private(warp, place);
}

void note_read(Warp& warp, int lane, const std::byte* place, std::uint64_t bytes) {
  note(warp, lane, place, bytes, Access::read);
}

void note_write(Warp& warp, int lane, const std::byte* place, std::uint64_t bytes) {
  note(warp, lane, place, bytes, Access::write);
}
void note_atomic(Warp& warp, int lane, const std::byte* place, std::uint64_t bytes) {
  note(warp, lane, place, bytes, Access::atomic);
}

Places find_places(Warp& warp, Space space, const Addresses& addresses, std::uint64_t bytes) {
  Places places{};
  const std::uint32_t active = warp.active();
  std::uint64_t all = 0, least = ~std::uint64_t{0}, most = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    const std::uint64_t address = addresses[static_cast<std::size_t>(lane)];
    const bool is_active = (active >> lane & 1) != 0;
    all |= is_active ? address : 0;
    least = std::min(least, is_active ? address : ~std::uint64_t{0});
    most = std::max(most, is_active ? address : 0);
  }
  if ((all & (bytes - 1)) != 0) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const std::uint64_t address = addresses[static_cast<std::size_t>(lane)];
      if ((active >> lane & 1) == 0 || (address & (bytes - 1)) == 0) continue;
      warp.error("a misaligned access of " + std::to_string(bytes) + " bytes at the address " +
                     hex(address),
                 lane);
    }
  }
  // Mostly, all lanes access one piece of memory.
  std::byte* begin = nullptr;
  const Block& block = warp.block();
  if (space == Space::shared && most + bytes <= static_cast<std::uint64_t>(block.shared_bytes)) {
    begin = block.shared;
  } else if (space == Space::param &&
             most + bytes <= static_cast<std::uint64_t>(block.program->parameter_bytes)) {
    begin = const_cast<std::byte*>(block.parameters);
  }
  if (begin != nullptr) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) places[lane] = begin + addresses[lane];
    return places;
  }
  if (space == Space::global && is_in_one_tensor(warp, least, most - least + bytes)) {
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      places[lane] = reinterpret_cast<std::byte*>(addresses[lane]);
    return places;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((active >> lane & 1) == 0) continue;
    places[static_cast<std::size_t>(lane)] =
        place_of(warp, space, addresses[static_cast<std::size_t>(lane)], bytes, lane);
  }
  return places;
}

}  // namespace llmc_ptx
