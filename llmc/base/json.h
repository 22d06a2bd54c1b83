// JSON from files with any content: one parse function that reports each fault as an `Error`.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/json_value.h"

namespace llmc {

using Json = nlohmann::json;                 // keys sorted
using OrderedJson = nlohmann::ordered_json;  // keys in file order; slow for very many keys

// Throws an `Error` that begins with `what` ("/path/config.json", "x.safetensors: the header") for
// invalid JSON, invalid UTF-8, a key given twice in one object, and nesting beyond 32 levels.
template <class J = Json>
J parse_json(std::string_view text, const std::string& what) {
  constexpr int kMaxDepth = 32;
  std::vector<std::set<std::string>> keys;  // one set per open object
  const auto check = [&](int depth, typename J::parse_event_t event, J& value) {
    using Event = typename J::parse_event_t;
    require(depth <= kMaxDepth, what + " is nested more than 32 levels deep");
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key) {
      const auto& key = value.template get_ref<const std::string&>();
      if (!keys.back().insert(key).second) {
        fail(what + " holds the key \"" + printable(key) + "\" twice");
      }
    }
    return true;
  };
  try {
    return J::parse(text.begin(), text.end(), check);
  } catch (const typename J::parse_error& error) {
    fail(what + " is not valid JSON (at byte " + std::to_string(error.byte) + ")");
  } catch (const typename J::exception&) {
    fail(what + " is not valid JSON (a number out of range)");
  }
}

// The member `key` of an object, or null if it has none.
template <class J>
const J* json_member(const J& object, const std::string& key) {
  const auto member = object.find(key);
  return member == object.end() ? nullptr : &*member;
}

// An integer from 0 to 2^63 - 1. `what` names it in the error.
template <class J>
std::int64_t json_size(const J& value, const std::string& what) {
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!value.is_number_unsigned() || value.template get<std::uint64_t>() > kMax) {
    fail(what + " is " + printable(value.dump(-1, ' ', true)) + ", not an integer of 0 or more");
  }
  return static_cast<std::int64_t>(value.template get<std::uint64_t>());
}

template <class J>
std::vector<std::int64_t> json_sizes(const J& value, const std::string& what) {
  if (!value.is_array()) fail(what + " is not a list of integers");
  std::vector<std::int64_t> sizes;
  for (const J& item : value) sizes.push_back(json_size(item, what));
  return sizes;
}

template <class J>
std::string json_text(const J& value, const std::string& what) {
  if (!value.is_string()) fail(what + " is not a string");
  return value.template get<std::string>();
}

// A number that is not finite is dumped as null.
inline OrderedJson scalar_json(const Scalar& scalar) {
  return scalar.visit([](const auto& value) -> OrderedJson {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::monostate>) {
      return nullptr;
    } else {
      return value;
    }
  });
}

inline Scalar json_scalar(const OrderedJson& json, const std::string& what) {
  if (json.is_null()) return {};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned()) return json.get<std::uint64_t>();
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number_float()) return json.get<double>();
  return json_text(json, what);
}

// A string in quotes, escaped. Bytes that are not UTF-8 become U+FFFD.
inline std::string json_quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace llmc
