// The default batch of a run on a GPU: a micro-batch that fills the memory, and steps whose number
// of tokens does not depend on the GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "llmc/comm/mesh.h"
#include "llmc/config/model_config.h"
#include "llmc/config/run_shape.h"
#include "llmc/config/train_settings.h"
#include "llmc/device/dtype.h"
#include "llmc/device/target.h"

namespace llmc {

// Memory that a default micro-batch leaves free: the CUDA context, the workspace of cuBLASLt, and
// what other programs on the GPU use.
inline constexpr std::int64_t kMemoryReserve = std::int64_t{2} << 30;

// The bytes of --gpu-memory.
inline std::int64_t bytes_of_gibibytes(double gibibytes) {
  return static_cast<std::int64_t>(gibibytes * (1 << 30));
}

// The largest power of two up to 64 for which bytes_of(B) is at most `total_memory` minus the
// reserve; at least 1. `tokens` are those of B = 1 on all data ranks. If the tokens of a step are
// given, B * tokens divides them if any B does.
std::int64_t default_batch_size(std::int64_t total_memory, std::int64_t tokens,
                                std::optional<std::int64_t> step_tokens,
                                const std::function<std::int64_t(std::int64_t B)>& bytes_of);

// The device memory of the pipeline rank that needs the most. `is_host_memory`: whether it is also
// the host's, as on a CPU.
std::int64_t largest_memory(Dtype dtype, const ModelConfig& model, const RunShape& shape,
                            const Mesh& mesh, bool is_host_memory = !kCudaTarget);

// Sets the defaults of --batch-size and of the tokens of a step for a GPU with `total_memory`
// bytes per rank. A resumed run has its own.
void set_gpu_batch(RunFacts& facts, const Request& request, std::int64_t total_memory);

}  // namespace llmc
