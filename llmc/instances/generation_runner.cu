#include "llmc/infer/generation_engine.h"
#include "llmc/infer/generation_runner.h"
#include "llmc/instances/instances.h"

namespace llmc {

LLMC_GENERATION()

std::unique_ptr<GenerationRunner> make_generation_runner(Dtype dtype, const ModelConfig& config,
                                                         const RunShape& shape) {
  return dispatch_dtype(dtype, [&]<class T>() -> std::unique_ptr<GenerationRunner> {
    return std::make_unique<GenerationEngine<T>>(config, shape);
  });
}

}  // namespace llmc
