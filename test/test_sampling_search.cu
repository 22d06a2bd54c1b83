// The filters of sampling visit only possible candidates. Plain passes over all of a row (the scans
// of oracle/sampling_scans.h) keep the same tokens and draw the same one.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "llmc/ops/sampling/device_sampling.h"
#include "test/oracle/sampling_scans.h"
#include "test/sampling_rig.h"
#include "test/support.h"

namespace {

using namespace llmc;
using namespace llmc_test;
using namespace llmc_test::sampling_rig;

struct Scan {
  Ids kept;
  std::int32_t drawn;
};

Scan scan(const Sequence& s) {
  Stream stream;
  const std::int64_t V = std::ssize(s.logits);
  const std::int64_t work_columns = round_up(V, sampling::kRowAlignment);
  const DeviceArray<float> logits(s.logits, stream),
      work(std::vector<float>(2 * work_columns, NAN), stream);
  const DeviceArray<std::int32_t> drawn(Ids{-5}, stream);
  const std::int64_t threads = round_up(ceil_div(V, sampling::kVector), 32);
  launch(scan_and_draw_kernel<>, Grid{1, 1, 1},
         cooperating_threads(static_cast<int>(std::min<std::int64_t>(1024, threads))),
         sampling::block_memory_bytes(), stream, drawn.data(), work.data(), logits.data(), V,
         slot_sampling(s.options, kSeed, s.sample, s.last_position, s.stop_token),
         s.next_position());
  stream.synchronize();
  CHECK(work.guards_intact());
  const std::vector<float> stored = work.stored();
  Scan result{{}, drawn.stored()[0]};
  for (std::int64_t id = 0; id < V; ++id) {
    if (stored[id] > -INFINITY) result.kept.push_back(static_cast<std::int32_t>(id));
  }
  return result;
}

// The rows of V logits that a model may compute, and rows that are hard to search.
std::vector<std::vector<float>> rows(std::int64_t V) {
  const auto changed = [&](std::uint64_t seed, auto change) {
    std::vector<float> row = random_logits(V, seed);
    for (std::int64_t id = 0; id < V; ++id) row[id] = change(row[id], id);
    return row;
  };
  return {
      random_logits(V, 1),
      random_logits(V, 2, 0.5f),                                                 // many ties
      random_logits(V, 3, 4.0f),                                                 // few values
      changed(4, [](float, auto) { return 1.25f; }),                             // equal logits
      changed(5, [](float x, auto) { return 1.0f + 1e-6f * x; }),                // almost equal
      changed(6, [](float x, auto id) { return id % 97 == 0 ? 9 - x : x; }),     // peaked
      changed(7, [](float x, auto id) { return id == 5 ? 60 : x; }),             // one likely token
      changed(8, [](float x, auto id) { return id % 3 == 1 ? -INFINITY : x; }),  // banned tokens
      changed(9, [](float x, auto id) { return id % 50 == 0 ? x : -INFINITY; }),
      changed(10, [](float x, auto) { return 300 * x; }),  // most weights are 0
      changed(11, [](float x, auto) { return 1e30f * x; }),
      changed(12, [](float x, auto) { return 1e-30f * x; }),
      changed(13, [](float x, auto) { return x < 0 ? -0.0f : 0.0f; }),
      changed(14, [](float x, auto id) { return id % 2 == 0 ? -100 - x : x; }),  // two groups
      changed(15, [](float, auto id) { return -2 * std::log(1.0f + static_cast<float>(id)); }),
      changed(16, [](float x, auto id) { return id == 1 ? -3.4028234e38f : x; }),
  };
}

std::vector<SamplingOptions> filters() {
  return {{.top_k = 1},
          {.top_k = 40},
          {.temperature = 0.7, .top_k = 1000},
          {.top_k = 1000000},
          {.top_p = 1e-6},
          {.top_p = 0.5},
          {.temperature = 0.7, .top_p = 0.9},
          {.top_p = 0.999},
          {.top_p = 0.9999999},
          {.min_p = 0.05},
          {.typical = 0.2},
          {.temperature = 1.3, .typical = 0.9},
          {.typical = 0.9999999},
          {.top_k = 50, .top_p = 0.95},
          {.top_k = 300, .top_p = 0.9, .min_p = 0.1, .typical = 0.9},
          {.top_p = 0.7, .min_p = 0.3}};
}

TEST_SUITE("sampling_search") {
  TEST_CASE("filters keep and draw the tokens of plain passes over the row") {
    const std::vector<std::int64_t> sizes =
        tiny_shapes() ? std::vector<std::int64_t>{3, 259}
                      : std::vector<std::int64_t>{1, 3, 31, 257, 5003, 50257};
    for (const std::int64_t V : sizes) {
      std::vector<Sequence> sequences;
      for (const std::vector<float>& row : rows(V)) {
        for (const SamplingOptions& options : filters()) {
          const auto sample = static_cast<std::uint32_t>(sequences.size());
          sequences.push_back({.logits = row, .options = options, .sample = sample});
        }
      }
      const Outcome out = sample(sequences);
      for (std::size_t r = 0; r < sequences.size(); ++r) {
        CAPTURE(V);
        CAPTURE(r);
        const Scan expected = scan(sequences[r]);
        CHECK(out.kept(r, V) == expected.kept);
        CHECK(out.drawn[r] == expected.drawn);
      }
    }
  }
}

}  // namespace
