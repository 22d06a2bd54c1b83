// Reading ahead: the same items in the same order, errors at their item, and no thread left
// running. The file is a .cu so that the race check includes it.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "llmc/base/prefetch.h"
#include "llmc/io/data/batches.h"
#include "llmc/model/batch_stage.h"
#include "test/support.h"

using namespace llmc;
using llmc_test::complaint;

namespace {

// Waits at most 60 seconds until `condition` holds; returns whether it does.
template <class Condition>
bool comes_true(Condition&& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  return condition();
}

}  // namespace

TEST_SUITE("read_ahead") {
  TEST_CASE("batches read ahead are those read when they are needed") {
    std::vector<std::int32_t> tokens(1000);
    std::iota(tokens.begin(), tokens.end(), 0);
    TokenSource a("a", 0, 7), b("b", 0, 7);
    a.add("a", TokenData(tokens));
    b.add("b", TokenData(tokens));
    const ShuffledWindows text(Windows({a, b}, 8, true, ""), 5, Interleave({3, 1}));
    for (const std::size_t depth : {1, 4}) {
      ReadAhead<PreparedBatch> ahead(
          [&](std::int64_t n) { return prepare(text.batch(17 + 3 * n, 3)); }, depth);
      for (std::int64_t n = 0; n < 40; ++n) {
        const PreparedBatch got = ahead.next(), want = prepare(text.batch(17 + 3 * n, 3));
        CHECK(got.batch.inputs == want.batch.inputs);
        CHECK(got.batch.targets == want.batch.targets);
        CHECK(got.batch.doc_start == want.batch.doc_start);
        CHECK(got.buckets.position == want.buckets.position);
      }
    }
  }

  TEST_CASE("no more is made than there is room for") {
    std::atomic<std::int64_t> made = 0;
    ReadAhead<std::int64_t> ahead(
        [&](std::int64_t n) {
          ++made;
          return n;
        },
        3);
    CHECK(comes_true([&] { return made == 3; }));
    CHECK(ahead.next() == 0);
    CHECK(comes_true([&] { return made == 4; }));
    CHECK(ahead.next() == 1);
    CHECK(made <= 5);
  }

  TEST_CASE("what is thrown comes after what was made before it, and stays") {
    ReadAhead<std::int64_t> ahead([](std::int64_t n) -> std::int64_t {
      if (n == 2) fail("shard 3 is torn");
      return 10 * n;
    });
    CHECK(ahead.next() == 0);
    CHECK(ahead.next() == 10);
    for (int call = 0; call < 2; ++call) {
      CHECK(complaint([&] { ahead.next(); }) == "shard 3 is torn");
    }
  }

  TEST_CASE("it ends at once, whether nothing, something or all of it was used") {
    const auto alive = std::make_shared<int>(0);
    for (const int used : {0, 1, 5}) {
      {
        ReadAhead<std::int64_t> ahead([alive](std::int64_t n) { return n; }, 2);
        for (int i = 0; i < used; ++i) CHECK(ahead.next() == i);
      }
      CHECK(alive.use_count() == 1);
    }
    ReadAhead<std::int64_t> unused([](std::int64_t) -> std::int64_t { fail("nobody hears this"); });
  }

  TEST_CASE("an exception of the user's own ends it too") {
    const auto alive = std::make_shared<int>(0);
    CHECK(complaint([&] {
            ReadAhead<std::int64_t> ahead([alive](std::int64_t n) { return n; }, 2);
            ahead.next();
            fail("the step went wrong");
          }) == "the step went wrong");
    CHECK(alive.use_count() == 1);
  }
}
