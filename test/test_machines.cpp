// The machines of a run as text.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "llmc/comm/machines.h"

using namespace llmc;

namespace {

// The places of `count` ranks of a machine, each with its own GPU.
std::vector<RankPlace> machine(const std::string& host, int count,
                               const std::string& device = "NVIDIA H100") {
  std::vector<RankPlace> places;
  for (int gpu = 0; gpu < count; ++gpu) {
    places.push_back({host + " boot", host, std::to_string(gpu), device});
  }
  return places;
}

std::vector<RankPlace> joined(const std::vector<std::vector<RankPlace>>& machines) {
  std::vector<RankPlace> places;
  for (const auto& ranks : machines) places.insert(places.end(), ranks.begin(), ranks.end());
  return places;
}

std::string node(int number) {
  return "node" + std::string(number < 10 ? "0" : "") + std::to_string(number);
}

}  // namespace

TEST_SUITE("machines") {
  TEST_CASE("numbers are combined to ranges") {
    CHECK(range_text({}) == "");
    CHECK(range_text({3}) == "3");
    CHECK(range_text({0, 1, 2, 5, 7, 8}) == "0-2,5,7-8");
  }

  TEST_CASE("names of hosts are combined by their last number") {
    CHECK(host_list({"login"}) == "login");
    CHECK(host_list({"node07"}) == "node07");
    CHECK(host_list({"node09", "node10", "node08", "node40"}) == "node[08-10,40]");
    CHECK(host_list({"node9", "node10"}) == "node9, node10");  // other numbers of digits
    CHECK(host_list({"a1.x2", "a2.x2", "a1.x3", "login"}) == "a[1-2].x2, a1.x3, login");
    CHECK(host_list({"n123456789012", "n123456789013"}) == "n123[456789012-456789013]");
    CHECK(host_list({"12", "13"}) == "[12-13]");
  }

  TEST_CASE("a machine has a line with its ranks and GPUs") {
    CHECK(machines_text(machine("node07", 4)) == "machine node07: ranks 0-3, 4 x NVIDIA H100");
    CHECK(machines_text(joined({machine("a", 1), machine("b", 2, "NVIDIA A100")})) ==
          "machine a: rank 0, 1 x NVIDIA H100\nmachine b: ranks 1-2, 2 x NVIDIA A100");
  }

  TEST_CASE("ranks that share a GPU or have none") {
    std::vector<RankPlace> places = machine("a", 1);
    places.push_back(places[0]);
    CHECK(machines_text(places) == "machine a: ranks 0-1, 1 x NVIDIA H100");
    places[1].device = "NVIDIA A100";
    CHECK(machines_text(places) == "machine a: ranks 0-1, 1 x NVIDIA H100, 1 x NVIDIA A100");
    for (RankPlace& place : places) place.gpu = "", place.device = "EPYC";
    CHECK(machines_text(places) == "machine a: ranks 0-1, CPU (EPYC)");
  }

  TEST_CASE("machines with equal host names have a line each, and ranks may alternate") {
    const RankPlace first{"a boot 1", "a", "0", "X"}, second{"a boot 2", "a", "0", "X"};
    CHECK(machines_text({first, second, first, second}) ==
          "machine a: ranks 0,2, 1 x X\nmachine a: ranks 1,3, 1 x X");
  }

  TEST_CASE("64 machines take a line per kind, 8 machines a line each") {
    std::vector<std::vector<RankPlace>> machines;
    for (int i = 0; i < 8; ++i) machines.push_back(machine(node(i), 8));
    const std::string eight = machines_text(joined(machines));
    CHECK(eight.starts_with("machine node00: ranks 0-7, 8 x NVIDIA H100\nmachine node01: "));
    CHECK(std::ranges::count(eight, '\n') == 7);
    for (int i = 8; i < 64; ++i) machines.push_back(machine(node(i), 8));
    CHECK(machines_text(joined(machines)) ==
          "64 machines node[00-63]: 8 ranks each (0-511), 8 x NVIDIA H100 each");
    machines[5] = machine(node(5), 4);
    CHECK(machines_text(joined(machines)) ==
          "63 machines node[00-04,06-63]: 8 ranks each (0-39,44-507), 8 x NVIDIA H100 each\n"
          "machine node05: ranks 40-43, 4 x NVIDIA H100");
  }

  TEST_CASE("a place arrives as it was sent") {
    const RankPlace sent{"a boot", "a", "0000:3b:00.0", "NVIDIA H100"};
    const RankPlace place = unpack_place(pack_place(sent));
    CHECK(place.machine == sent.machine);
    CHECK(place.host == sent.host);
    CHECK(place.gpu == sent.gpu);
    CHECK(place.device == sent.device);
  }
}
