#include "test/ptx/device_memory.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "llmc/base/error.h"
#include "test/ptx/undefined.h"

namespace llmc_ptx {

namespace {

std::uint64_t address_of(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

// The last entry of a map at or before an address; null if there is none.
template <class Map>
auto* last_until(Map& map, std::uint64_t address) {
  auto next = map.upper_bound(address);
  return next == map.begin() ? nullptr : &*std::prev(next);
}

}  // namespace

DeviceMemory& DeviceMemory::instance() {
  static DeviceMemory memory;
  return memory;
}

void DeviceMemory::add(const void* memory, std::size_t bytes, Owner owner) {
  Allocation allocation{.end = address_of(memory) + bytes, .undefined = nullptr, .owner = owner};
  if (tracks_undefined_) {
    allocation.undefined = std::make_unique<std::byte[]>(bytes);
    if (owner == Owner::device) std::memset(allocation.undefined.get(), 0xFF, bytes);
  }
  const std::unique_lock lock(mutex_);
  allocations_[address_of(memory)] = std::move(allocation);
}

void DeviceMemory::add_tensor(const void* memory, std::size_t bytes) {
  const std::unique_lock lock(mutex_);
  const auto* const entry = allocation_of(address_of(memory));
  if (entry == nullptr || bytes == 0) return;
  allocations_.at(entry->first).has_tensors = true;
  tensors_[address_of(memory)] = address_of(memory) + bytes;
}

void DeviceMemory::remove(const void* memory) {
  const std::unique_lock lock(mutex_);
  const auto entry = allocations_.find(address_of(memory));
  if (entry == allocations_.end()) return;
  const std::uint64_t begin = entry->first, end = entry->second.end;
  tensors_.erase(tensors_.lower_bound(begin), tensors_.lower_bound(end));
  stores_.erase(stores_.lower_bound(begin), stores_.lower_bound(end));
  allocations_.erase(entry);
}

const std::pair<const std::uint64_t, DeviceMemory::Allocation>* DeviceMemory::allocation_of(
    std::uint64_t address) const {
  const auto* const entry = last_until(allocations_, address);
  return entry != nullptr && address < entry->second.end ? entry : nullptr;
}

std::byte* DeviceMemory::undefined_bits(std::uint64_t address, std::uint64_t bytes) const {
  const auto* const entry = allocation_of(address);
  if (entry == nullptr || entry->second.undefined == nullptr) return nullptr;
  if (address + bytes > entry->second.end) return nullptr;
  return entry->second.undefined.get() + (address - entry->first);
}

Range DeviceMemory::find(std::uint64_t address) const {
  const std::shared_lock lock(mutex_);
  const auto* const entry = allocation_of(address);
  if (entry == nullptr) return {};
  Range range{entry->first, entry->second.end};
  if (entry->second.has_tensors) {
    const auto* const tensor = last_until(tensors_, address);
    if (tensor == nullptr || address >= tensor->second) return {};
    range = {tensor->first, tensor->second};
  }
  if (entry->second.undefined != nullptr)
    range.undefined = entry->second.undefined.get() + (range.begin - entry->first);
  return range;
}

std::vector<std::byte> DeviceMemory::undefined(const void* memory, std::size_t bytes) const {
  const std::shared_lock lock(mutex_);
  const std::byte* const bits = undefined_bits(address_of(memory), bytes);
  return bits == nullptr ? std::vector<std::byte>(bytes)
                         : std::vector<std::byte>(bits, bits + bytes);
}

void DeviceMemory::set_undefined(const void* memory, const std::vector<std::byte>& bits) {
  const std::shared_lock lock(mutex_);
  std::byte* const at = undefined_bits(address_of(memory), bits.size());
  if (at != nullptr) std::ranges::copy(bits, at);
}

void DeviceMemory::note_undefined_store(const Warp& warp, int lane, std::uint64_t address,
                                        std::uint32_t bytes) {
  const std::unique_lock lock(mutex_);
  stores_[address] = {address + bytes, warp.block().launch, warp.place_text(lane)};
}

std::optional<std::string> DeviceMemory::undefined_store(std::uint64_t address, std::uint64_t bytes,
                                                         std::uint64_t launch) const {
  const std::shared_lock lock(mutex_);
  const std::byte* const bits = undefined_bits(address, bytes);
  if (bits == nullptr || !any_undefined(bits, bytes)) return std::nullopt;
  constexpr std::uint64_t kLargestStore = 16;
  auto at = stores_.lower_bound(address - std::min(address, kLargestStore - 1));
  for (; at != stores_.end() && at->first < address + bytes; ++at) {
    const Store& store = at->second;
    const std::uint64_t first = std::max(address, at->first);
    const std::uint64_t end = std::min(address + bytes, store.end);
    if (first >= end || store.launch == launch ||
        !any_undefined(bits + (first - address), end - first))
      continue;
    return "stored undefined by " + store.place;
  }
  return std::nullopt;
}

void DeviceMemory::host_reads(const void* memory, std::size_t bytes) const {
  const std::optional<std::string> store = undefined_store(address_of(memory), bytes);
  llmc::require(!store, "the host reads " + std::to_string(bytes) + " bytes that were " +
                            store.value_or(std::string()));
}

void DeviceMemory::host_writes(const void* memory, std::size_t bytes) {
  const std::shared_lock lock(mutex_);
  std::byte* const bits = undefined_bits(address_of(memory), bytes);
  if (bits != nullptr) std::memset(bits, 0, bytes);
}

void DeviceMemory::host_copies(const void* to, const void* from, std::size_t bytes) {
  bool is_on_device = false;
  {
    const std::shared_lock lock(mutex_);
    const auto* const entry = allocation_of(address_of(to));
    is_on_device = entry != nullptr && entry->second.owner == Owner::device;
    std::byte* const to_bits = undefined_bits(address_of(to), bytes);
    const std::byte* const from_bits = undefined_bits(address_of(from), bytes);
    if (is_on_device && to_bits != nullptr) {
      if (from_bits != nullptr) {
        std::memmove(to_bits, from_bits, bytes);
      } else {
        std::memset(to_bits, 0, bytes);
      }
    }
  }
  if (!is_on_device) host_reads(from, bytes);
}

}  // namespace llmc_ptx
