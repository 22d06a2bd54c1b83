#include "llmc/base/number_text.h"

#include <cmath>
#include <cstdio>
#include <limits>

namespace llmc {

std::string number_text(const char* format, double value) {
  if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();
  char text[400];  // "%f" of the largest double has 316 characters
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string seconds_text(std::chrono::milliseconds limit) {
  return number_text("%g", std::chrono::duration<double>(limit).count()) + " s";
}

std::string duration_text(double seconds) {
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
