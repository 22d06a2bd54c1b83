// The result of --plan as a table for people, and with all layouts as CSV or JSON.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "llmc/plan/search/plan_search.h"

namespace llmc {

struct PlanHeading {
  std::int64_t ranks = 1;
  std::string machine, software, accuracy;
  std::int64_t limit = 0;  // bytes of memory of a rank
  // Tokens of the whole training; empty: not given.
  std::optional<double> tokens = {};
};

// The ranked layouts, and why others are not: how many are slower, do not fit, or are refused.
std::string plan_table(const PlanResult& result, const PlanHeading& heading);

// All layouts; `path` ends in .csv or .json.
void write_plan(const std::filesystem::path& path, const PlanResult& result,
                const PlanHeading& heading);

}  // namespace llmc
