// Memory that kernels may access, and accesses of the lanes of a warp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "test/ptx/program.h"
#include "test/ptx/warp.h"

namespace llmc_ptx {

enum class Space : std::uint8_t { generic, global, shared, local, param };

// Where the bytes of each lane's access are; null for lanes that are not active.
using Places = std::array<std::byte*, kLanes>;

// Whether it is neither shared nor local memory, nor a parameter.
bool is_global(Warp& warp, const std::byte* place);

// Tells the checks of races that a lane reads or writes these bytes. Throws an Error if that is a
// race.
void note_read(Warp& warp, int lane, const std::byte* place, std::uint64_t bytes);
void note_write(Warp& warp, int lane, const std::byte* place, std::uint64_t bytes);
void note_atomic(Warp& warp, int lane, const std::byte* place, std::uint64_t bytes);

using Addresses = std::array<std::uint64_t, kLanes>;

// The addresses of an operand whose registers are of type B.
template <class B>
Addresses addresses_of(Warp& warp, Operand base, std::int64_t offset) {
  const B* const bases = warp.lanes<B>(base);
  Addresses addresses;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    addresses[lane] = static_cast<std::uint64_t>(bases[lane]) + static_cast<std::uint64_t>(offset);
  }
  return addresses;
}

// Throws an Error for an access that is misaligned, or outside the allocations.
Places find_places(Warp& warp, Space space, const Addresses& addresses, std::uint64_t bytes);

}  // namespace llmc_ptx
