// Converts activation functions between the engine and the oracle, which list them in the same
// order.
#pragma once

#include "llmc/ops/activation_kind.h"
#include "test/oracle/ops.h"

namespace llmc_test {

inline llmc::Activation engine_activation(llmc::oracle::Activation f) {
  return static_cast<llmc::Activation>(f);
}

constexpr llmc::oracle::Activation oracle_activation(llmc::Activation f) {
  return static_cast<llmc::oracle::Activation>(f);
}

static_assert(oracle_activation(llmc::Activation::gelu_new) == llmc::oracle::Activation::gelu_new);
static_assert(oracle_activation(llmc::Activation::gelu_pytorch_tanh) ==
              llmc::oracle::Activation::gelu_pytorch_tanh);
static_assert(oracle_activation(llmc::Activation::gelu) == llmc::oracle::Activation::gelu);
static_assert(oracle_activation(llmc::Activation::relu) == llmc::oracle::Activation::relu);

}  // namespace llmc_test
