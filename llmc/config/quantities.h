// Lower layers name a quantity in their errors, not a flag: here is the flag for the hint.
#pragma once

#include <optional>
#include <string>
#include <string_view>

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

}  // namespace llmc
