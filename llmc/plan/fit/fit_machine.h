// The constants of a machine with which predicted steps have the times that were measured.
#pragma once

#include <vector>

#include "llmc/plan/fit/measured_steps.h"
#include "llmc/plan/time/machine.h"
#include "llmc/plan/time/software.h"

namespace llmc {

// Fits the constants in `constants` to the steps: the smallest mean of |log(predicted / measured)|,
// plus `weight` times the sum of squared logarithms by which constants leave those of `machine`,
// which decides those that the steps do not.
Machine fit_machine(const Machine& machine, const Software& software,
                    const std::vector<double Machine::*>& constants,
                    const std::vector<MeasuredStep>& steps, double weight = 0.003,
                    int iterations = 900);

// The constants that steps of several nodes can decide.
const std::vector<double Machine::*>& fitted_constants();

}  // namespace llmc
