// The hash of a model that adapters belong to: of the names, shapes and values of its parameters.
// It does not depend on the file's format, nor on its dtype if that holds the values.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "llmc/base/checksum.h"
#include "llmc/nn/parameter_table.h"

namespace llmc {

class BaseHash {
 public:
  // Adds a parameter with its spec.size() values. The order is that of the table.
  void add(const ParameterSpec& spec, const float* values) {
    std::string text = spec.name;
    for (const std::int64_t size : spec.shape) text += " " + std::to_string(size);
    sum_.add(std::as_bytes(std::span(text)));
    sum_.add(std::as_bytes(std::span(values, static_cast<std::size_t>(spec.size()))));
  }

  std::string text() const { return sum_.text(); }

 private:
  ContentChecksum sum_;
};

}  // namespace llmc
