// Whether the ranks of a run may start: all have the same program and the same flags, and none has
// failed. Compared before any other exchange, because what a rank exchanges depends on its flags.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/base/file.h"
#include "llmc/base/notice.h"
#include "llmc/base/text_list.h"
#include "llmc/comm/compare_ranks.h"
#include "llmc/comm/open_world.h"
#include "llmc/config/command_line.h"
#include "llmc/config/compared_settings.h"
#include "llmc/config/train_table.h"
#include "llmc/config/version.h"

namespace llmc {

// An end of a run before it began: the exit code, and the error without the program's name.
struct StartFailure {
  int exit_code = kExitFailed;
  std::string text;
};

// The description of a rank that it compares with those of the others.
struct RankStart {
  std::string request;  // what the command line asks for; must be equal
  NamedValues program;  // must be equal
  std::string build;    // of the program; another one is reported
  NamedValues flags;    // that were given; must be equal
  std::optional<StartFailure> failure = {};
};

// Checksum of this program's file.
inline std::string build_checksum() {
  const MappedFile file("/proc/self/exe");
  ContentChecksum sum;
  sum.add(file.bytes());
  return sum.text();
}

inline RankStart make_rank_start(const std::string& request, const NamedValues& flags,
                                 const std::optional<StartFailure>& failure) {
  return {.request = request,
          .program = {{"the commit", commit_text()},
                      {"the target", kTargetName},
                      {"the set of libraries for communication", comm_libraries_text()}},
          .build = build_checksum(),
          .flags = flags,
          .failure = failure};
}

namespace start_agreement_detail {

// Ranks of other commits read this: it must not change.
inline std::string pack_start(const RankStart& start) {
  const StartFailure failure = start.failure.value_or(StartFailure{kExitOk, ""});
  return pack_texts({pack_values(start.program), start.request, start.build,
                     pack_values(start.flags), std::to_string(failure.exit_code), failure.text});
}

inline RankStart unpack_start(const std::string& packed) {
  const std::vector<std::string> parts = unpack_texts(packed);
  require(parts.size() == 6, "a rank runs another version of this program");
  RankStart start{.request = parts[1],
                  .program = unpack_values(parts[0]),
                  .build = parts[2],
                  .flags = unpack_values(parts[3])};
  if (parts[4] != "0") start.failure = {std::stoi(parts[4]), parts[5]};
  return start;
}

// "x is 1 on rank 1, 2 on rank 0", for one text of each rank; empty if all are equal.
inline std::string difference_of(const std::vector<RankStart>& ranks, const std::string& name,
                                 std::string RankStart::*text) {
  std::vector<NamedValues> values;
  for (const RankStart& rank : ranks) values.push_back({{name, rank.*text}});
  return difference_text(values);
}

inline std::string difference_of(const std::vector<RankStart>& ranks, NamedValues RankStart::*list,
                                 const std::string& missing) {
  std::vector<NamedValues> values;
  for (const RankStart& rank : ranks) values.push_back(rank.*list);
  return difference_text(values, missing);
}

// The failure of the lowest rank that has one. It is named, unless all have failed like this.
inline std::optional<StartFailure> first_failure(const std::vector<RankStart>& ranks) {
  const auto failed = [](const RankStart& rank) { return rank.failure.has_value(); };
  const auto first = std::ranges::find_if(ranks, failed);
  if (first == ranks.end()) return std::nullopt;
  const bool is_common = std::ranges::all_of(ranks, [&](const RankStart& rank) {
    return rank.failure && rank.failure->text == first->failure->text;
  });
  const std::string rank = "rank " + std::to_string(first - ranks.begin()) + ": ";
  return StartFailure{first->failure->exit_code, (is_common ? "" : rank) + first->failure->text};
}

}  // namespace start_agreement_detail

// Returns why the run must not start, the same for all ranks; empty: it may. Reports different
// builds of one commit. `gather` returns the texts of all ranks; all ranks call this together.
template <class Gather>
std::optional<StartFailure> agree_to_start(const Gather& gather, const RankStart& own) {
  using namespace start_agreement_detail;
  const std::vector<std::string> texts = different_texts(gather, pack_start(own));
  if (texts.size() == 1) return own.failure;
  std::vector<RankStart> ranks;
  for (const std::string& text : texts) ranks.push_back(unpack_start(text));
  const auto usage = [](const std::string& error, const std::string& hint) {
    return StartFailure{kExitUsage, error + "\n  hint: " + hint};
  };
  const std::string programs = difference_of(ranks, &RankStart::program, "missing");
  if (!programs.empty()) {
    return usage("the ranks run different programs: " + programs,
                 "start the same build on every machine");
  }
  if (const auto failure = first_failure(ranks)) return failure;
  const std::string requests = difference_of(ranks, "the request", &RankStart::request);
  if (!requests.empty()) {
    return usage("the ranks have different command lines: " + requests,
                 "start all ranks with the same flags");
  }
  const std::string flags = difference_of(ranks, &RankStart::flags, "the default");
  if (!flags.empty()) {
    return usage("the ranks have different flags: " + flags, "start all ranks with the same flags");
  }
  Notice::print("the ranks run different builds of this commit: " +
                difference_of(ranks, "the checksum of the program", &RankStart::build));
  return std::nullopt;
}

}  // namespace llmc
