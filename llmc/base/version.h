// The version of all programs.
#pragma once

namespace llmc {

inline constexpr const char* kVersion = "0.9.0";

}  // namespace llmc
