// Numbers as text.
#pragma once

#include <cmath>
#include <cstdio>
#include <limits>
#include <string>

namespace llmc {

// Formats a number with a printf format for a double, such as "%.4f". NaN has no sign in the
// result: which one it has depends on the CPU.
inline std::string number_text(const char* format, double value) {
  if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();
  char text[400];  // "%f" of the largest double has 316 characters
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace llmc
