#include "llmc/plan/fit/fit_machine.h"

#include <cmath>
#include <cstddef>

#include "llmc/plan/fit/minimize.h"

namespace llmc {

Machine fit_machine(const Machine& machine, const Software& software,
                    const std::vector<double Machine::*>& constants,
                    const std::vector<MeasuredStep>& steps, double weight, int iterations) {
  std::vector<double> start;
  for (const auto constant : constants) start.push_back(machine.*constant);
  StepPredictor predictor(machine, software);
  const auto with = [&](const std::vector<double>& values) {
    Machine changed = machine;
    for (std::size_t i = 0; i < values.size(); ++i) changed.*constants[i] = values[i];
    return changed;
  };
  const auto loss = [&](const std::vector<double>& values) {
    predictor.set_machine(with(values));
    double error = 0, distance = 0;
    for (const MeasuredStep& step : steps) {
      const double predicted = predictor.predict(step.run.model, step.run.layout).total;
      error += std::abs(std::log(predicted / step.seconds));
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      distance += std::pow(std::log(values[i] / start[i]), 2);
    }
    return error / static_cast<double>(steps.size()) + weight * distance;
  };
  return with(minimize(loss, start, iterations));
}

const std::vector<double Machine::*>& fitted_constants() {
  static const std::vector<double Machine::*> constants = {
      &Machine::product_rate,      &Machine::product_start,     &Machine::memory_bandwidth,
      &Machine::collective_start,  &Machine::node_bandwidth,    &Machine::tensor_bandwidth,
      &Machine::network_bandwidth, &Machine::message_bandwidth, &Machine::optimizer_scale,
      &Machine::layer_start};
  return constants;
}

}  // namespace llmc
