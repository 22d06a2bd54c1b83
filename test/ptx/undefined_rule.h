// How the forms of instructions pass on undefined bits (undefined.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace llmc_ptx {

// How a form passes on undefined bits.
enum class Flow : std::uint8_t {
  none,         // it reads no registers, or is no plain instruction
  whole,        // one undefined bit makes the results of the lane undefined
  carry,        // it makes the bits above it undefined, as in sums and products of integers
  follow,       // the form moves bits, so what it does to bits it does to their being undefined
  conjunction,  // a bit and 0 is 0
  disjunction,  // a bit or 1 is 1
  either,       // a bit is undefined if it is in one of the sources
  equality,     // two values that differ in a defined bit are not equal
  matrix,       // a row of the first or a column of the second matrix
  memory        // the address must be defined; the access does the rest
};

// For an instruction: its flow, and its operands in the letters of Form::operands, with the width
// instead of x; 'a' and 'A' are addresses of 32 and 64 bits, '-' is no register.
struct UndefinedRule {
  static constexpr std::size_t kMost = 14;
  Flow flow = Flow::whole;
  std::uint16_t chooses = 0;  // operands of a form that follows, which choose bits, by number
  std::uint8_t count = 0;
  std::array<char, kMost> letters{};
};

// The flow of a form, and the operands that choose.
UndefinedRule undefined_rule(std::string_view form);

}  // namespace llmc_ptx
