// The common form of machine and software files: {KIND: a name, "constants": {NAME: {"value":
// ...}}}.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/json.h"

namespace llmc {

// A file of this kind ("machine" or "software") that has been read. Errors name `source`.
class ConstantsFile {
 public:
  ConstantsFile(const Json& json, const std::string& kind, const std::string& source)
      : name_(json.find(kind)), constants_(json.find("constants")), source_(source) {
    require(
        name_ != nullptr && name_->is_string() && constants_ != nullptr && constants_->is_object(),
        source + " is not a " + kind + " file",
        "it has \"" + kind + "\": a name, and \"constants\": an object");
  }

  const std::string& name() const { return name_->text(); }
  // The member for a constant; null: it is missing.
  const Json* find(const char* constant) const { return constants_->find(constant); }
  std::string place(const char* constant) const { return source_ + ": " + constant; }

  // Throws if the file has a constant that is not in the table.
  template <class Constant>
  void require_known(const std::vector<Constant>& table) const {
    for (const JsonMember& member : constants_->items()) {
      require(std::ranges::any_of(table, [&](const Constant& c) { return member.key == c.name; }),
              source_ + ": no constant is called " + member.key);
    }
  }

 private:
  const Json *name_, *constants_;
  std::string source_;
};

}  // namespace llmc
