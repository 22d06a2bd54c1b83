// Errors of lower layers name a quantity, not a flag. This file replaces it by the program's flag.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "llmc/base/error.h"
#include "llmc/config/setting.h"

namespace llmc {

// The flag that sets a quantity, such as "--seq-len" for "sequence length".
template <class P>
std::optional<std::string> flag_of_quantity(const Settings<P>& table, std::string_view quantity) {
  for (const Setting<P>& row : table) {
    if (!row.quantity.empty() && row.quantity == quantity) return row.flag;
  }
  return std::nullopt;
}

// The text of an error, with flags in place of the quantities that have one.
template <class P>
std::string error_text(const std::exception& error, const Settings<P>& table) {
  const auto* ours = dynamic_cast<const Error*>(&error);
  if (ours == nullptr) return error.what();
  return with_quantities(ours->marked_text(), [&](std::string_view name) {
    return flag_of_quantity(table, name).value_or(std::string(name));
  });
}

}  // namespace llmc
