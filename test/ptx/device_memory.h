// The memory of the device: allocations, the tensors in them, and which of their bits are
// undefined, because no one has written them, or because a kernel stored an undefined value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "test/ptx/warp.h"

namespace llmc_ptx {

enum class Owner : std::uint8_t { device, host };

class DeviceMemory {
 public:
  static DeviceMemory& instance();

  // Whether later allocations know their undefined bits, which takes as many bytes again.
  void track_undefined(bool tracks) { tracks_undefined_ = tracks; }

  // Memory of the host is pinned: kernels may access it, and the host writes it without notice, so
  // it counts as defined.
  void add(const void* memory, std::size_t bytes, Owner owner);
  // A tensor in an allocation. An allocation that has tensors has no valid bytes between them.
  void add_tensor(const void* memory, std::size_t bytes);
  void remove(const void* memory);

  // The tensor that holds an address, or the allocation if it has no tensors; empty if none does.
  Range find(std::uint64_t address) const;

  // The undefined bits of these bytes; zeros where none are known.
  std::vector<std::byte> undefined(const void* memory, std::size_t bytes) const;
  void set_undefined(const void* memory, const std::vector<std::byte>& bits);

  // A lane of `warp` stored undefined bits in its current instruction.
  void note_undefined_store(const Warp& warp, int lane, std::uint64_t address, std::uint32_t bytes);
  // "stored by ..." if an undefined bit of [address, address + bytes) was stored by a kernel; with
  // `launch`, only by another launch.
  std::optional<std::string> undefined_store(std::uint64_t address, std::uint64_t bytes,
                                             std::uint64_t launch = 0) const;

  // Accesses of the host in the order of a stream. Reads throw an Error if a kernel stored
  // undefined bits there.
  void host_reads(const void* memory, std::size_t bytes) const;
  void host_writes(const void* memory, std::size_t bytes);
  void host_copies(const void* to, const void* from, std::size_t bytes);

 private:
  struct Allocation {
    std::uint64_t end = 0;
    std::unique_ptr<std::byte[]> undefined;  // null: unknown
    Owner owner = Owner::device;
    bool has_tensors = false;
  };
  struct Store {
    std::uint64_t end = 0, launch = 0;
    std::string place;  // kernel, block, thread, statement
  };

  const std::pair<const std::uint64_t, Allocation>* allocation_of(std::uint64_t address) const;
  // The undefined bits of an allocation that holds these bytes; null if none does.
  std::byte* undefined_bits(std::uint64_t address, std::uint64_t bytes) const;

  mutable std::shared_mutex mutex_;
  std::map<std::uint64_t, Allocation> allocations_;  // by begin
  std::map<std::uint64_t, std::uint64_t> tensors_;   // ends, by begin
  std::map<std::uint64_t, Store> stores_;            // of undefined bits, by begin
  bool tracks_undefined_ = true;
};

}  // namespace llmc_ptx
