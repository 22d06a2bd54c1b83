// Names files that are no texts by their first bytes, with what turns them into a text.
#pragma once

#include <string>
#include <string_view>

namespace llmc {

// "a Parquet file: convert it with python3 -c '...'" for a file that begins with `start`; empty if
// it is none of the known kinds. The command names `path`.
std::string packed_kind(std::string_view start, const std::string& path);

}  // namespace llmc
