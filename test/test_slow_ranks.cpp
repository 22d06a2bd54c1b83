// Slow ranks, from times that are given to SlowRanks instead of measured.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "llmc/train/watch/slow_ranks.h"

using namespace llmc;

namespace {

constexpr int kSteps = SlowRanks::kSlowSteps;

// Adds `steps` steps with these times of computation. Returns the ranks that became slow.
std::vector<int> add_steps(SlowRanks& watch, int steps, const std::vector<double>& milliseconds) {
  std::vector<int> slow;
  for (int i = 0; i < steps; ++i) {
    std::vector<RankTimes> times;
    for (const double ms : milliseconds) times.push_back({.compute = ms, .wait = 1000 - ms});
    for (const SlowRank& rank : watch.add_step(times)) slow.push_back(rank.rank);
  }
  return slow;
}

using Numbers = std::vector<int>;

}  // namespace

TEST_SUITE("slow_ranks") {
  TEST_CASE("a rank is named once, when it has been slow for enough steps in a row") {
    SlowRanks watch(make_mesh(4, 4));
    CHECK(add_steps(watch, kSteps - 1, {100, 100, 125, 101}).empty());
    CHECK(add_steps(watch, 1, {100, 100, 100, 101}).empty());
    CHECK(add_steps(watch, kSteps - 1, {100, 100, 125, 101}).empty());
    CHECK(add_steps(watch, 1, {100, 100, 125, 101}) == Numbers{2});
    CHECK(add_steps(watch, 5 * kSteps, {100, 100, 125, 101}).empty());
  }

  TEST_CASE("a rank that was fast again for as long may be named again") {
    SlowRanks watch(make_mesh(2, 2));
    CHECK(add_steps(watch, kSteps, {100, 150}) == Numbers{1});
    add_steps(watch, kSteps - 1, {100, 100});
    CHECK(add_steps(watch, 2 * kSteps, {100, 150}).empty());
    add_steps(watch, kSteps, {100, 100});
    CHECK(add_steps(watch, kSteps, {100, 150}) == Numbers{1});
  }

  TEST_CASE("the limit is 1.2 times the median, of two ranks the time of the faster one") {
    SlowRanks two(make_mesh(2, 2)), three(make_mesh(3, 3)), four(make_mesh(4, 4));
    CHECK(add_steps(two, kSteps, {119, 100}).empty());
    CHECK(add_steps(two, kSteps, {121, 100}) == Numbers{0});
    CHECK(add_steps(three, kSteps, {50, 100, 121}) == Numbers{2});
    CHECK(add_steps(four, kSteps, {100, 100, 121, 121}) == Numbers{2, 3});
  }

  TEST_CASE("only ranks at the same place of the pipeline are compared") {
    SlowRanks stages(make_mesh(2, 1, 1, 2));
    CHECK(add_steps(stages, 2 * kSteps, {100, 300}).empty());
    SlowRanks pipelines(make_mesh(4, 2, 1, 2));
    CHECK(add_steps(pipelines, kSteps, {100, 100, 300, 500}) == Numbers{3});
    SlowRanks one(make_mesh(1, 1));
    CHECK(add_steps(one, 2 * kSteps, {100}).empty());
  }

  TEST_CASE("waiting for other ranks is not slow, waiting for data is") {
    PhaseTimes phases{};
    phases.fill(1);
    const RankTimes times = rank_times(phases);
    CHECK(times.compute == 5);
    CHECK(times.wait == 4);
    CHECK(times.data == 1);
    SlowRanks watch(make_mesh(2, 2));
    std::vector<SlowRank> slow;
    for (int i = 0; i < kSteps; ++i) {
      slow = watch.add_step({{.compute = 80, .wait = 500}, {.compute = 80, .wait = 0, .data = 30}});
    }
    REQUIRE(slow.size() == 1);
    CHECK(slow[0].rank == 1);
    CHECK(slow[0].own == doctest::Approx(110));
    CHECK(slow[0].median == doctest::Approx(80));
    CHECK(slow_rank_text(
              slow[0],
              {.machine = "m", .host = "node7", .gpu = "0000:81:00.0", .device = "NVIDIA H100"}) ==
          "rank 1 (node7, NVIDIA H100 at 0000:81:00.0) is slow: it computed 110.0 ms per step for "
          "20 steps, the median of ranks 0, 1 is 80.0 ms");
    CHECK(slow_rank_text(slow[0], {.machine = "m", .host = "node7", .device = "a CPU"})
              .starts_with("rank 1 (node7, a CPU) is slow: "));
  }
}
