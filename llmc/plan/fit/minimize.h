// Minimizes a function of a few positive numbers, without derivatives.
#pragma once

#include <functional>
#include <vector>

namespace llmc {

// The simplex method of Nelder and Mead (1965) on the logarithms of the numbers. Begins at `start`,
// with steps of `step` (0.4: 49%); calls `function` about `iterations` times.
std::vector<double> minimize(const std::function<double(const std::vector<double>&)>& function,
                             const std::vector<double>& start, int iterations, double step = 0.4);

}  // namespace llmc
