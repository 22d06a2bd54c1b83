#include <algorithm>
#include <bit>
#include <cstddef>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
#include "llmc/comm/compare_ranks.h"
#include "llmc/comm/mesh.h"
#include "llmc/device/device.h"
#include "llmc/nn/parameter_table.h"
#include "llmc/ops/optimizer/optimizer_state.h"
#include "llmc/train/watch/replica_check.h"

namespace llmc {

namespace {

struct Copy {
  std::string name;      // "the weights of h.0.ln_1.weight"
  bool whole = true;     // all ranks of a shard group hold the same
  bool split = false;    // ranks of a tensor group hold different parts
  int first_holder = 0;  // the lowest pipeline rank that has it
  bool is_held = true;   // by this rank
  std::int64_t hash = 0;
};

std::int64_t hash_of(const RunState::ReadValues& read, Stream& stream) {
  Checksum sum;
  std::vector<std::byte> host;
  read([&](std::span<const std::byte> values) {
    host.resize(values.size());
    copy_to_host(host.data(), values.data(), std::ssize(values), stream);
    stream.synchronize();
    sum.add(host);
  });
  return static_cast<std::int64_t>(sum.value());
}

std::vector<Copy> copies_of(RunState& state, double loss, Stream& stream) {
  std::vector<Copy> copies = {{.name = "the loss", .hash = std::bit_cast<std::int64_t>(loss)}};
  const OptimizerState optimizer = state.optimizer_state(stream);
  Checksum sum;
  sum.add(std::as_bytes(std::span(&optimizer, 1)));
  copies.push_back(
      {.name = "the counters of the optimizer", .hash = static_cast<std::int64_t>(sum.value())});
  state.visit_kept([&](const char* kind, const ParameterSpec& spec,
                       const RunState::ReadValues& read, bool whole) {
    copies.push_back({.name = std::string("the ") + kind + " of " + spec.name,
                      .whole = whole,
                      .split = spec.part.split,
                      .first_holder = spec.first_holder,
                      .is_held = spec.is_held,
                      .hash = spec.is_held ? hash_of(read, stream) : 0});
  });
  return copies;
}

// The ranks that hold a copy, by its hash, with the lowest ranks first.
using Holders = std::vector<std::vector<int>>;

[[noreturn]] void fail_for(const Holders& sides, const Copy& copy, std::int64_t step) {
  const std::string when = "after step " + std::to_string(step) + ", ";
  std::size_t holders = 0;
  for (const std::vector<int>& side : sides) holders += side.size();
  const auto majority = std::ranges::find_if(
      sides, [&](const std::vector<int>& side) { return 2 * side.size() > holders; });
  if (majority == sides.end()) {
    std::string text;
    for (const std::vector<int>& side : sides) {
      text += (text.empty() ? "" : " and ") + rank_list(side);
    }
    fail_together(when + text + " differ in " + copy.name,
                  "resume from the last checkpoint without the machine of one of them; a run on "
                  "other machines shows which is right");
  }
  std::vector<int> minority;
  for (const std::vector<int>& side : sides) {
    if (&side != &*majority) minority.insert(minority.end(), side.begin(), side.end());
  }
  std::ranges::sort(minority);
  const std::string names = rank_list(minority);
  fail_together(when + names + (minority.size() == 1 ? " differs" : " differ") +
                    " from the majority, " + rank_list(*majority) + ", in " + copy.name,
                "resume from the last checkpoint without the machine of " + names +
                    ", which probably computed something wrong");
}

}  // namespace

void check_replicas(RunState& state, std::int64_t step, double loss, Exchange& exchange,
                    Stream& stream) {
  const std::vector<Copy> copies = copies_of(state, loss, stream);
  std::vector<std::int64_t> own;
  for (const Copy& copy : copies) own.insert(own.end(), {copy.is_held ? 1 : 0, copy.hash});
  const std::vector<std::int64_t> all = exchange.all_gather(own);
  const Mesh& mesh = state.ranks().mesh();
  for (std::size_t i = 0; i < copies.size(); ++i) {
    // By the lowest rank that must hold the same, then by the hash.
    std::map<int, std::map<std::int64_t, std::vector<int>>> groups;
    for (int rank = 0; rank < mesh.ranks; ++rank) {
      const std::size_t place = 2 * (static_cast<std::size_t>(rank) * copies.size() + i);
      if (all[place] == 0) continue;  // not held
      const int lowest =
          mesh.rank_at(copies[i].first_holder, 0, copies[i].whole ? 0 : mesh.shard_rank(rank),
                       copies[i].split ? mesh.tensor_rank(rank) : 0);
      groups[lowest][all[place + 1]].push_back(rank);
    }
    for (const auto& [lowest, by_hash] : groups) {
      if (by_hash.size() == 1) continue;
      Holders sides;
      for (const auto& [hash, ranks] : by_hash) sides.push_back(ranks);
      std::ranges::sort(sides);
      fail_for(sides, copies[i], step);
    }
  }
}

}  // namespace llmc
