// One value of a run log or of a checkpoint's state: null, an integer, a real number, a boolean or
// a text. A value that is written to a file as JSON reads back the same, except that a number that
// is not finite becomes null.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace llmc {

class Scalar {
 public:
  Scalar() = default;  // null
  Scalar(bool value) : value_(value) {}
  Scalar(const char* value) : value_(std::string(value)) {}
  Scalar(std::string_view value) : value_(std::string(value)) {}
  Scalar(std::string value) : value_(std::move(value)) {}
  Scalar(double value) : value_(value) {}

  // Stored as the double with the fewest digits among those that round to this float, so that 0.1f
  // is written 0.1 and not 0.10000000149011612. Casting it back returns the same float.
  Scalar(float value);

  // Any signed or unsigned 64-bit integer. Each number has one representation: int64 if it fits,
  // otherwise uint64.
  template <std::integral Integer>
  Scalar(Integer value) {
    if (std::cmp_less_equal(value, std::numeric_limits<std::int64_t>::max())) {
      value_ = static_cast<std::int64_t>(value);
    } else {
      value_ = static_cast<std::uint64_t>(value);
    }
  }

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_integer() const { return holds<std::int64_t>() || holds<std::uint64_t>(); }
  bool is_number() const { return is_integer() || holds<double>(); }
  bool is_text() const { return holds<std::string>(); }

  // `what` names the value in the error, which is thrown for another type or an integer out of
  // range.
  std::int64_t integer(std::string_view what) const;
  std::uint64_t unsigned_integer(std::string_view what) const;
  double number(std::string_view what) const;
  bool boolean(std::string_view what) const;
  const std::string& text(std::string_view what) const;

  // Calls f with the value: std::monostate (null), bool, int64, uint64, double or std::string.
  template <class F>
  decltype(auto) visit(F&& f) const {
    return std::visit(std::forward<F>(f), value_);
  }

  bool operator==(const Scalar&) const = default;

 private:
  template <class T>
  bool holds() const {
    return std::holds_alternative<T>(value_);
  }

  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string> value_;
};

}  // namespace llmc
