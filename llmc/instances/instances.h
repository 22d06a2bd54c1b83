// The classes of the model and of its passes, which are compiled once for all programs and tests.
//
// The Makefile includes this header before each test and before the units of code above the model,
// to declare them. model.cu and generation_runner.cu define them. Kernels and their launchers are
// in the .cu files of llmc/ops.
#pragma once

#include <cstdint>

#include "llmc/infer/model_pass.h"
#include "llmc/models/engine.h"
#include "llmc/models/gpt2/gpt2.h"
#include "llmc/parallel/training_state.h"

// Takes EXTERN (`extern` to declare, empty to define) and a dtype.
#define LLMC_MODEL(EXTERN, T)             \
  EXTERN template class Block<T>;         \
  EXTERN template class Gpt2<T>;          \
  EXTERN template class Activations<T>;   \
  EXTERN template class ModelRunner<T>;   \
  EXTERN template class Weights<T>;       \
  EXTERN template class TrainingState<T>; \
  EXTERN template class Engine<T>;        \
  EXTERN template class Engine<T, TrainingState<T>>;

// The same with the dtypes of a model and of its cache.
#define LLMC_GENERATION(EXTERN)                        \
  EXTERN template class ModelPass<float>;              \
  EXTERN template class ModelPass<float, bf16>;        \
  EXTERN template class ModelPass<float, fp16>;        \
  EXTERN template class ModelPass<float, std::int8_t>; \
  EXTERN template class ModelPass<bf16>;               \
  EXTERN template class ModelPass<bf16, std::int8_t>;  \
  EXTERN template class ModelPass<fp16>;               \
  EXTERN template class ModelPass<fp16, std::int8_t>;

namespace llmc {
LLMC_MODEL(extern, float)
LLMC_MODEL(extern, bf16)
LLMC_MODEL(extern, fp16)
LLMC_GENERATION(extern)
}  // namespace llmc
