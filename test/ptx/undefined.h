// Undefined values. Each bit of a register, of shared and local memory, and of device memory
// (device_memory.h) is defined or not. Instructions pass on what is undefined; it is reported where
// it decides something: an address, a predicate, a branch, a value that the host or a later launch
// reads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "test/ptx/program.h"

namespace llmc_ptx {

class Warp;
struct Instruction;

// Passes on the undefined bits of an instruction that is about to run. Throws an Error for an
// undefined address, size or member mask.
void flow_undefined(Warp& warp, const Instruction& instruction);

// Throws an Error if a predicate is undefined in one of the lanes.
void require_defined(Warp& warp, Operand predicate, std::uint32_t lanes);

// Where the undefined bits of bytes of memory are; null if all are defined.
std::byte* undefined_bits(Warp& warp, const std::byte* place, std::uint64_t bytes);
bool any_undefined(const std::byte* bits, std::uint64_t bytes);
// Throws an Error if another launch stored undefined bits there.
void require_defined_by_others(Warp& warp, int lane, const std::byte* place, std::uint64_t bytes);

}  // namespace llmc_ptx
