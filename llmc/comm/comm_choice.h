// The choice of the library that connects the ranks of a run.
#pragma once

#include <string>
#include <vector>

namespace llmc {

// automatic: NCCL if the build has it and every rank has its own GPU; otherwise what connected the
// ranks, MPI or TCP.
enum class CommChoice { automatic, mpi, nccl, tcp };

// Describes the first rank that has no GPU of its own; empty: every rank has one. `gpus` has the
// machine and the PCI bus id of the GPU of each rank, and an empty text for a rank without GPU.
std::string missing_gpu_text(const std::vector<std::string>& gpus);

}  // namespace llmc
