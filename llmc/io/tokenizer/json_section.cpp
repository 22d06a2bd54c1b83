#include "llmc/io/tokenizer/json_section.h"

#include <algorithm>

#include "llmc/base/error.h"
#include "llmc/base/file.h"

namespace llmc {

namespace {

std::string shown(const Json* value) {
  return value == nullptr ? "missing" : printable(value->dump(-1, true));
}

}  // namespace

JsonSection::JsonSection(const Json& json, std::string name) : json_(json), name_(std::move(name)) {
  if (!json_.is_object()) fail(name_ + " is " + shown(&json_) + ", not a JSON object");
}

const Json* JsonSection::find(const std::string& key) const {
  const Json* value = json_member(json_, key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

const Json& JsonSection::at(const std::string& key) const {
  const Json* value = find(key);
  if (value == nullptr) fail(name_ + " has no \"" + key + "\"");
  return *value;
}

std::string JsonSection::place(const std::string& key) const {
  return name_ + (name_.ends_with(".json") ? ": " : ".") + key;
}

void JsonSection::allow_only(std::initializer_list<std::string_view> allowed) const {
  for (const auto& [key, value] : json_.items()) {
    if (std::find(allowed.begin(), allowed.end(), key) == allowed.end()) {
      fail(place(printable(key)) + " is " + shown(&value) + ": this key is not supported",
           "remove the key; only the settings of GPT-2's tokenizer are supported");
    }
  }
}

bool JsonSection::flag(const std::string& key, bool missing) const {
  const Json* value = find(key);
  if (value != nullptr && !value->is_boolean()) fail(place(key) + " is not true or false");
  return value == nullptr ? missing : value->boolean();
}

void JsonSection::expect(const std::string& key, const std::vector<Json>& allowed) const {
  const Json* value = json_member(json_, key);
  const Json actual = value == nullptr ? Json() : *value;
  if (std::find(allowed.begin(), allowed.end(), actual) != allowed.end()) return;
  std::string list;
  for (const Json& item : allowed) list += (list.empty() ? "" : " or ") + shown(&item);
  fail(place(key) + " is " + shown(value) + ", which is not supported", "allowed: " + list);
}

}  // namespace llmc
