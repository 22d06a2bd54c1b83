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

// "45 s", "3 min 12 s" or "2 h 05 min".
inline std::string duration_text(double seconds) {
  const auto s = static_cast<long long>(seconds + 0.5);
  char text[32];
  if (s >= 3600) {
    std::snprintf(text, sizeof text, "%lld h %02lld min", s / 3600, s / 60 % 60);
  } else if (s >= 60) {
    std::snprintf(text, sizeof text, "%lld min %02lld s", s / 60, s % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld s", s);
  }
  return text;
}

}  // namespace llmc
