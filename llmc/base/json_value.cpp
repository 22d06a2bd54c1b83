#include "llmc/base/json_value.h"

#include <charconv>
#include <cmath>

#include "llmc/base/error.h"

namespace llmc {

Scalar::Scalar(float value) : value_(static_cast<double>(value)) {
  if (!std::isfinite(value)) return;
  char digits[32];
  const auto result = std::to_chars(digits, digits + sizeof digits, value);
  double shortest = 0.0;
  std::from_chars(digits, result.ptr, shortest);
  value_ = shortest;
}

std::int64_t Scalar::integer(std::string_view what) const {
  if (!holds<std::int64_t>()) fail(std::string(what) + " is not a signed 64-bit integer");
  return std::get<std::int64_t>(value_);
}

std::uint64_t Scalar::unsigned_integer(std::string_view what) const {
  if (holds<std::uint64_t>()) return std::get<std::uint64_t>(value_);
  if (!holds<std::int64_t>() || std::get<std::int64_t>(value_) < 0) {
    fail(std::string(what) + " is not an unsigned 64-bit integer");
  }
  return static_cast<std::uint64_t>(std::get<std::int64_t>(value_));
}

double Scalar::number(std::string_view what) const {
  if (holds<double>()) return std::get<double>(value_);
  if (holds<std::uint64_t>()) return static_cast<double>(std::get<std::uint64_t>(value_));
  if (!holds<std::int64_t>()) fail(std::string(what) + " is not a number");
  return static_cast<double>(std::get<std::int64_t>(value_));
}

bool Scalar::boolean(std::string_view what) const {
  if (!holds<bool>()) fail(std::string(what) + " is not true or false");
  return std::get<bool>(value_);
}

const std::string& Scalar::text(std::string_view what) const {
  if (!holds<std::string>()) fail(std::string(what) + " is not a string");
  return std::get<std::string>(value_);
}

}  // namespace llmc
