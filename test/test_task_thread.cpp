// A thread that runs tasks in their order: transfers to a disk depend on it.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "llmc/base/task_thread.h"

using namespace llmc;

namespace {

void sleep_briefly() {
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

}  // namespace

TEST_SUITE("task thread") {
  TEST_CASE("tasks run on one other thread, after its start, in their order") {
    std::vector<int> order;
    std::vector<std::thread::id> threads;
    {
      TaskThread thread([&] { order.push_back(-1); });
      for (int i = 0; i < 100; ++i) {
        thread.submit([&, i] {
          order.push_back(i);
          threads.push_back(std::this_thread::get_id());
        });
      }
    }  // finishes all tasks
    REQUIRE(order.size() == 101);
    for (int i = 0; i < 101; ++i) CHECK(order[static_cast<std::size_t>(i)] == i - 1);
    for (const auto id : threads) CHECK(id == threads.front());
    CHECK(threads.front() != std::this_thread::get_id());
  }

  TEST_CASE("the caller waits for a task and those before it, not for later ones") {
    std::atomic<bool> may_end = false;
    std::atomic<int> done = 0;
    TaskThread thread([] {});
    thread.wait(0);
    thread.submit([&] {
      sleep_briefly();
      ++done;
    });
    const auto second = thread.submit([&] { ++done; });
    thread.submit([&] {
      while (!may_end) sleep_briefly();
      ++done;
    });
    thread.wait(second);
    CHECK(done == 2);
    may_end = true;
    thread.settle();
    CHECK(done == 3);
  }

  TEST_CASE("an exception reaches those who wait for its task or a later one, which is dropped") {
    bool was_dropped = true;
    TaskThread thread([] {});
    const auto right = thread.submit([] {});
    const auto wrong = thread.submit([] { throw std::runtime_error("a full disk"); });
    const auto later = thread.submit([&] { was_dropped = false; });
    CHECK_NOTHROW(thread.settle());
    CHECK_NOTHROW(thread.wait(right));
    for (int i = 0; i < 2; ++i) {
      CHECK_THROWS_WITH_AS(thread.wait(wrong), "a full disk", std::runtime_error);
      CHECK_THROWS_WITH_AS(thread.wait(later), "a full disk", std::runtime_error);
    }
    CHECK(was_dropped);
  }

  TEST_CASE("what a task holds is released before it counts as done") {
    struct Holder {
      std::atomic<bool>* is_released;
      ~Holder() { *is_released = true; }
    };
    std::atomic<bool> is_released = false;
    TaskThread thread([] {});
    auto holder = std::make_shared<Holder>(&is_released);
    const auto ticket = thread.submit([holder] { sleep_briefly(); });
    holder.reset();
    thread.wait(ticket);
    CHECK(is_released);
  }
}
