#include <utility>

#include "llmc/instances/instances.h"
#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/parallel/training_engine.h"
#include "llmc/parallel/training_runner.h"

namespace llmc {

std::unique_ptr<TrainingRunner> make_training_runner(Dtype dtype, const ModelConfig& config,
                                                     const RunShape& shape, const GemmOptions& gemm,
                                                     Ranks ranks) {
  return dispatch_dtype(dtype, [&]<class T>() -> std::unique_ptr<TrainingRunner> {
    return std::make_unique<TrainingEngine<T>>(config, shape, gemm, std::move(ranks));
  });
}

std::vector<MemoryPlan::Segment> planned_segments(Dtype dtype, const ModelConfig& config,
                                                  const RunShape& shape, Context& context) {
  return dispatch_dtype(dtype, [&]<class T>() {
    const ParameterTable table = gpt2_parameters(config, context.tensor.place(), shape);
    MemoryPlan plan;
    TrainingState<T> state(table, shape, context, plan);
    const ModelRunner<T> runner(config, table, state.source(), shape, context, plan);
    return plan.segments();
  });
}

std::int64_t planned_bytes(Dtype dtype, const ModelConfig& config, const RunShape& shape,
                           Context& context) {
  return MemoryPlan::device_bytes(planned_segments(dtype, config, shape, context));
}

}  // namespace llmc
