// Whether all ranks see the same files in --out.
#pragma once

#include <filesystem>

#include "llmc/comm/exchange.h"

namespace llmc {

// Throws, on all ranks, unless each rank finds a file that rank 0 wrote in the directory, and rank
// 0 one of each other rank; the error names the machines and the path. Leaves no files. All ranks
// call this together.
void require_shared_disk(const std::filesystem::path& directory, Exchange& exchange);

}  // namespace llmc
