// The pool of OS threads that runs the blocks of launches and the tiles of products on the host,
// and updates by the CPU.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <thread>
#include <vector>

#include "llmc/device/workers.h"

using namespace llmc;

TEST_SUITE("worker pool") {
  TEST_CASE("the worker pool runs every piece once") {
    WorkerPool& pool = workers();
    for (const std::int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> done(static_cast<std::size_t>(count));
      pool.run(count, [&](std::int64_t i) { ++done[static_cast<std::size_t>(i)]; });
      for (const auto& calls : done) CHECK(calls == 1);
    }
  }

  TEST_CASE("the worker pool throws the first error and remains usable") {
    constexpr std::int64_t kPieces = 100'000;
    WorkerPool& pool = workers();
    for (int round = 0; round < 20; ++round) {
      std::atomic<std::int64_t> num_started{0};
      const auto piece = [&](std::int64_t i) {
        ++num_started;
        if (i == 3) throw std::runtime_error("piece 3");
        // Another thread starts pieces until the pool has caught the error, so they are slow.
        if (i > 3) std::this_thread::sleep_for(std::chrono::microseconds(100));
      };
      CHECK_THROWS_WITH_AS(pool.run(kPieces, piece), "piece 3", std::runtime_error);
      CHECK(num_started < kPieces);
    }
    std::atomic<int> done{0};
    pool.run(50, [&](std::int64_t) { ++done; });
    CHECK(done == 50);
  }
}
