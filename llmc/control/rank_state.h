// The state of a rank as its control thread tells it to the others: the call that it is in, what it
// is doing, and a number that grows with its progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/comm/call_log.h"

namespace llmc {

struct RankState {
  std::string host = {};          // name of its machine
  std::int64_t step = 0;          // the present one
  std::string operation = {};     // what it is doing, such as "validation"
  std::int64_t progress = 0;      // grows while it calls, and while long work advances
  std::int64_t num_calls = 0;     // so far; 0: none, and the members below mean nothing
  bool is_in_call = false;        // otherwise the call is its last one
  std::string call = {};          // "all-reduce 17 of 4096 fp32"
  std::string group = {};         // its name
  std::vector<int> members = {};  // ranks of the run
  int peer = -1;                  // of a message; -1: a collective
  double seconds = 0;             // since it entered the call, or left it

  // "all-reduce 17 of 4096 fp32 of group 'shard'"
  std::string call_text() const;
  // Whether `other` is in or after the same call of the same group.
  bool is_same_call(const RankState& other) const;
};

// This rank's state. `progress` of long work, which is added to that of the calls.
RankState rank_state(const CallLog::State& log, std::int64_t progress);

// For messages, without the host. unpack_state() throws if `packed` is something else.
std::string pack_state(const RankState& state);
RankState unpack_state(const std::string& packed);

// A rank as seen by one that looks after it.
struct SeenRank {
  RankState state;
  double silent_seconds = 0;  // since its last sign of life
  bool is_ended = false;      // it has sent a goodbye
};

// "computing in step 12 (validation), 3.1 s after all-gather 16 of group 'shard'", or "in ...".
std::string place_text(const RankState& state);

}  // namespace llmc
