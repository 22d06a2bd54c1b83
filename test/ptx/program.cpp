#include "test/ptx/program.h"

#include <cstring>

namespace llmc_ptx {

std::int64_t Program::add_values(const Variable& variable) {
  values.push_back(aligned_bytes(variable.bytes));
  std::memset(values.back().get(), 0, static_cast<std::size_t>(variable.bytes));
  std::memcpy(values.back().get(), variable.values.data(), variable.values.size());
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(values.back().get()));
}

std::string Program::place_of(std::size_t instruction) const {
  const Origin& origin = origins[instruction];
  std::string text;
  for (int at = origin.location; at >= 0; at = locations[static_cast<std::size_t>(at)].caller) {
    const Location& location = locations[static_cast<std::size_t>(at)];
    const std::string file = location.file.substr(location.file.rfind('/') + 1);
    text += (text.empty() ? "" : ", called at ") + file + ":" + std::to_string(location.line);
  }
  const std::string line = "line " + std::to_string(origin.line) + " of " + file;
  return text.empty() ? line : text + " (" + line + ")";
}

}  // namespace llmc_ptx
