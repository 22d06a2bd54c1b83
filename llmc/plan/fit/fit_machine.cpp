#include "llmc/plan/fit/fit_machine.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>

#include "llmc/plan/fit/minimize.h"

namespace llmc {

namespace {

constexpr int kHalves = 6, kIterations = 900, kSaturationIterations = 200;
constexpr double kWeight = 0.003, kSaturationWeight = 1e-4;

// Minimizes error(machine) over the constants.
Machine fit(const Machine& machine, const FittedConstants& constants, double weight, int iterations,
            const std::function<double(const Machine&)>& error) {
  std::vector<double> start;
  for (const auto constant : constants) start.push_back(machine.*constant);
  const auto with = [&](const std::vector<double>& values) {
    Machine changed = machine;
    for (std::size_t i = 0; i < values.size(); ++i) changed.*constants[i] = values[i];
    return changed;
  };
  const auto loss = [&](const std::vector<double>& values) {
    double distance = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      distance += std::pow(std::log(values[i] / start[i]), 2);
    }
    return error(with(values)) + weight * distance;
  };
  return with(minimize(loss, minimize(loss, start, iterations / 2), iterations / 2));
}

}  // namespace

const FittedConstants& fitted_constants() {
  static const FittedConstants constants = {
      &Machine::product_rate,      &Machine::product_start,   &Machine::memory_bandwidth,
      &Machine::collective_start,  &Machine::node_bandwidth,  &Machine::tensor_bandwidth,
      &Machine::network_bandwidth, &Machine::optimizer_scale, &Machine::layer_start};
  return constants;
}

Machine fit_machine(const Machine& machine, const Software& software,
                    const FittedConstants& constants, const std::vector<MeasuredStep>& steps) {
  StepPredictor predictor(machine, software);
  return fit(machine, constants, kWeight, kIterations, [&](const Machine& changed) {
    predictor.set_machine(changed);
    double error = 0;
    for (const MeasuredStep& step : steps) {
      const double predicted = predictor.predict(step.run.model, step.run.layout).total;
      error += std::abs(std::log(predicted / step.seconds));
    }
    return error / static_cast<double>(steps.size());
  });
}

std::vector<Machine> fit_halves(const Machine& machine, const Software& software,
                                const MeasuredSteps& steps) {
  std::vector<Machine> machines;
  for (std::uint64_t seed = 0; seed < kHalves; ++seed) {
    machines.push_back(
        fit_machine(machine, software, fitted_constants(), steps.split(seed).fitted));
  }
  return machines;
}

Machine median_machine(const std::vector<Machine>& machines) {
  Machine median = machines.front();
  for (const MachineConstant& constant : machine_constants()) {
    std::vector<double> values;
    for (const Machine& machine : machines) values.push_back(machine.*constant.value);
    std::ranges::sort(values);
    const std::size_t half = values.size() / 2;
    median.*constant.value =
        values.size() % 2 == 1 ? values[half] : std::sqrt(values[half - 1] * values[half]);
  }
  return median;
}

Machine fit_saturation(const Machine& machine, const Software& software,
                       const PublishedTable& table) {
  StepPredictor predictor(machine, software);
  return fit(machine, {&Machine::product_start, &Machine::collective_start}, kSaturationWeight,
             kSaturationIterations, [&](const Machine& changed) {
               predictor.set_machine(changed);
               double error = 0;
               const std::vector<double> rates = predicted_values(table, predictor);
               for (std::size_t row = 0; row < rates.size(); ++row) {
                 error += std::pow(std::log(rates[row] / table.rows[row].value), 2);
               }
               return error;
             });
}

Machine fit_rate(const Machine& machine, double Machine::*constant, const Software& software,
                 const PublishedRow& row, double teraflops) {
  StepPredictor predictor(machine, software);
  Machine low = machine, high = machine;
  low.*constant /= 1e3;
  high.*constant *= 1e3;
  for (int i = 0; i < 60; ++i) {
    Machine middle = machine;
    middle.*constant = std::sqrt(low.*constant * (high.*constant));
    predictor.set_machine(middle);
    (predicted_teraflops(row, predictor) < teraflops ? low : high) = middle;
  }
  return high;
}

}  // namespace llmc
