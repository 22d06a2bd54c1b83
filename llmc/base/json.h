// JSON of files with any content: one value type, one parse function that reports each fault as an
// `Error`, and one that writes. The library behind them is included only by json.cpp, because its
// header takes seconds to compile.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "llmc/base/json_value.h"

namespace llmc {

// A member of an object. (A template, because the members of a value are values.)
template <class Value>
struct KeyAndValue {
  std::string key;
  Value value;
};
class Json;
using JsonMember = KeyAndValue<Json>;

// A value: null, boolean, number, text, list or object. An object keeps the order of its members;
// find and operator[] search from the front, so a reader of very many members iterates instead.
//
// Braces make values: {1, "a"} is a list, {{"key", 1}, {"other", nullptr}} an object.
class Json {
 public:
  Json() = default;
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  template <std::signed_integral I>
  Json(I value) {
    if (value < 0) {
      value_ = static_cast<std::int64_t>(value);
    } else {
      value_ = static_cast<std::uint64_t>(value);
    }
  }
  template <std::unsigned_integral I>
  requires(!std::same_as<I, bool>) Json(I value) : value_(static_cast<std::uint64_t>(value)) {}
  Json(double value) : value_(value) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::initializer_list<Json> values);
  template <class T>
  Json(const std::vector<T>& values) : value_(List()) {
    for (const T& value : values) push_back(value);
  }
  Json(const std::map<std::string, std::string>& members);
  static Json array(std::initializer_list<Json> values = {});
  static Json object();
  static Json from_list(std::vector<Json> values);
  static Json from_members(std::vector<JsonMember> members);

  bool is_null() const { return holds<std::monostate>(); }
  bool is_boolean() const { return holds<bool>(); }
  bool is_number() const { return is_number_integer() || is_number_float(); }
  bool is_number_integer() const { return is_number_unsigned() || holds<std::int64_t>(); }
  bool is_number_unsigned() const { return holds<std::uint64_t>(); }  // not negative
  bool is_number_float() const { return holds<double>(); }
  bool is_string() const { return holds<std::string>(); }
  bool is_array() const { return holds<List>(); }
  bool is_object() const { return holds<Object>(); }

  // These throw an `Error` for a value of another type.
  bool boolean() const;
  double number() const;
  const std::string& text() const;

  // Lists and objects. A list can be iterated; `items` are the members of an object.
  bool empty() const { return size() == 0; }
  std::size_t size() const;  // 0 for any other value
  const Json* begin() const;
  const Json* end() const;
  const Json& front() const { return (*this)[0]; }
  const Json& operator[](std::size_t i) const;
  Json& operator[](std::size_t i);
  void push_back(Json value);  // makes a list of null
  const std::vector<JsonMember>& items() const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  const Json* find(std::string_view key) const;  // null if there is none
  const Json& operator[](std::string_view key) const;
  Json& operator[](std::string_view key);  // adds a missing member; makes an object of null
  void erase(std::string_view key);
  void erase(std::size_t i);
  void update(const Json& other);  // sets all members of another object

  // The text: on one line, or with `indent` spaces per level. Bytes that are not UTF-8 become
  // U+FFFD, numbers that are not finite null. `ascii` escapes all other characters.
  std::string dump(int indent = -1, bool ascii = false) const;

  // Numbers are equal if their values are; objects, if their members are, in any order.
  bool operator==(const Json& other) const;

  template <class F>
  decltype(auto) visit(F&& f) const {
    return std::visit(std::forward<F>(f), value_);
  }

 private:
  using List = std::vector<Json>;
  using Object = std::vector<JsonMember>;
  template <class T>
  bool holds() const {
    return std::holds_alternative<T>(value_);
  }

  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, List, Object>
      value_;
};

// Order of the members of each object in a parsed value.
enum class KeyOrder { sorted, as_written };

// Throws an `Error` that begins with `what` ("/path/config.json", "x.safetensors: the header") for
// invalid JSON, invalid UTF-8, a key given twice in one object, and nesting beyond 32 levels.
Json parse_json(std::string_view text, const std::string& what, KeyOrder order = KeyOrder::sorted);

// The member `key` of an object, or null if it has none.
inline const Json* json_member(const Json& object, std::string_view key) {
  return object.find(key);
}

// An integer from 0 to 2^63 - 1. `what` names it in the error.
std::int64_t json_size(const Json& value, const std::string& what);
std::vector<std::int64_t> json_sizes(const Json& value, const std::string& what);
const std::string& json_text(const Json& value, const std::string& what);

// A number that is not finite is written as null.
Json scalar_json(const Scalar& scalar);
Scalar json_scalar(const Json& json, const std::string& what);

// A string in quotes, escaped. Bytes that are not UTF-8 become U+FFFD.
std::string json_quoted(std::string_view text);

// The version of the library, such as "3.11.2".
std::string json_library_version();

}  // namespace llmc
