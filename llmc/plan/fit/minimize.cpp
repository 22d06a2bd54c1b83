#include "llmc/plan/fit/minimize.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace llmc {

namespace {

struct Corner {
  std::vector<double> logs;
  double value = 0;
};

class Simplex {
 public:
  Simplex(const std::function<double(const std::vector<double>&)>& function,
          const std::vector<double>& start, double step)
      : function_(function) {
    std::vector<double> logs;
    for (const double number : start) logs.push_back(std::log(number));
    corners_.push_back(corner(logs));
    for (std::size_t i = 0; i < logs.size(); ++i) {
      std::vector<double> moved = logs;
      moved[i] += step;
      corners_.push_back(corner(moved));
    }
  }

  // Replaces the worst corner, or moves all towards the best.
  void improve() {
    std::ranges::sort(corners_, {}, &Corner::value);
    const Corner reflected = away_from_worst(1);
    if (reflected.value < corners_.front().value) {
      const Corner expanded = away_from_worst(2);
      corners_.back() = expanded.value < reflected.value ? expanded : reflected;
    } else if (reflected.value < corners_[corners_.size() - 2].value) {
      corners_.back() = reflected;
    } else {
      const Corner contracted = away_from_worst(-0.5);
      if (contracted.value < corners_.back().value) {
        corners_.back() = contracted;
      } else {
        shrink();
      }
    }
  }

  std::vector<double> best() const {
    return numbers(std::ranges::min_element(corners_, {}, &Corner::value)->logs);
  }

 private:
  static std::vector<double> numbers(const std::vector<double>& logs) {
    std::vector<double> numbers;
    for (const double log : logs) numbers.push_back(std::exp(log));
    return numbers;
  }
  Corner corner(const std::vector<double>& logs) const { return {logs, function_(numbers(logs))}; }

  // From the centre of the other corners, `times` as far from it as the worst corner is.
  Corner away_from_worst(double times) const {
    const std::vector<double>& worst = corners_.back().logs;
    std::vector<double> moved(worst.size());
    for (std::size_t j = 0; j < worst.size(); ++j) {
      double centre = 0;
      for (std::size_t i = 0; i + 1 < corners_.size(); ++i) centre += corners_[i].logs[j];
      centre /= static_cast<double>(corners_.size() - 1);
      moved[j] = centre + times * (centre - worst[j]);
    }
    return corner(moved);
  }

  void shrink() {
    const std::vector<double> best = corners_.front().logs;
    for (std::size_t i = 1; i < corners_.size(); ++i) {
      std::vector<double> logs = corners_[i].logs;
      for (std::size_t j = 0; j < logs.size(); ++j) logs[j] = (logs[j] + best[j]) / 2;
      corners_[i] = corner(logs);
    }
  }

  const std::function<double(const std::vector<double>&)>& function_;
  std::vector<Corner> corners_;
};

}  // namespace

std::vector<double> minimize(const std::function<double(const std::vector<double>&)>& function,
                             const std::vector<double>& start, int iterations, double step) {
  Simplex simplex(function, start, step);
  for (int i = 0; i < iterations; ++i) simplex.improve();
  return simplex.best();
}

}  // namespace llmc
