// OUT/lost/RANK.json: where a rank is, and its last calls, for people and for scripts/lost.py.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "llmc/comm/call_log.h"
#include "llmc/control/rank_state.h"

namespace llmc {

inline constexpr const char* kLostFolder = "lost";

struct LostReport {
  int rank = 0, ranks = 1;
  std::string reason;  // why it is written
  RankState own;
  std::vector<LoggedCall> calls;
  std::vector<std::string> backtrace;
};

// Writes OUT/lost/RANK.json, which replaces the file of an earlier report, and returns its path.
// Times of calls are seconds before the report.
std::filesystem::path write_lost_file(const std::filesystem::path& out, const LostReport& report);

}  // namespace llmc
