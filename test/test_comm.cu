// Communicators, with ranks as threads.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "llmc/comm/comm_choice.h"
#include "llmc/comm/thread_ranks.h"
#include "test/comm_checks.h"

using namespace llmc;
using namespace llmc_test;

TEST_SUITE("comm") {
  TEST_CASE("calls, posts and channels of 1, 2, 3, 4, 5 and 8 ranks, and of their groups") {
    for (const int ranks : {1, 2, 3, 4, 5, 8}) {
      if (tiny_shapes() && (ranks == 5 || ranks == 8)) continue;
      CAPTURE(ranks);
      std::atomic<int> num_checked = 0;
      run_thread_ranks(ranks, [&](World& world) {
        check_world(world);
        ++num_checked;
      });
      CHECK(num_checked == ranks);
    }
    SingleRankWorld single;
    check_world(single);
  }

  TEST_CASE("traffic is payload x (n - 1) / n, twice for an all-reduce") {
    run_thread_ranks(4, [](World& world) {
      Stream stream;
      const auto group = world.all();
      const Buffer<float> values(4096);
      fill_zero(values.data(), 4096, stream);
      const auto all = make_tensor(values.data(), 4096), piece = make_tensor(values.data(), 1024);
      const auto own = make_tensor(values.data() + 1024 * group->rank(), 1024);
      group->all_reduce(all, stream);
      group->reduce_scatter(own, all, stream);
      group->reduce_scatter(own, all, stream);
      group->all_gather(all, own, stream);
      group->broadcast(piece, 2, stream);
      group->barrier(stream);
      if (group->rank() == 0) group->send(piece, 1, stream);
      if (group->rank() == 1) group->receive(piece, 0, stream);
      const auto expect = [&](CommKind kind, std::int64_t calls, std::int64_t bytes) {
        require(group->traffic(kind).calls == calls && group->traffic(kind).bytes == bytes,
                std::string("the traffic is wrong: ") + kind_name(kind));
      };
      expect(CommKind::all_reduce, 1, 2 * 16384 * 3 / 4);
      expect(CommKind::reduce_scatter, 2, 2 * 16384 * 3 / 4);
      expect(CommKind::all_gather, 1, 16384 * 3 / 4);
      expect(CommKind::broadcast, 1, 4096 * 3 / 4);
      expect(CommKind::barrier, 1, 0);
      expect(CommKind::message, group->rank() < 2 ? 1 : 0, group->rank() == 0 ? 4096 : 0);
    });
  }

  TEST_CASE("the first error of a rank ends all ranks") {
    for (const int failing : {0, 2}) {
      CAPTURE(failing);
      const auto run = [&] {
        run_thread_ranks(3, [&](World& world) {
          Stream stream;
          const auto group = world.all();
          group->barrier(stream);
          if (group->rank() == failing) fail("out of paper");
          group->barrier(stream);
        });
      };
      CHECK(complaint(run) == "rank " + std::to_string(failing) + ": out of paper");
    }
  }

  TEST_CASE("a rank that waits for one that has ended reports it") {
    const auto run = [] {
      run_thread_ranks(2, [](World& world) {
        Stream stream;
        const auto group = world.all();
        if (group->rank() == 0) group->barrier(stream);
      });
    };
    CHECK(complaint(run) == "rank 0: rank 1 has ended, and this rank waits for it");
  }

  TEST_CASE("ranks that wait for each other report it") {
    const std::string error = complaint([] {
      run_thread_ranks(3, [](World& world) {
        const auto all = world.all();
        Stream stream;
        const Buffer<float> values(8);
        fill_zero(values.data(), 8, stream);
        all->barrier(stream);
        all->send(make_tensor(values.data(), 8), (world.rank() + 1) % 3, stream);
      });
    });
    CHECK(
        contains(error, "all ranks wait for each other: rank 0 for 1, rank 1 for 2, rank 2 for 0"));
  }

  TEST_CASE("ranks that make different calls report both") {
    const auto error_of = [](auto&& body) {
      return complaint([&] {
        run_thread_ranks(2, [&](World& world) {
          Stream stream;
          const auto group = world.all();
          const Buffer<float> values(8);
          fill_zero(values.data(), 8, stream);
          body(*group, values.data(), stream);
        });
      });
    };
    CHECK(contains(error_of([](Communicator& group, float* x, Stream& stream) {
                     if (group.rank() == 0) group.barrier(stream);
                     group.all_reduce(make_tensor(x, 4), stream);
                   }),
                   "ranks of a group make different calls: rank "));
    const std::string counts = error_of([](Communicator& group, float* x, Stream& stream) {
      group.all_reduce(make_tensor(x, group.rank() == 0 ? 4 : 6), stream);
    });
    CHECK(contains(counts, "all-reduce 1 of 4 fp32"));
    CHECK(contains(counts, "all-reduce 1 of 6 fp32"));
    CHECK(contains(error_of([](Communicator& group, float* x, Stream& stream) {
                     group.broadcast(make_tensor(x, 4), group.rank(), stream);
                   }),
                   "broadcast 1 of 4 fp32 from rank "));
  }

  TEST_CASE("posted messages can be received after their sender has ended") {
    std::atomic<bool> has_posted = false;
    std::atomic<int> num_checked = 0;
    run_thread_ranks(2, [&](World& world) {
      Stream stream;
      auto group = world.all();
      if (group->rank() == 0) {
        post_and_overwrite<float>(*group, large_message(), 1, stream);
        post_and_overwrite<float>(*group, 3, 1, stream);
        group.reset();
        has_posted = true;
        return;
      }
      while (!has_posted) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // rank 0 ends
      check_receive<float>(*group, large_message(), 0, stream);
      check_receive<float>(*group, 3, 0, stream);
      ++num_checked;
    });
    CHECK(num_checked == 1);
  }

  TEST_CASE("a receiver reports a posted message that differs, and one that never comes") {
    const auto error_of = [](const auto& post) {
      return complaint([&] {
        run_thread_ranks(2, [&](World& world) {
          Stream stream;
          const auto group = world.all();
          if (group->rank() == 0) return post(*group, stream);
          check_receive<float>(*group, 4, 0, stream);
          check_receive<float>(*group, 4, 0, stream);
        });
      });
    };
    CHECK(contains(error_of([](Communicator& group, Stream& stream) {
                     post_and_overwrite<float>(group, 4, 1, stream);
                     post_and_overwrite<float>(group, 6, 1, stream);
                   }),
                   "ranks of a group make different calls: rank 1 message 2 of 4 fp32, rank 0 "
                   "message 2 of 6 fp32"));
    CHECK(contains(error_of([](Communicator& group, Stream& stream) {
                     post_and_overwrite<bf16>(group, 4, 1, stream);
                   }),
                   "rank 1 message 1 of 4 fp32, rank 0 message 1 of 4 bf16"));
    CHECK(error_of([](Communicator& group, Stream& stream) {
            post_and_overwrite<float>(group, 4, 1, stream);
          }) == "rank 1: rank 0 has ended, and this rank waits for it");
  }

  TEST_CASE("a rank reports a post to a rank that has ended or failed") {
    for (const bool fails : {false, true}) {
      CAPTURE(fails);
      std::string text;
      const auto run = [&] {
        run_thread_ranks(2, [&](World& world) {
          Stream stream;
          const auto group = world.all();
          if (group->rank() == 1) return fails ? fail("out of paper") : void();
          text = complaint([&] {
            for (;;) post_and_overwrite<float>(*group, 4, 1, stream);
          });
        });
      };
      CHECK(complaint(run) == (fails ? "rank 1: out of paper" : ""));
      CHECK(text ==
            (fails ? "rank 1 has failed" : "rank 1 has ended without receiving this message"));
    }
  }

  TEST_CASE("a channel reports wrong use") {
    SingleRankWorld single;
    CHECK(contains(complaint([&] { Channel(single.all(), true); }),
                   "a channel has two ranks; group 'world' has 1"));
    run_thread_ranks(2, [](World& world) {
      Stream stream;
      const bool sends = world.rank() == 0;
      Channel channel(world.all(), sends);
      const Buffer<float> values(4);
      const auto x = make_tensor(values.data(), 4);
      const std::string text = complaint(
          [&] { sends ? channel.expect(x, stream) : static_cast<void>(channel.send(x, stream)); });
      require(text == (sends ? "this end of a channel sends" : "this end of a channel receives"),
              text);
      require(contains(complaint([&] { channel.arrive(stream); }), "no expected message"),
              "an arrival that is not expected is reported");
    });
  }

  TEST_CASE("wrong operands, ranks and groups are refused") {
    SingleRankWorld world;
    Stream stream;
    const auto group = world.all();
    const Buffer<float> values(8);
    fill_zero(values.data(), 8, stream);
    const auto x = make_tensor(values.data(), 4);
    CHECK(contains(complaint([&] { group->broadcast(x, 1, stream); }),
                   "group 'world' has the ranks 0 to 0, not 1"));
    CHECK(contains(complaint([&] { group->post(x, 0, stream); }),
                   "a rank sends no message to itself"));
    CHECK(contains(complaint([&] { group->receive(x, 0, stream); }),
                   "a rank sends no message to itself"));
    CHECK(contains(
        complaint([&] { group->all_gather<float>(x, make_tensor(values.data(), 3), stream); }),
        "tensor 'out' has shape (4), expected (3)"));
    CHECK(contains(complaint([&] { world.group("pair", {0, 1}); }), "group 'pair'"));
    const auto other = [] {
      run_thread_ranks(2, [](World& world) { world.group("other", {1 - world.rank()}); });
    };
    CHECK(contains(complaint(other), "is not in group 'other'"));
    const auto descending = [] {
      run_thread_ranks(2, [](World& world) { world.group("both", {1, 0}); });
    };
    CHECK(contains(complaint(descending), "the ranks of group 'both' are not ascending"));
  }

  TEST_CASE("NCCL needs a GPU per rank") {
    CHECK(llmc::missing_gpu_text({"a 1", "a 2", "b 1"}) == "");
    CHECK(llmc::missing_gpu_text({"a 1", "", "b 1"}) == "rank 1 has no GPU");
    CHECK(llmc::missing_gpu_text({"a 1", "a 2", "b 1", "a 2"}) == "ranks 1 and 3 share a GPU");
  }
}
