#include "llmc/control/rank_state.h"

#include <cstdlib>

#include "llmc/base/error.h"
#include "llmc/base/number_text.h"
#include "llmc/base/text_list.h"

namespace llmc {

std::string RankState::call_text() const {
  std::string text = call + " of group '" + group + "'";
  if (peer >= 0) text += " with rank " + std::to_string(peer);
  return text;
}

bool RankState::is_same_call(const RankState& other) const {
  return num_calls > 0 && other.num_calls > 0 && call == other.call && group == other.group &&
         members == other.members && (peer < 0) == (other.peer < 0);
}

RankState rank_state(const CallLog::State& log, std::int64_t progress) {
  RankState state{.step = log.step, .operation = log.operation};
  state.progress = progress + log.num_events;
  const LoggedCall& last = log.last;
  state.num_calls = last.sequence;
  if (last.sequence == 0) return state;
  state.is_in_call = !last.left;
  state.call = last.call.text();
  state.group = last.group->name;
  state.members = last.group->members;
  state.peer = last.peer;
  const auto since = last.left.value_or(last.entered);
  state.seconds = std::chrono::duration<double>(CallClock::now() - since).count();
  return state;
}

std::string pack_state(const RankState& state) {
  std::vector<std::string> members;
  for (const int member : state.members) members.push_back(std::to_string(member));
  return pack_texts({std::to_string(state.step), state.operation, std::to_string(state.progress),
                     std::to_string(state.num_calls), state.is_in_call ? "1" : "0", state.call,
                     state.group, pack_texts(members), std::to_string(state.peer),
                     number_text("%.3f", state.seconds)});
}

RankState unpack_state(const std::string& packed) {
  const std::vector<std::string> parts = unpack_texts(packed);
  require(parts.size() == 10, "a rank has sent something else than its state");
  const auto number = [&](std::size_t i) { return std::strtoll(parts[i].c_str(), nullptr, 10); };
  RankState state{.step = number(0), .operation = parts[1]};
  state.progress = number(2);
  state.num_calls = number(3);
  state.is_in_call = parts[4] == "1";
  state.call = parts[5];
  state.group = parts[6];
  for (const std::string& member : unpack_texts(parts[7])) {
    state.members.push_back(std::atoi(member.c_str()));
  }
  state.peer = static_cast<int>(number(8));
  state.seconds = std::strtod(parts[9].c_str(), nullptr);
  return state;
}

std::string place_text(const RankState& state) {
  const std::string seconds = number_text("%.1f s", state.seconds);
  const std::string work = state.step > 0 ? "step " + std::to_string(state.step) + ", " : "";
  if (state.operation.empty()) return "unknown, it has not told yet";
  if (state.num_calls == 0) return work + state.operation + ", before its first call";
  if (state.is_in_call)
    return work + state.operation + ", in " + state.call_text() + " since " + seconds;
  return work + state.operation + ", in no call since " + seconds + ", after " + state.call_text();
}

}  // namespace llmc
