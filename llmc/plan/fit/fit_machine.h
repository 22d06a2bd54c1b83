// The constants of a machine with which predicted steps have the times that were measured.
#pragma once

#include <vector>

#include "llmc/plan/fit/measured_steps.h"
#include "llmc/plan/fit/published.h"
#include "llmc/plan/time/machine.h"
#include "llmc/plan/time/software.h"

namespace llmc {

using FittedConstants = std::vector<double Machine::*>;

// The constants that steps of several nodes can decide.
const FittedConstants& fitted_constants();

// Fits constants to the steps: the smallest mean of |log(predicted / measured)|, plus a weight
// times the sum of squared logarithms by which constants leave those of `machine`, which decides
// those that the steps do not.
Machine fit_machine(const Machine& machine, const Software& software,
                    const FittedConstants& constants, const std::vector<MeasuredStep>& steps);

// Fits to six random halves of the steps.
std::vector<Machine> fit_halves(const Machine& machine, const Software& software,
                                const MeasuredSteps& steps);

// The median of each constant.
Machine median_machine(const std::vector<Machine>& machines);

// Fits `product_start` and `collective_start`, with which products and collectives become slow when
// tensor ranks divide them, to a table of rates.
Machine fit_saturation(const Machine& machine, const Software& software,
                       const PublishedTable& table);

// The machine whose `constant`, with which rates grow, is such that a row has this rate of each
// GPU.
Machine fit_rate(const Machine& machine, double Machine::*constant, const Software& software,
                 const PublishedRow& row, double teraflops);

}  // namespace llmc
