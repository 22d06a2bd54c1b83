#include <string>
#include <vector>

#include "llmc/base/notice.h"
#include "llmc/comm/machines.h"
#include "llmc/comm/mesh.h"
#include "llmc/train/run/describe_ranks.h"

namespace llmc {

namespace {

// "mesh: 2 pipeline x 4 data x 2 tensor ranks, --zero 1 in shard groups of 4"
std::string mesh_line(const RunConfig& run) {
  const Mesh mesh = run.mesh();
  std::string text;
  const auto add = [&](int count, const char* kind) {
    text += (text.empty() ? "" : " x ") + std::to_string(count) + kind;
  };
  if (mesh.pipeline_ranks > 1) add(mesh.pipeline_ranks, " pipeline");
  if (mesh.data_ranks() > 1) add(mesh.data_ranks(), " data");
  if (mesh.tensor_ranks > 1) add(mesh.tensor_ranks, " tensor");
  text = "mesh: " + text + " ranks";
  if (run.ranks.zero == 0 || mesh.shard_ranks == 1) return text;
  return text + ", --zero " + std::to_string(run.ranks.zero) + " in shard groups of " +
         std::to_string(mesh.shard_ranks);
}

}  // namespace

std::vector<RankPlace> rank_places(Exchange& exchange) {
  RankPlace own = own_place(device_properties().name);
  own.gpu = device_bus_id();
  std::vector<RankPlace> places;
  for (const std::string& text : exchange.gather_texts(pack_place(own))) {
    places.push_back(unpack_place(text));
  }
  return places;
}

void describe_ranks(const RunConfig& run, Exchange& exchange) {
  if (exchange.ranks() == 1) return;
  Notice::print(machines_text(rank_places(exchange)));
  Notice::print(mesh_line(run));
}

}  // namespace llmc
