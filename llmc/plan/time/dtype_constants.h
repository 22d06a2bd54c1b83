// The constants of a machine and a program for a dtype.
#pragma once

#include "llmc/device/dtype.h"
#include "llmc/plan/time/machine.h"
#include "llmc/plan/time/software.h"
#include "llmc/plan/time/step_time.h"

namespace llmc {

// Sets the bytes of weights, and for fp32 the peak of products. Throws an Error if the machine's
// peak in fp32 is unknown.
void set_dtype(Machine& machine, Software& software, Dtype dtype);

// Predicts the steps of runs in this dtype. Throws the same error.
StepPredictor predictor_in(Dtype dtype, Machine machine, Software software);

}  // namespace llmc
