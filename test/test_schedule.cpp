// The learning-rate schedule and its edge cases.
#include <doctest/doctest.h>

#include "llmc/config/learning_rate_schedule.h"
#include "llmc/config/resolve.h"
#include "test/support.h"

using namespace llmc;

TEST_SUITE("schedule") {
  TEST_CASE("wsd warms up, stays at the peak and decays to the final rate") {
    const Schedule wsd{.decay = Decay::wsd,
                       .peak = 2.0,
                       .final_fraction = 0.25,
                       .warmup = 4,
                       .steps = 20,
                       .decay_steps = 8};
    CHECK(wsd.rate(0) == 0.5);  // step 1 of 4 in the warm-up: a quarter of the peak, not 0
    CHECK(wsd.rate(3) == 2.0);
    CHECK(wsd.rate(4) == 2.0);
    CHECK(wsd.rate(11) == 2.0);  // the last stable step
    CHECK(wsd.rate(12) == doctest::Approx(2.0 * (0.25 + 0.75 * 7 / 8)).epsilon(1e-15));
    CHECK(wsd.rate(15) == doctest::Approx(2.0 * (0.25 + 0.75 / 2)).epsilon(1e-15));
    CHECK(wsd.rate(19) == 0.5);  // the last step has the final rate
    CHECK(wsd.rate(25) == 0.5);
    for (std::int64_t step = 4; step < 19; ++step) CHECK(wsd.rate(step + 1) <= wsd.rate(step));
  }

  TEST_CASE("wsd may have no stable phase and no decay") {
    Schedule wsd{.decay = Decay::wsd,
                 .peak = 1,
                 .final_fraction = 0,
                 .warmup = 2,
                 .steps = 4,
                 .decay_steps = 2};
    CHECK(wsd.rate(1) == 1);
    CHECK(wsd.rate(2) == 0.5);
    CHECK(wsd.rate(3) == 0);
    wsd.decay_steps = 0;
    CHECK(wsd.rate(3) == 1);
  }

  TEST_CASE("the decay is a fraction of the run and must fit into it with the warm-up") {
    CHECK(wsd_decay_steps(1000, 50, 0.2) == 200);
    CHECK(wsd_decay_steps(10, 0, 1.0) == 10);
    CHECK(wsd_decay_steps(10, 0, 0.01) == 1);
    CHECK(wsd_decay_steps(10, 10, 0.0) == 0);
    CHECK(wsd_decay_steps(10, 5, 0.5) == 5);
    CHECK_THROWS_WITH_AS(
        wsd_decay_steps(10, 6, 0.5),
        doctest::Contains("6 steps of warm-up and 5 of decay do not fit into a run of 10"), Error);
    CHECK_THROWS_WITH_AS(wsd_decay_steps(10, 20, 0.0), doctest::Contains("--warmup"), Error);
  }

  TEST_CASE("--decay-fraction is accepted only with --schedule wsd") {
    Request request;
    const auto decay_steps = [&] {
      return make_schedule(resolve(request, {}).schedule).decay_steps;
    };
    request.schedule.steps = 100;
    request.schedule.decay = Decay::wsd;
    CHECK(decay_steps() == 20);
    request.schedule.decay_fraction = 0.5;
    CHECK(decay_steps() == 50);
    request.schedule.warmup = 51;
    CHECK_THROWS_WITH_AS(resolve(request, {}), doctest::Contains("51 steps of warm-up"), Error);
    request.schedule.decay = Decay::cosine;
    CHECK_THROWS_WITH_AS(resolve(request, {}),
                         doctest::Contains("--decay-fraction has no effect with --schedule cosine"),
                         Error);
  }
}
