// The measurements of --check-links and their report.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "llmc/comm/thread_ranks.h"
#include "llmc/train/run/check_links.h"
#include "test/support.h"

using namespace llmc;

namespace {

// Ranks on two machines, two on each, whose devices and pairs are equally fast.
LinkReport even_report() {
  LinkReport report;
  for (const char* host : {"node1", "node1", "node2", "node2"}) {
    report.places.push_back({host, host, "", "NVIDIA H100"});
    report.flops_per_s.push_back(400e12);
  }
  for (int first = 0; first < 4; ++first) {
    for (int second = first + 1; second < 4; ++second) {
      const bool one_machine = first / 2 == second / 2;
      report.pairs.push_back({first, second, 10, one_machine ? 200e9 : 20e9});
    }
  }
  report.all = {.latency_us = 30, .bytes_per_s = 18e9};
  report.bytes = 64 << 20;
  return report;
}

}  // namespace

TEST_SUITE("check_links") {
  TEST_CASE("rounds have every pair once and no rank twice") {
    for (const int ranks : {1, 2, 3, 4, 7, 8, 17}) {
      CAPTURE(ranks);
      std::set<std::pair<int, int>> pairs;
      for (const std::vector<LinkSpeed>& round : pair_rounds(ranks)) {
        std::set<int> members;
        for (const LinkSpeed& pair : round) {
          CHECK((0 <= pair.first && pair.first < pair.second && pair.second < ranks));
          CHECK(pairs.insert({pair.first, pair.second}).second);
          CHECK(members.insert(pair.first).second);
          CHECK(members.insert(pair.second).second);
        }
      }
      CHECK(static_cast<int>(pairs.size()) == ranks * (ranks - 1) / 2);
    }
  }

  TEST_CASE("equal devices and links have no slow part") {
    const LinkReport report = even_report();
    CHECK(slow_parts(report).empty());
    const std::string text = link_report_text(report);
    for (const char* phrase :
         {"rank 3          400.0 TFLOP/s node2, NVIDIA H100",
          "ranks 0-1       10.0 us       200 GB/s", "ranks 1-2       10.0 us       20 GB/s",
          "all 4 ranks     30.0 us       18 GB/s", "per rank (64 MiB)",
          "no device and no pair is more than 20% slower"}) {
      CAPTURE(text);
      CHECK(llmc_test::contains(text, phrase));
    }
  }

  TEST_CASE("a device and a pair below 80% of their median are named") {
    LinkReport report = even_report();
    report.flops_per_s[2] = 321e12;  // 80.25%
    report.pairs[1].bytes_per_s = 16.1e9;
    CHECK(slow_parts(report).empty());
    report.flops_per_s[2] = 300e12;
    report.pairs[1].bytes_per_s = 10e9;
    const std::vector<SlowPart> slow = slow_parts(report);
    REQUIRE(slow.size() == 2);
    CHECK(slow[0].name == "rank 2");
    CHECK(slow[0].reason ==
          "node2, NVIDIA H100: 300.0 TFLOP/s, 25% below the median of 400.0 TFLOP/s");
    CHECK(slow[1].name == "ranks 0-2");
    CHECK(slow[1].reason ==
          "node1, NVIDIA H100 and node2, NVIDIA H100: 10 GB/s, 50% below the median of 20 GB/s of "
          "pairs of two machines");
    CHECK(llmc_test::contains(link_report_text(report), "\nslow: rank 2 (node2, NVIDIA H100"));
    const LogRecord record = link_record(7, report);
    CHECK(log_value(record, "step") == Scalar(7));
    CHECK(log_value(record, "check_slow") == Scalar("rank 2, ranks 0-2"));
    CHECK(log_value(record, "check_pairs") == Scalar("0-1 0-2 0-3 1-2 1-3 2-3"));
    CHECK(log_value(record, "check_pair_gb_per_s") == Scalar("200 10 20 20 20 200"));
  }

  TEST_CASE("many ranks have one line for all pairs") {
    LinkReport report;
    for (int rank = 0; rank < 17; ++rank) {
      report.places.push_back({"node", "node", "", "CPU"});
      report.flops_per_s.push_back(5e10);
      for (int first = 0; first < rank; ++first) report.pairs.push_back({first, rank, 1, 2e9});
    }
    report.pairs[5].bytes_per_s = 1e9;
    const std::string text = link_report_text(report);
    CHECK(llmc_test::contains(text, "136 pairs: 1 GB/s to 2 GB/s, median 2 GB/s"));
    CHECK(!llmc_test::contains(text, "\n  ranks "));
    CHECK(llmc_test::contains(text, "\nslow: ranks 2-3 ("));
  }

  TEST_CASE("all ranks have one report, and ranks on one device measure in turn") {
    for (const int ranks : {1, 3, 4}) {
      CAPTURE(ranks);
      std::array<LinkReport, 4> reports;
      std::atomic<int> measuring = 0;
      std::atomic<bool> is_alone = true;
      run_thread_ranks(ranks, [&](World& world) {
        Exchange exchange(world);
        reports[world.rank()] = check_links(world, exchange, [&] {
          if (++measuring > 1) is_alone = false;
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          --measuring;
          return 1e9 * (world.rank() + 1);
        });
      });
      CHECK(is_alone);
      for (int rank = 0; rank < ranks; ++rank) {
        const LinkReport& report = reports[rank];
        CHECK(report.flops_per_s.at(rank) == 1e9 * (rank + 1));
        CHECK(link_report_text(report) == link_report_text(reports[0]));
        CHECK(std::ssize(report.pairs) == ranks * (ranks - 1) / 2);
        for (const LinkSpeed& pair : report.pairs) {
          CHECK((pair.latency_us > 0 && pair.bytes_per_s > 0));
        }
        CHECK((report.all.bytes_per_s > 0) == (ranks > 1));
      }
    }
  }
}
