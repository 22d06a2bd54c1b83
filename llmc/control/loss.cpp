#include "llmc/control/loss.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

#include "llmc/base/error.h"
#include "llmc/base/number_text.h"
#include "llmc/base/text_list.h"
#include "llmc/comm/compare_ranks.h"

namespace llmc {

namespace {

bool contains(const std::vector<int>& ranks, int rank) {
  return std::ranges::find(ranks, rank) != ranks.end();
}

const SeenRank& at(const std::vector<SeenRank>& table, int rank) {
  return table[static_cast<std::size_t>(rank)];
}

// Where a rank that is silent was last is not where it is.
bool is_waiting(const std::vector<SeenRank>& table, int rank) {
  constexpr double kSilence = 3;  // seconds
  const SeenRank& seen = at(table, rank);
  return seen.state.is_in_call && !seen.is_ended && seen.silent_seconds < kSilence;
}

// The members of a rank's call that are not in it.
std::vector<int> absent_from_call(const std::vector<SeenRank>& table, int rank) {
  const RankState& own = at(table, rank).state;
  std::vector<int> absent;
  for (const int member : own.peer < 0 ? own.members : std::vector<int>{own.peer}) {
    if (member == rank || member < 0 || member >= std::ssize(table)) continue;
    const bool is_there = is_waiting(table, member) && own.is_same_call(at(table, member).state);
    if (!is_there) absent.push_back(member);
  }
  return absent;
}

// Ranks that are in the same place, with the longest time there.
struct RanksAtPlace {
  std::vector<int> ranks;
  RankState state;
};

std::vector<RanksAtPlace> places_of(const std::vector<SeenRank>& table,
                                    const std::vector<int>& without) {
  std::vector<RanksAtPlace> places;
  for (int rank = 0; rank < std::ssize(table); ++rank) {
    const RankState& state = at(table, rank).state;
    if (contains(without, rank) || at(table, rank).is_ended) continue;
    const auto same = std::ranges::find_if(places, [&](const RanksAtPlace& place) {
      return place.state.is_in_call == state.is_in_call && place.state.is_same_call(state) &&
             place.state.operation == state.operation && place.state.step == state.step;
    });
    if (same == places.end()) {
      places.push_back({{rank}, state});
    } else {
      same->ranks.push_back(rank);
      same->state.seconds = std::max(same->state.seconds, state.seconds);
    }
  }
  return places;
}

std::string reason_text(const Loss& loss) {
  const bool is_one = loss.ranks.size() == 1;
  const std::string seconds = number_text("%.1f s", loss.seconds);
  switch (loss.kind) {
    case Loss::Kind::connection:
      return is_one ? "is lost: its connection ended" : "are lost: their connections ended";
    case Loss::Kind::silence:
      return std::string(is_one ? "is" : "are") + " lost: no sign of life for " + seconds;
    case Loss::Kind::hang:
      return std::string(is_one ? "hangs" : "hang") + ": others wait for " +
             (is_one ? "it" : "them") + " for " + seconds;
    case Loss::Kind::failure:
      return "has failed: " + loss.reason;
  }
  return "";
}

}  // namespace

std::string pack_loss(const Loss& loss) {
  std::vector<std::string> ranks;
  for (const int rank : loss.ranks) ranks.push_back(std::to_string(rank));
  return pack_texts({std::to_string(static_cast<int>(loss.kind)), pack_texts(ranks),
                     number_text("%.3f", loss.seconds), std::to_string(loss.exit_code),
                     loss.reason});
}

Loss unpack_loss(const std::string& packed) {
  const std::vector<std::string> parts = unpack_texts(packed);
  require(parts.size() == 5, "a rank has sent something else than a loss");
  Loss loss{.kind = static_cast<Loss::Kind>(std::atoi(parts[0].c_str())),
            .ranks = {},
            .seconds = std::strtod(parts[2].c_str(), nullptr),
            .exit_code = std::atoi(parts[3].c_str()),
            .reason = parts[4]};
  for (const std::string& rank : unpack_texts(parts[1])) {
    loss.ranks.push_back(std::atoi(rank.c_str()));
  }
  return loss;
}

std::vector<int> ranks_behind(const std::vector<SeenRank>& table) {
  std::set<int> idle;
  // By the first rank in each call: its ranks, and those that it waits for.
  std::map<int, std::pair<std::set<int>, std::set<int>>> calls;
  for (int rank = 0; rank < std::ssize(table); ++rank) {
    if (!is_waiting(table, rank)) continue;
    const auto same = std::ranges::find_if(calls, [&](const auto& call) {
      return at(table, call.first).state.is_same_call(at(table, rank).state);
    });
    auto& [present, absent] = same == calls.end() ? calls[rank] : same->second;
    present.insert(rank);
    for (const int other : absent_from_call(table, rank)) {
      absent.insert(other);
      if (!is_waiting(table, other)) idle.insert(other);
    }
  }
  if (!idle.empty()) return {idle.begin(), idle.end()};
  std::size_t most = 0;
  std::set<int> behind;
  for (const auto& [first, call] : calls) {
    const auto& [present, absent] = call;
    if (present.size() < most || absent.empty()) continue;
    if (present.size() > most) behind.clear();
    most = present.size();
    behind.insert(absent.begin(), absent.end());
  }
  return {behind.begin(), behind.end()};
}

std::string places_text(const std::vector<SeenRank>& table, const std::vector<int>& without) {
  constexpr std::size_t kLines = 16;
  std::string text;
  std::size_t num_lines = 0;
  for (const RanksAtPlace& place : places_of(table, without)) {
    if (++num_lines > kLines) return text + "\n  and ranks in other places";
    text += "\n  " + rank_list(place.ranks) + ": " + place_text(place.state);
  }
  return text;
}

std::string loss_text(const Loss& loss, const std::vector<SeenRank>& table) {
  if (loss.ranks.empty()) {
    return "a call does not end, though all its ranks are in it, for " +
           number_text("%.1f s", loss.seconds) + ": a connection between them does not work" +
           places_text(table, {});
  }
  std::string text = rank_list(loss.ranks);
  if (loss.ranks.size() == 1) text += " (" + at(table, loss.ranks[0]).state.host + ")";
  text += " " + reason_text(loss);
  if (loss.kind == Loss::Kind::failure) return text;
  for (const int rank : loss.ranks) {
    const SeenRank& lost = at(table, rank);
    text +=
        "\n  rank " + std::to_string(rank) + " at its last sign of life: " + place_text(lost.state);
  }
  return text + places_text(table, loss.ranks);
}

}  // namespace llmc
