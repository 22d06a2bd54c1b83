#include <bit>
#include <cstddef>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "llmc/base/checksum.h"
#include "llmc/base/error.h"
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

}  // namespace

void check_replicas(RunState& state, std::int64_t step, double loss, Exchange& exchange,
                    Stream& stream) {
  const std::vector<Copy> copies = copies_of(state, loss, stream);
  std::vector<std::int64_t> own;
  for (const Copy& copy : copies) own.insert(own.end(), {copy.is_held ? 1 : 0, copy.hash});
  const std::vector<std::int64_t> all = exchange.all_gather(own);
  const Mesh& mesh = state.ranks().mesh();
  for (std::size_t i = 0; i < copies.size(); ++i) {
    for (int rank = 1; rank < mesh.ranks; ++rank) {
      const int lower =
          mesh.rank_at(copies[i].first_holder, 0, copies[i].whole ? 0 : mesh.shard_rank(rank),
                       copies[i].split ? mesh.tensor_rank(rank) : 0);
      const auto number = [&](int r, std::size_t index) {
        return all[2 * (static_cast<std::size_t>(r) * copies.size() + i) + index];
      };
      const bool is_held = number(rank, 0) == 1;
      if (!is_held || number(rank, 1) == number(lower, 1)) continue;
      fail_together(
          "after step " + std::to_string(step) + ", rank " + std::to_string(rank) + " and rank " +
              std::to_string(lower) + " differ in " + copies[i].name,
          "resume from the last checkpoint without the machine of one of them; a run on other "
          "machines shows which is right");
    }
  }
}

}  // namespace llmc
