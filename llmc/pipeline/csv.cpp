#include "llmc/pipeline/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <system_error>
#include <vector>

#include "llmc/base/error.h"
#include "llmc/base/lines.h"
#include "llmc/pipeline/timeline.h"

namespace llmc {

std::string pipeline_csv(const PipelineSchedule& schedule, const PipelineShape& shape) {
  const PipelineTimeline timeline = timeline_in_steps(schedule, shape);
  const auto columns = static_cast<std::size_t>(std::lround(timeline.duration()));
  std::string text;
  for (const auto& passes : timeline.ranks) {
    std::vector<std::string> cells(columns);
    for (const TimedPass& t : passes)
      cells[static_cast<std::size_t>(std::lround(t.begin))] = t.pass.name();
    for (std::size_t i = 0; i < columns; ++i) text += (i == 0 ? "" : ",") + cells[i];
    text += '\n';
  }
  return text;
}

namespace {

// Reads a number from the front of `text` and removes it; false if there is none.
bool take_number(std::string_view& text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || text.starts_with('-')) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\"";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// The pass of a cell that is not empty. `where` names it in errors.
PipelinePass parse_pass(std::string_view cell, const std::string& where) {
  PipelinePass pass;
  std::string_view rest = cell;
  const std::string place = where + ": '" + std::string(cell) + "'";
  if (!take_number(rest, pass.stage) || rest.empty())
    fail(place + " is no pass; allowed: stage, F or B, micro-batch, such as 2F0");
  const std::size_t digits = std::min(rest.find_first_of("0123456789"), rest.size());
  const std::string_view action = rest.substr(0, digits);
  rest.remove_prefix(digits);
  if (action != "F" && action != "B") {
    fail(place + ": action '" + std::string(action) + "' is not supported; allowed: F and B",
         "PyTorch writes schedules without other actions in its format compute_only");
  }
  pass.kind = action == "F" ? PassKind::forward : PassKind::backward;
  if (!take_number(rest, pass.micro_batch) || !rest.empty())
    fail(place + " is no pass; allowed: stage, F or B, micro-batch, such as 2F0");
  return pass;
}

}  // namespace

PipelineSchedule parse_pipeline_csv(std::string_view text, const std::string& name) {
  PipelineSchedule schedule;
  for (Lines lines(text); lines.next();) {
    std::vector<PipelinePass>& passes = schedule.emplace_back();
    std::string_view rest = lines.line();
    for (int cell = 1;; ++cell) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      const std::string_view content = trimmed(rest.substr(0, comma));
      if (!content.empty()) {
        passes.push_back(parse_pass(content, name + ": rank " +
                                                 std::to_string(schedule.size() - 1) + ", cell " +
                                                 std::to_string(cell)));
      }
      if (comma == rest.size()) break;
      rest.remove_prefix(comma + 1);
    }
  }
  return schedule;
}

}  // namespace llmc
