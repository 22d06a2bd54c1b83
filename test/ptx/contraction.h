// Products that ptxas may fuse with a sum: add.f32 and sub.f32 without a rounding, of the result of
// mul.f32 without a rounding (PTX ISA 9.0, section 9.7.3.3). Whether it does is left open.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "test/ptx/control_flow.h"
#include "test/ptx/registers.h"

namespace llmc_ptx {

// The product that an operand of a sum is.
struct FusableProduct {
  int operand = 0;                   // of the sum: 1 or 2
  std::vector<std::string> factors;  // two registers or numbers, which the sum could read as well
};

// For each statement, the product that it may be fused with.
std::vector<std::optional<FusableProduct>> find_fusable_products(const Function& function,
                                                                 const ControlFlow& flow,
                                                                 const std::vector<Use>& uses);

}  // namespace llmc_ptx
