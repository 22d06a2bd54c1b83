#include "llmc/train/measure/fit_constants.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "llmc/plan/fit/minimize.h"

namespace llmc {

namespace {

// A part of a step: of a prediction, and of a measurement.
struct Part {
  double predicted = 0, measured = 0;
};
using PartOf = std::function<Part(const StepPredictor&, const ProfiledStep&)>;

// The mean of log(predicted / measured), or of its square.
double mean_logarithm(const StepPredictor& predictor, const std::vector<ProfiledStep>& steps,
                      const PartOf& part_of, bool squared) {
  double sum = 0;
  for (const ProfiledStep& step : steps) {
    const Part part = part_of(predictor, step);
    const double logarithm = std::log(part.predicted / part.measured);
    sum += squared ? logarithm * logarithm : logarithm;
  }
  return sum / static_cast<double>(steps.size());
}

// Two constants of a time `start + work / rate`.
void fit_pair(Machine& machine, const Software& software, const std::vector<ProfiledStep>& steps,
              double Machine::*rate, double Machine::*start, const PartOf& part_of) {
  constexpr int kIterations = 600;
  constexpr double kLeastStart = 1e-9;
  const auto set = [&](const std::vector<double>& values) {
    machine.*rate = values[0];
    machine.*start = std::max(values[1], kLeastStart);
  };
  const auto error = [&](const std::vector<double>& values) {
    set(values);
    return mean_logarithm(StepPredictor(machine, software), steps, part_of, true);
  };
  set(minimize(error, {machine.*rate, machine.*start}, kIterations, 1.0));
}

// A constant that a time is proportional to, or to its inverse (`power` -1).
void fit_factor(Machine& machine, const Software& software, const std::vector<ProfiledStep>& steps,
                double Machine::*factor, int power, const PartOf& part_of) {
  const double ratio =
      std::exp(mean_logarithm(StepPredictor(machine, software), steps, part_of, false));
  machine.*factor *= power < 0 ? ratio : 1 / ratio;
}

}  // namespace

void fit_constants(Machine& machine, const Software& software,
                   const std::vector<ProfiledStep>& steps) {
  constexpr double kSmallStart = 1e-7;
  machine.product_rate = machine.attention_rate = machine.optimizer_scale = 1;
  machine.product_start = machine.layer_start = kSmallStart;
  fit_pair(machine, software, steps, &Machine::product_rate, &Machine::product_start,
           [](const StepPredictor& predictor, const ProfiledStep& step) {
             return Part{predictor.compute_time(step.model, step.layout).products,
                         step.compute.products};
           });
  fit_factor(machine, software, steps, &Machine::attention_rate, -1,
             [](const StepPredictor& predictor, const ProfiledStep& step) {
               return Part{predictor.compute_time(step.model, step.layout).attention,
                           step.compute.attention};
             });
  fit_pair(
      machine, software, steps, &Machine::memory_bandwidth, &Machine::layer_start,
      [](const StepPredictor& predictor, const ProfiledStep& step) {
        return Part{predictor.compute_time(step.model, step.layout).others, step.compute.others};
      });
  fit_factor(machine, software, steps, &Machine::optimizer_scale, 1,
             [](const StepPredictor& predictor, const ProfiledStep& step) {
               return Part{predictor.optimizer_time(step.model, step.layout), step.update};
             });
}

}  // namespace llmc
