// The data of a run: how many steps epochs are, and whether documents are known.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/train/run/run_data.h"
#include "test/support.h"

using namespace llmc;
using llmc_test::complaint;
using llmc_test::contains;

TEST_SUITE("run_data") {
  TEST_CASE("epochs are the fewest steps that take so many sequences") {
    CHECK(steps_of_epochs(1, 20, 4) == 5);
    CHECK(steps_of_epochs(1, 21, 4) == 6);
    CHECK(steps_of_epochs(2, 21, 4) == 11);
    CHECK(steps_of_epochs(0.5, 21, 1) == 11);
    CHECK(steps_of_epochs(1e-6, 10, 8) == 1);
    // 0.1 and its like have no exact double: the product must not tip over.
    for (std::int64_t tenths = 1; tenths < 100; ++tenths) {
      CHECK(steps_of_epochs(static_cast<double>(tenths) / 10, 30, 1) == 3 * tenths);
    }
    CHECK(contains(complaint([] { steps_of_epochs(1e6, std::int64_t{1} << 50, 1); }), "--epochs"));
  }

  TEST_CASE("a run by epochs has the schedule of its steps") {
    TrainSettings settings;
    settings.epochs = 2;
    settings.steps = 1000;
    settings.batch_size = 2;
    const Gpt2Config config{
        .vocabulary = 257, .context = 8, .layers = 1, .heads = 1, .channels = 8};
    RunPlan plan = make_run_plan(settings, config);
    RunData data;
    TokenSource text("text");
    text.add("text", TokenData(std::vector<std::int32_t>(161, 1)));
    data.train.emplace(Windows({text}, 8, false, ""), 1);
    count_epochs(settings, plan, config, data);
    CHECK(plan.steps == 20);
    CHECK(plan.schedule.steps == 20);
    CHECK(plan.schedule.warmup == 1);
    CHECK(plan.eval_every == 2);
  }

  TEST_CASE("one source with documents is enough for a mask, none is not") {
    const ByteTokenizer bytes;
    TokenSource plain("plain", 257, 256), marked("marked", 257, 256);
    plain.add("plain", TokenData({1, 2, 3}));
    marked.add("marked", TokenData({1, 256, 3}));
    CHECK(complaint([&] { check_documents({plain, marked}, bytes); }).empty());
    CHECK(contains(complaint([&] {
                     check_documents({plain, plain}, bytes);
                   }),
                   "no end-of-text token is in the data"));
    CHECK(contains(complaint([&] { check_documents({plain}, WordTokenizer({"a"}, "two")); }),
                   "has no end-of-text token"));
  }
}
