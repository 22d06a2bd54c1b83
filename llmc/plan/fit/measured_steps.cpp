#include "llmc/plan/fit/measured_steps.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/file.h"

namespace llmc {

namespace {

std::vector<std::string> split_text(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else if (c != '\r') {
      parts.back() += c;
    }
  }
  return parts;
}

// Megatron pads GPT-2's vocabulary to a multiple of 128 t; with t = 8 this is 51200.
constexpr std::int64_t kVocabulary = 51200;

}  // namespace

double HeldOut::mean_error(const PredictSeconds& predict) const {
  double sum = 0;
  for (const MeasuredStep& step : steps_) sum += std::abs(predict(step.run) / step.seconds - 1);
  return sum / static_cast<double>(steps_.size());
}

MeasuredSteps::MeasuredSteps(const std::filesystem::path& csv) {
  const std::vector<std::string> lines = split_text(read_file(csv), '\n');
  const bool has_group = lines[0].find("Parameters") != std::string::npos;
  const std::size_t columns = has_group ? 12 : 11, first = has_group ? 1 : 0;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    const std::vector<std::string> cells = split_text(lines[i], ',');
    const std::string place = csv.string() + ", line " + std::to_string(i + 1);
    require(cells.size() == columns, place + " has not " + std::to_string(columns) + " numbers");
    std::vector<std::int64_t> n;
    for (std::size_t c = first; c + 1 < columns; ++c) {
      n.push_back(std::strtoll(cells[c].c_str(), nullptr, 10));
      require(n.back() > 0, place + ": '" + cells[c] + "' is not a positive integer");
    }
    const double milliseconds = std::strtod(cells.back().c_str(), nullptr);
    require(milliseconds > 0, place + ": '" + cells.back() + "' is not a positive number");
    // GPUs, batch, micro-batch, channels, heads, layers, T, tensor, data, pipeline
    const TimedModel model{.layers = n[5],
                           .channels = n[3],
                           .heads = n[4],
                           .T = n[6],
                           .vocabulary = kVocabulary,
                           .hidden = 4 * n[3]};
    const Layout layout{.tensor = static_cast<int>(n[7]),
                        .pipeline = static_cast<int>(n[9]),
                        .data = static_cast<int>(n[8]),
                        .micro_batch = n[2],
                        .micro_batches = n[1] / n[8] / n[2],
                        .recompute = Recompute::full};
    require(layout.ranks() == n[0], place + ": the parts of the layout are not its GPUs");
    if (layout.batch() != n[1]) continue;  // a batch that its ranks cannot divide
    steps_.push_back(
        {{has_group ? cells[0] + " billion" : "", model, layout}, 1e-3 * milliseconds});
  }
}

MeasuredSteps::Split MeasuredSteps::split(std::uint64_t seed) const {
  std::vector<MeasuredStep> steps = steps_;
  std::mt19937_64 random(seed);
  // Not std::shuffle, whose order is not defined.
  for (std::size_t i = steps.size(); i > 1; --i) std::swap(steps[i - 1], steps[random() % i]);
  const auto half = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
  return {{steps.begin(), half}, HeldOut({half, steps.end()})};
}

std::vector<MeasuredSteps::Comparison> MeasuredSteps::compare(const PredictSeconds& predict) const {
  std::vector<Comparison> all;
  for (const MeasuredStep& step : steps_)
    all.push_back({step.run, step.seconds, predict(step.run)});
  return all;
}

std::vector<MeasuredSteps::Choice> MeasuredSteps::choices(const PredictSeconds& predict) const {
  std::map<std::string, std::vector<Comparison>> groups;
  for (const Comparison& one : compare(predict)) groups[one.run.group].push_back(one);
  std::vector<Choice> choices;
  for (const auto& [name, rows] : groups) {
    const auto chosen = std::ranges::min_element(rows, {}, &Comparison::predicted);
    const auto best = std::ranges::min_element(rows, {}, &Comparison::measured);
    choices.push_back({name, *chosen, chosen->measured / best->measured - 1});
  }
  return choices;
}

}  // namespace llmc
