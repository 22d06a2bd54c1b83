#include "llmc/base/json.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>

#include "llmc/base/error.h"
#include "llmc/base/file.h"

namespace llmc {

// ---- the value -----------------------------------------------------------------------------

Json::Json(std::initializer_list<Json> values) {
  const bool is_object = std::all_of(values.begin(), values.end(), [](const Json& pair) {
    return pair.is_array() && pair.size() == 2 && pair[0].is_string();
  });
  if (is_object && values.size() > 0) {
    Object members;
    for (const Json& pair : values) members.push_back({pair[0].text(), pair[1]});
    value_ = std::move(members);
  } else {
    value_ = List(values);
  }
}

Json::Json(const std::map<std::string, std::string>& members) : value_(Object()) {
  for (const auto& [key, value] : members) std::get<Object>(value_).push_back({key, value});
}

Json Json::array(std::initializer_list<Json> values) {
  return from_list(values);
}

Json Json::object() {
  return from_members({});
}

Json Json::from_list(std::vector<Json> values) {
  Json json;
  json.value_ = std::move(values);
  return json;
}

Json Json::from_members(std::vector<JsonMember> members) {
  Json json;
  json.value_ = std::move(members);
  return json;
}

bool Json::boolean() const {
  if (!is_boolean()) fail(dump() + " is not true or false");
  return std::get<bool>(value_);
}

double Json::number() const {
  if (holds<double>()) return std::get<double>(value_);
  if (holds<std::int64_t>()) return static_cast<double>(std::get<std::int64_t>(value_));
  if (!is_number_unsigned()) fail(dump() + " is not a number");
  return static_cast<double>(std::get<std::uint64_t>(value_));
}

const std::string& Json::text() const {
  if (!is_string()) fail(dump() + " is not a string");
  return std::get<std::string>(value_);
}

std::size_t Json::size() const {
  if (is_array()) return std::get<List>(value_).size();
  return is_object() ? std::get<Object>(value_).size() : 0;
}

const Json* Json::begin() const {
  return is_array() ? std::get<List>(value_).data() : nullptr;
}

const Json* Json::end() const {
  return is_array() ? begin() + size() : nullptr;
}

const Json& Json::operator[](std::size_t i) const {
  if (!is_array() || i >= size()) fail(dump() + " has no element " + std::to_string(i));
  return std::get<List>(value_)[i];
}

Json& Json::operator[](std::size_t i) {
  return const_cast<Json&>(std::as_const(*this)[i]);
}

void Json::push_back(Json value) {
  if (is_null()) value_ = List();
  std::get<List>(value_).push_back(std::move(value));
}

const std::vector<JsonMember>& Json::items() const {
  if (!is_object()) fail(dump() + " is not an object");
  return std::get<Object>(value_);
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const JsonMember& member : std::get<Object>(value_)) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

const Json& Json::operator[](std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) fail(dump() + " has no member \"" + std::string(key) + "\"");
  return *value;
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) value_ = Object();
  if (const Json* value = find(key)) return const_cast<Json&>(*value);
  auto& members = std::get<Object>(value_);
  members.push_back({std::string(key), Json()});
  return members.back().value;
}

void Json::erase(std::string_view key) {
  std::erase_if(std::get<Object>(value_), [&](const JsonMember& m) { return m.key == key; });
}

void Json::erase(std::size_t i) {
  auto& list = std::get<List>(value_);
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
}

void Json::update(const Json& other) {
  for (const auto& [key, value] : other.items()) (*this)[key] = value;
}

static bool operator==(const JsonMember& a, const JsonMember& b);

bool Json::operator==(const Json& other) const {
  if (is_number() && other.is_number()) {
    if (is_number_float() || other.is_number_float()) return number() == other.number();
    return value_ == other.value_;
  }
  if (!is_object() || !other.is_object()) return value_ == other.value_;
  const auto has = [&](const JsonMember& member) {
    const Json* value = other.find(member.key);
    return value != nullptr && *value == member.value;
  };
  return size() == other.size() && std::all_of(items().begin(), items().end(), has);
}

static bool operator==(const JsonMember& a, const JsonMember& b) {
  return a.key == b.key && a.value == b.value;
}

// ---- reading and writing -------------------------------------------------------------------

namespace {

using Library = nlohmann::ordered_json;

Library to_library(const Json& json) {
  return json.visit([](const auto& value) -> Library {
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<T, std::monostate>) {
      return nullptr;
    } else if constexpr (std::is_same_v<T, std::vector<Json>>) {
      Library list = Library::array();
      for (const Json& item : value) list.push_back(to_library(item));
      return list;
    } else if constexpr (std::is_same_v<T, std::vector<JsonMember>>) {
      // Appended without a search, which would take quadratic time.
      Library::object_t members;
      auto& list = static_cast<Library::object_t::Container&>(members);
      for (const JsonMember& member : value)
        list.emplace_back(member.key, to_library(member.value));
      return Library(std::move(members));
    } else {
      return value;
    }
  });
}

// Builds a value from the events of the library's parser.
class Builder {
 public:
  Builder(const std::string& what, KeyOrder order) : what_(what), order_(order) {}

  bool null() { return add(Json()); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Library::binary_t&) { return false; }  // no JSON text has it

  bool start_object(std::size_t) { return open(false); }
  bool start_array(std::size_t) { return open(true); }
  bool key(std::string& name) {
    check_depth();
    if (!open_.back().keys.insert(name).second) {
      fail(what_ + " holds the key \"" + printable(name) + "\" twice");
    }
    open_.back().key = std::move(name);
    return true;
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) {
    if (const auto* place = dynamic_cast<const Library::parse_error*>(&error)) {
      fail(what_ + " is not valid JSON (at byte " + std::to_string(place->byte) + ")");
    }
    fail(what_ + " is not valid JSON (a number out of range)");
  }

  Json take() { return std::move(root_); }

 private:
  // A list or an object whose end is not reached.
  struct Open {
    bool is_list = false;
    std::vector<Json> list = {};
    std::vector<JsonMember> members = {};
    std::string key = {};  // of the next member
    std::set<std::string> keys = {};
  };

  void check_depth() const {
    constexpr std::size_t kMaxDepth = 32;
    require(open_.size() <= kMaxDepth, what_ + " is nested more than 32 levels deep");
  }

  bool add(Json value) {
    check_depth();
    put(std::move(value));
    return true;
  }

  void put(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is_list) {
      open_.back().list.push_back(std::move(value));
    } else {
      open_.back().members.push_back({std::move(open_.back().key), std::move(value)});
    }
  }

  bool open(bool is_list) {
    check_depth();
    open_.push_back({.is_list = is_list});
    return true;
  }

  bool close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    if (order_ == KeyOrder::sorted) {
      std::sort(done.members.begin(), done.members.end(),
                [](const JsonMember& a, const JsonMember& b) { return a.key < b.key; });
    }
    put(done.is_list ? Json::from_list(std::move(done.list))
                     : Json::from_members(std::move(done.members)));
    return true;
  }

  const std::string& what_;
  KeyOrder order_;
  Json root_;
  std::vector<Open> open_;
};

}  // namespace

std::string Json::dump(int indent, bool ascii) const {
  return to_library(*this).dump(indent, ' ', ascii, Library::error_handler_t::replace);
}

Json parse_json(std::string_view text, const std::string& what, KeyOrder order) {
  Builder builder(what, order);
  Library::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

// ---- members with checks -------------------------------------------------------------------

std::int64_t json_size(const Json& value, const std::string& what) {
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const auto size = value.visit([](const auto& v) -> std::uint64_t {
    if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::uint64_t>) return v;
    return kMax + 1;
  });
  if (size > kMax) {
    fail(what + " is " + printable(value.dump(-1, true)) + ", not an integer of 0 or more");
  }
  return static_cast<std::int64_t>(size);
}

std::vector<std::int64_t> json_sizes(const Json& value, const std::string& what) {
  if (!value.is_array()) fail(what + " is not a list of integers");
  std::vector<std::int64_t> sizes;
  for (const Json& item : value) sizes.push_back(json_size(item, what));
  return sizes;
}

const std::string& json_text(const Json& value, const std::string& what) {
  if (!value.is_string()) fail(what + " is not a string");
  return value.text();
}

Json scalar_json(const Scalar& scalar) {
  return scalar.visit([](const auto& value) -> Json {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::monostate>) {
      return nullptr;
    } else {
      return value;
    }
  });
}

Scalar json_scalar(const Json& json, const std::string& what) {
  if (json.is_null()) return {};
  return json.visit([&](const auto& value) -> Scalar {
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_constructible_v<Scalar, T>) {
      return value;
    } else {
      return json_text(json, what);
    }
  });
}

std::string json_quoted(std::string_view text) {
  return Json(text).dump();
}

std::string json_library_version() {
  return std::to_string(NLOHMANN_JSON_VERSION_MAJOR) + "." +
         std::to_string(NLOHMANN_JSON_VERSION_MINOR) + "." +
         std::to_string(NLOHMANN_JSON_VERSION_PATCH);
}

}  // namespace llmc
