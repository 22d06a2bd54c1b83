// The estimated time left, on simulated clocks, and the summary of a run.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "llmc/io/tokenizer/byte_tokenizer.h"
#include "llmc/io/tokenizer/id_tokenizer.h"
#include "llmc/train/rule.h"
#include "llmc/train/watch/summary.h"

using llmc::Eta;
using llmc::Rule;
using llmc::WorkKind;

TEST_SUITE("eta") {
  TEST_CASE("the time left is that of all work left, and the first step is ignored") {
    Eta eta;
    eta.add_left(WorkKind::step, 100);
    eta.add_left(WorkKind::validation, 10);
    eta.add_left(WorkKind::save, 2);
    eta.set_guess(WorkKind::validation, 5);
    eta.set_guess(WorkKind::save, 0, 4);
    CHECK(!eta.seconds_left());
    eta.finished(WorkKind::step, 50);  // warm-up
    CHECK(!eta.seconds_left());
    eta.finished(WorkKind::step, 2);
    CHECK(*eta.seconds_left() == doctest::Approx(98 * 2 + 10 * (5 * 2) + 2 * 4));
    eta.finished(WorkKind::validation, 7);
    CHECK(*eta.seconds_left() == doctest::Approx(98 * 2 + 9 * 7 + 2 * 4));
    eta.finished(WorkKind::save, 1);
    CHECK(*eta.seconds_left() == doctest::Approx(98 * 2 + 9 * 7 + 1));
  }

  TEST_CASE("a change of the speed is followed within a few minutes") {
    Eta eta;
    eta.add_left(WorkKind::step, 2000);
    for (int i = 0; i < 600; ++i) eta.finished(WorkKind::step, 1);
    CHECK(*eta.seconds_left() == doctest::Approx(1400));
    for (int i = 0; i < 100; ++i) eta.finished(WorkKind::step, 3);
    CHECK(*eta.seconds_left() == doctest::Approx(3 * 1300).epsilon(0.02));
  }

  TEST_CASE("in a simulated run with all kinds of work, the predicted end is the real end") {
    Eta eta;
    const Rule rules[] = {{WorkKind::validation, {10}, Rule::OnLastStep::if_enabled, {}},
                          {WorkKind::sample, {25}, Rule::OnLastStep::if_enabled, {}},
                          {WorkKind::save, {30, 50}, Rule::OnLastStep::always, {}}};
    const double seconds[] = {8, 3, 5};
    const std::int64_t last = 333;
    eta.add_left(WorkKind::step, last);
    for (const Rule& rule : rules) eta.add_left(rule.work, rule.times_due(0, last));
    eta.set_guess(WorkKind::save, 0, 4);  // the first save is after the first minute
    double now = 0;
    std::vector<double> predicted_ends;
    for (std::int64_t step = 1; step <= last; ++step) {
      const double duration = step == 1 ? 20 : 1;
      now += duration;
      eta.finished(WorkKind::step, duration);
      for (int i = 0; i < 3; ++i) {
        if (!rules[i].due(step, last)) continue;
        now += seconds[i];
        eta.finished(rules[i].work, seconds[i]);
      }
      if (now > 60) predicted_ends.push_back(now + *eta.seconds_left());
    }
    CHECK(*eta.seconds_left() == 0);
    for (const double end : predicted_ends) CHECK(end == doctest::Approx(now).epsilon(0.03));
    CHECK(predicted_ends[100] == doctest::Approx(now).epsilon(0.0001));  // all kinds are measured
  }

  TEST_CASE("times_due counts what due() says") {
    using enum Rule::OnLastStep;
    for (const auto on_last : {always, if_enabled, never}) {
      for (const std::vector<std::int64_t>& intervals :
           {std::vector<std::int64_t>{0},
            {1},
            {7},
            {0, 0},
            {4, 6},
            {6, 4},
            {5, 0},
            {0, 5},
            {3, 3},
            {std::int64_t{1} << 62, (std::int64_t{1} << 61) + 1}}) {
        const Rule rule{WorkKind::save, intervals, on_last, {}};
        for (std::int64_t last = 0; last < 40; ++last) {
          for (std::int64_t step = 0; step <= last; ++step) {
            std::int64_t count = 0;
            for (std::int64_t s = step + 1; s <= last; ++s) count += rule.due(s, last) ? 1 : 0;
            REQUIRE(rule.times_due(step, last) == count);
          }
        }
      }
    }
  }
}

TEST_SUITE("run summary") {
  TEST_CASE("the summary of a complete and of an interrupted run") {
    llmc::RunSummary run{.first_step = 0, .step = 100, .last_step = 100, .tokens = 1000};
    run.seconds = 192;
    run.step_seconds = 10;
    run.validation = llmc::MeasuredLoss{100, 1.2345};
    run.best = llmc::MeasuredLoss{90, 1.2301};
    run.saved = "run/step_000100";
    CHECK(summary_text(run) ==
          "done: 100 steps in 3 min 12 s, 100 tok/s\n"
          "validation loss: 1.2345 after step 100, best 1.2301 after step 90\n"
          "saved: run/step_000100");
    run = {.first_step = 40, .step = 41, .last_step = 100};
    CHECK(summary_text(run) == "stopped: step 41 of 100, 1 step in 0 s\nsaved: nothing");
  }

  TEST_CASE("the next command can be pasted into a shell") {
    llmc::RunConfig config;
    config.schedule.steps = 100;
    const llmc::ByteTokenizer bytes;  // its files are in checkpoints
    CHECK(next_command(config, 100, bytes).find("--out DIR") != std::string::npos);
    config.output.out = "my runs/a";
    CHECK(next_command(config, 60, bytes) == "./train_gpt2 --out 'my runs/a' --resume");
    config.samples.prompt = "it's";
    CHECK(next_command(config, 100, bytes) == "./infer_gpt2 -m 'my runs/a' -p 'it'\\''s'");
    CHECK(next_command(config, 100, llmc::IdTokenizer(9)).find("--tokenizer") != std::string::npos);
  }
}
