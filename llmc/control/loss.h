// The loss of ranks: which, how it was noticed, and the text that reports it.
#pragma once

#include <string>
#include <vector>

#include "llmc/control/rank_state.h"

namespace llmc {

struct Loss {
  enum class Kind : int {
    connection,  // its connection ended without a goodbye
    silence,     // no sign of life
    hang,        // the others wait in a call that it does not enter
    failure      // it has reported its own end, see `reason`
  };
  Kind kind = Kind::connection;
  std::vector<int> ranks = {};  // lost, ascending; empty: all ranks of a group are in one call
  double seconds = 0;           // of silence or of the wait
  int exit_code = 1;
  std::string reason = {};
};

std::string pack_loss(const Loss& loss);
Loss unpack_loss(const std::string& packed);

// The ranks for which others wait: those that are in no call, silent, or ended. If there are none,
// ranks are in different calls: those that are missing in the call that most ranks are in, or, if
// no call has more ranks than another, all that are in a call that others miss. `table` has all
// ranks.
std::vector<int> ranks_behind(const std::vector<SeenRank>& table);

// Who is lost, who waits where and since when, and where the others are, as several lines.
std::string loss_text(const Loss& loss, const std::vector<SeenRank>& table);

// The lines about the places of all ranks, ranks in the same place together.
std::string places_text(const std::vector<SeenRank>& table, const std::vector<int>& without);

}  // namespace llmc
