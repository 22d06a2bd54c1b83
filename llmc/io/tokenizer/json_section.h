// A JSON object of a tokenizer's file, its place in the file, and checks of its members. Errors
// name file, place and key.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "llmc/base/json.h"

namespace llmc {

class JsonSection {
 public:
  // Throws unless `json` is an object; it must outlive this.
  JsonSection(const Json& json, std::string name);

  // Returns null if the key is absent or its value is null.
  const Json* find(const std::string& key) const;

  const Json& at(const std::string& key) const;

  JsonSection section(const std::string& key) const { return {at(key), place(key)}; }

  const Json& json() const { return json_; }

  // Returns "FILE: KEY.KEY".
  std::string place(const std::string& key) const;

  // Throws if the object has a key that is not in `allowed`.
  void allow_only(std::initializer_list<std::string_view> allowed) const;

  // Returns a boolean; one that is absent or null is `missing`.
  bool flag(const std::string& key, bool missing) const;

  // Throws unless the value of `key` is one of `allowed`; an absent value counts as null.
  void expect(const std::string& key, const std::vector<Json>& allowed) const;

 private:
  const Json& json_;
  std::string name_;
};

}  // namespace llmc
