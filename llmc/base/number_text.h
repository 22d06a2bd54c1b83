// Numbers as text.
#pragma once

#include <chrono>
#include <string>

namespace llmc {

// Formats a number with a printf format for a double, such as "%.4f". NaN has no sign in the
// result: which one it has depends on the CPU.
std::string number_text(const char* format, double value);

// A limit, such as "5 s" or "0.5 s".
std::string seconds_text(std::chrono::milliseconds limit);

// "45 s", "3 min 12 s" or "2 h 05 min".
std::string duration_text(double seconds);

}  // namespace llmc
