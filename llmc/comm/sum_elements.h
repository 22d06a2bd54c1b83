// Sums of arrays that several ranks contributed, in host memory.
#pragma once

#include <cstdint>
#include <span>

#include "llmc/comm/call.h"

namespace llmc {

void sum_elements(Element element, void* out, std::span<const void* const> arrays, std::int64_t n);

}  // namespace llmc
