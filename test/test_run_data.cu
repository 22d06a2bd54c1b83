// The data of a run: the number of steps in epochs, and whether documents are known.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/train/run/resolve.h"
#include "llmc/train/run/run_data.h"
#include "test/support.h"

using namespace llmc;
using llmc_test::complaint;
using llmc_test::contains;

TEST_SUITE("run_data") {
  TEST_CASE("--epochs is the smallest number of steps that covers its samples") {
    CHECK(steps_of_epochs(1, 20, 4) == 5);
    CHECK(steps_of_epochs(1, 21, 4) == 6);
    CHECK(steps_of_epochs(2, 21, 4) == 11);
    CHECK(steps_of_epochs(0.5, 21, 1) == 11);
    CHECK(steps_of_epochs(1e-6, 10, 8) == 1);
    // 0.1 and similar numbers have no exact double; the product must not round up to one more step.
    for (std::int64_t tenths = 1; tenths < 100; ++tenths) {
      CHECK(steps_of_epochs(static_cast<double>(tenths) / 10, 30, 1) == 3 * tenths);
    }
    CHECK(contains(complaint([] { steps_of_epochs(1e6, std::int64_t{1} << 50, 1); }), "--epochs"));
  }

  TEST_CASE("a run with --epochs has the schedule of its number of steps") {
    Request request;
    request.schedule.epochs = 2;
    request.batch.batch_size = 2;
    request.batch.seq_len = 8;
    RunFacts facts;
    CHECK(requests_training(request, facts));
    CHECK(resolve_inputs(request, facts).batch.seq_len == 8);
    facts.windows = 20;
    facts.preset.schedule.steps = 5;
    const RunConfig config = resolve(request, facts);
    CHECK(config.schedule.steps == 20);
    CHECK(config.schedule.warmup == 1);
    CHECK(config.validation.every == 2);
    CHECK(config.samples.every == 4);
  }

  TEST_CASE("a document mask needs at least one source with document boundaries") {
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
