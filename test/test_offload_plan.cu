// The memory of offloaded training against the formulae of parallel/README.md.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/config/model_name.h"
#include "llmc/models/gpt2/gpt2_parameters.h"
#include "llmc/offload/disk_pieces.h"
#include "llmc/parallel/shard_layout.h"
#include "llmc/plan/plan_text.h"
#include "test/layouts.h"
#include "test/plan_rig.h"
#include "test/rank_rig.h"

using namespace llmc;
using namespace llmc_test;

namespace {

using Segments = std::vector<MemoryPlan::Segment>;

std::int64_t bytes_in(const Segments& plan, const std::string& name, Place place) {
  for (const MemoryPlan::Segment& segment : plan) {
    if (segment.name == name && segment.place == place) return segment.bytes;
  }
  return 0;
}

// Elements of the rank's pieces and of whole buckets, and of the largest ones.
struct Elements {
  std::int64_t pieces = 0, whole = 0, tokens = 0, other = 0;
};
Elements elements_of(const ModelConfig& model, int zero, std::int64_t N) {
  const ParameterTable table = gpt2_parameters(model);
  const ShardLayout layout(table, zero, static_cast<int>(N), 0);
  Elements elements;
  for (const Bucket& bucket : layout.trainable_buckets()) {
    elements.pieces += bucket.piece;
    elements.whole += bucket.stored;
    std::int64_t& largest = bucket.table_begin == 0 ? elements.tokens : elements.other;
    largest = std::max(largest, bucket.stored);
  }
  return elements;
}

RunConfig config_of(const char* model, int N, int zero, Dtype dtype, const std::string& entries) {
  RunConfig config = run_config(make_mesh(N, N), zero, 1);
  config.precision.dtype = dtype;
  config.shape = config_from_name(model);
  config.batch.seq_len = 1024;
  config.memory.recompute = Recompute::full;
  config.memory.offload.clear();
  for (const char* kind : {"optimizer", "gradients", "parameters", "activations"}) {
    if (entries.find(kind) != entries.npos) {
      config.memory.offload.push_back(kind + entries.substr(entries.find('=')));
    }
  }
  if (entries.find("on cpu") != entries.npos) config.memory.optimizer_on = OptimizerOn::cpu;
  return config;
}

// The update by the CPU needs gradients in host memory, and room for the new weights on their way.
void check_update_on_cpu(const Segments& plan, const OffloadPlaces& offload, std::int64_t pieces,
                         std::int64_t e) {
  const bool copies_gradients = offload.optimizer_on_cpu && offload.gradients.place != Place::host;
  if (copies_gradients) CHECK(bytes_in(plan, "gradients", Place::host) == 4 * pieces);
  const bool moves_weights = offload.optimizer_on_cpu && offload.parameters.place != Place::host;
  CHECK(bytes_in(plan, "new weights", Place::host) ==
        (moves_weights ? 2 * e * std::min(offload.chunk, pieces) : 0));
}

void check_segments(const RunConfig& config, int N, int zero, Place place) {
  const OffloadPlaces offload = config.run_shape().offload;
  const ModelConfig& model = config.shape;
  const std::int64_t e = element_bytes(config.precision.dtype), L = model.layers;
  const Elements n = elements_of(model, zero, N);
  const bool shards_weights = zero == 3 && N > 1, shards_gradients = zero >= 2 && N > 1;
  const auto is_away = [](const OffloadPlace& p) { return p.place != Place::device; };
  const bool optimizer = is_away(offload.optimizer), gradients = is_away(offload.gradients),
             parameters = is_away(offload.parameters), activations = is_away(offload.activations);
  const Segments plan = planned_memory(config)[0];
  check_update_on_cpu(plan, offload, n.pieces, e);
  const auto check = [&](const std::string& name, bool away, std::int64_t bytes) {
    CAPTURE(name);
    const bool has_copy = offload.optimizer_on_cpu && name == "gradients" && !away;
    if (!has_copy) CHECK(bytes_in(plan, name, place) == (away ? bytes : 0));
    CHECK(bytes_in(plan, name, Place::device) == (away ? 0 : stored(bytes)));
  };
  const std::int64_t masters = e == 4 ? 0 : 4 * n.pieces;
  check("master weights", optimizer, masters);
  CHECK(bytes_in(plan, "moments", optimizer ? place : Place::device) == 8 * n.pieces);
  check("gradients", gradients, 4 * (shards_gradients ? n.pieces : n.whole));
  check("weights", parameters, e * (shards_weights ? n.pieces : n.whole));
  const std::int64_t slots = n.tokens + 2 * n.other, piece = std::max(n.tokens, n.other) / N;
  CHECK(bytes_in(plan, "gathered weights", Place::device) ==
        (parameters || shards_weights ? e * slots : 0));
  CHECK(bytes_in(plan, "gradient buckets", Place::device) ==
        (gradients || shards_gradients ? 4 * slots : 0) +
            (shards_gradients ? 4 * piece * (gradients ? 2 : 1) : 0));
  const std::int64_t elements = std::min(offload.chunk, n.pieces);
  const std::int64_t of_update = (optimizer ? (e == 4 ? 8 : 12) : 0) + (gradients ? 4 : 0);
  const std::int64_t of_element = (offload.optimizer_on_cpu ? 4 : of_update) + (parameters ? e : 0);
  CHECK(bytes_in(plan, "offload buffers", Place::device) == 2 * elements * of_element);
  const std::int64_t input = stored(e * 1024 * model.channels);
  if (activations) CHECK(bytes_in(plan, "activations", place) == L * round_up(input, 4096));
  const std::int64_t once = 3 * input + 2 * stored(4 * 1024);
  CHECK(bytes_in(plan, "activations", Place::device) == (activations ? 2 : L) * input + once);
  CHECK(bytes_in(plan, "disk buffers", Place::host) ==
        (offload.uses(Place::disk) ? DiskPieces::kMemory : 0));
}

}  // namespace

TEST_SUITE("offload plan") {
  TEST_CASE("every segment of offloaded state has the bytes of its formula") {
    for (const char* model : {"d12", "d48"}) {
      for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
        for (const int N : {1, 4}) {
          for (const int zero : {0, 1, 2, 3}) {
            for (const char* kinds : {"optimizer", "gradients", "parameters", "activations",
                                      "optimizer,gradients,parameters,activations"}) {
              for (const Place place : {Place::host, Place::disk}) {
                CAPTURE(model);
                CAPTURE(dtype_name(dtype));
                CAPTURE(N);
                CAPTURE(zero);
                CAPTURE(kinds);
                CAPTURE(place_name(place));
                const std::string at = place == Place::host ? "=host" : "=DIR";
                const auto check = [&](const std::string& entries) {
                  check_segments(config_of(model, N, zero, dtype, entries), N, zero, place);
                };
                check(kinds + at);
                const bool is_host = place == Place::host;
                if (is_host && std::string(kinds).starts_with("optimizer")) {
                  check(std::string(kinds) + " on cpu" + at);
                }
              }
            }
          }
        }
      }
    }
  }
}
