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
#include "llmc/models/batch_stage.h"
#include "test/support.h"

using namespace llmc;
using llmc_test::complaint;

namespace {

// Waits at most 60 seconds until `condition` holds; returns whether it does.
template <class Condition>
bool wait_for(Condition&& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  return condition();
}

}  // namespace

TEST_SUITE("read_ahead") {
  TEST_CASE("batches read ahead equal batches read on demand") {
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
        const PreparedBatch actual = ahead.next(), expected = prepare(text.batch(17 + 3 * n, 3));
        CHECK(actual.batch.inputs == expected.batch.inputs);
        CHECK(actual.batch.targets == expected.batch.targets);
        CHECK(actual.batch.doc_start == expected.batch.doc_start);
        CHECK(actual.buckets.position == expected.buckets.position);
      }
    }
  }

  TEST_CASE("no more items are prepared ahead than the depth allows") {
    std::atomic<std::int64_t> num_prepared = 0;
    ReadAhead<std::int64_t> ahead(
        [&](std::int64_t n) {
          ++num_prepared;
          return n;
        },
        3);
    CHECK(wait_for([&] { return num_prepared == 3; }));
    CHECK(ahead.next() == 0);
    CHECK(wait_for([&] { return num_prepared == 4; }));
    CHECK(ahead.next() == 1);
    CHECK(num_prepared <= 5);
  }

  TEST_CASE("an exception comes after the items before it and is rethrown by later calls") {
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

  TEST_CASE("the destructor ends the thread after any number of used items") {
    const auto reference = std::make_shared<int>(0);
    for (const int num_used : {0, 1, 5}) {
      {
        ReadAhead<std::int64_t> ahead([reference](std::int64_t n) { return n; }, 2);
        for (int i = 0; i < num_used; ++i) CHECK(ahead.next() == i);
      }
      CHECK(reference.use_count() == 1);
    }
    ReadAhead<std::int64_t> unused(
        [](std::int64_t) -> std::int64_t { fail("an unobserved error"); });
  }

  TEST_CASE("an exception in the caller also ends the thread") {
    const auto reference = std::make_shared<int>(0);
    CHECK(complaint([&] {
            ReadAhead<std::int64_t> ahead([reference](std::int64_t n) { return n; }, 2);
            ahead.next();
            fail("the step went wrong");
          }) == "the step went wrong");
    CHECK(reference.use_count() == 1);
  }
}
