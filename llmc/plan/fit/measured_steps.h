// Measured step times of other programs, which decide how well predictions hold. Nothing else reads
// the file of times: a fit gets one half of them, and the other half can only be compared with.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "llmc/plan/time/step_time.h"

namespace llmc {

// A run whose time is known to others.
struct RunOfTable {
  std::string group;  // such as its model
  TimedModel model;
  Layout layout;
};

struct MeasuredStep {
  RunOfTable run;
  double seconds = 0;
};

using PredictSeconds = std::function<double(const RunOfTable&)>;

// The half that a fit does not get.
class HeldOut {
 public:
  explicit HeldOut(std::vector<MeasuredStep> steps) : steps_(std::move(steps)) {}
  std::size_t size() const { return steps_.size(); }
  // The mean of |predicted / measured - 1|.
  double mean_error(const PredictSeconds& predict) const;

 private:
  std::vector<MeasuredStep> steps_;
};

class MeasuredSteps {
 public:
  // ground_truth_multi.csv and ground_truth_single.csv of vTrain. Throws an Error that names the
  // file and the line if it is something else.
  explicit MeasuredSteps(const std::filesystem::path& csv);

  std::size_t size() const { return steps_.size(); }

  struct Split {
    std::vector<MeasuredStep> fitted;
    HeldOut held_out;
  };
  // Random halves.
  Split split(std::uint64_t seed) const;

  struct Comparison {
    RunOfTable run;
    double measured = 0, predicted = 0;
    double error() const { return predicted / measured - 1; }
  };
  std::vector<Comparison> compare(const PredictSeconds& predict) const;

  // For each group, how much longer the step with the shortest predicted time takes than the
  // shortest one.
  struct Choice {
    std::string group;
    Comparison chosen;
    double cost = 0;
  };
  std::vector<Choice> choices(const PredictSeconds& predict) const;

 private:
  std::vector<MeasuredStep> steps_;
};

}  // namespace llmc
