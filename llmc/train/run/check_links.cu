#include <algorithm>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "llmc/comm/rank_places.h"
#include "llmc/device/device.h"
#include "llmc/device/target.h"
#include "llmc/train/run/check_links.h"
#include "llmc/train/run/describe_ranks.h"

namespace llmc {

namespace {

constexpr int kMaxRanksInTurn = 16;
constexpr std::int64_t kLarge = std::int64_t{kCudaTarget ? 64 : 4} << 20;  // bytes

// The median time of an all-reduce of n numbers, in seconds.
double all_reduce_seconds(Communicator& group, std::int64_t n, int repeats, Stream& stream) {
  constexpr int kWarmUp = 2;  // connections and buffers are made in the first calls
  const Buffer<float> values(n);
  fill_zero(values.data(), n, stream);
  std::vector<double> times;
  for (int i = 0; i < kWarmUp + repeats; ++i) {
    group.barrier(stream);
    group.wait(stream);
    const auto begin = std::chrono::steady_clock::now();
    group.all_reduce(make_tensor(values.data(), n), stream);
    group.wait(stream);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    if (i >= kWarmUp) times.push_back(time.count());
  }
  std::ranges::nth_element(times, times.begin() + repeats / 2);
  return times[static_cast<std::size_t>(repeats) / 2];
}

// The FLOP/s of each rank. Ranks on the same device take turns.
std::vector<double> flops_of_ranks(Exchange& exchange,
                                   const std::function<double()>& measured_flops) {
  const std::vector<int> sharing = ranks_on_device(exchange);
  const auto turn = std::ranges::find(sharing, exchange.rank()) - sharing.begin();
  const std::vector<std::int64_t> counts = exchange.all_gather({std::ssize(sharing)});
  double own = 0;
  for (std::int64_t i = 0; i < std::ranges::max(counts); ++i) {
    if (i == turn) own = measured_flops();
    exchange.barrier();
  }
  std::vector<double> flops;
  for (const std::int64_t bits : exchange.all_gather({std::bit_cast<std::int64_t>(own)})) {
    flops.push_back(std::bit_cast<double>(bits));
  }
  return flops;
}

// Measures the pairs of this rank; the lower rank of each has the result.
void measure_pairs(World& world, Exchange& exchange, Stream& stream, LinkReport& report) {
  const bool in_turn = world.ranks() <= kMaxRanksInTurn;
  for (const std::vector<LinkSpeed>& round : pair_rounds(world.ranks())) {
    for (LinkSpeed pair : round) {
      const int first = pair.first, second = pair.second;
      if (world.rank() == first || world.rank() == second) {
        const std::string name =
            "check-links-" + std::to_string(first) + "-" + std::to_string(second);
        pair = measure_all_reduce(*world.group(name, {first, second}), stream);
      }
      pair.first = first;
      pair.second = second;
      if (world.rank() != first) pair.latency_us = pair.bytes_per_s = 0;
      report.pairs.push_back(pair);
      if (in_turn) exchange.barrier();
    }
    if (!in_turn) exchange.barrier();
  }
}

// Every rank gets the speeds of the pairs that other ranks measured.
void share_pairs(Exchange& exchange, LinkReport& report) {
  std::vector<std::int64_t> numbers;  // all but one rank have zeros
  for (const LinkSpeed& pair : report.pairs) {
    numbers.push_back(std::bit_cast<std::int64_t>(pair.latency_us));
    numbers.push_back(std::bit_cast<std::int64_t>(pair.bytes_per_s));
  }
  exchange.sum(numbers);
  for (std::size_t i = 0; i < report.pairs.size(); ++i) {
    report.pairs[i].latency_us = std::bit_cast<double>(numbers[2 * i]);
    report.pairs[i].bytes_per_s = std::bit_cast<double>(numbers[2 * i + 1]);
  }
  std::ranges::sort(report.pairs, {},
                    [](const LinkSpeed& pair) { return std::pair(pair.first, pair.second); });
}

}  // namespace

LinkSpeed measure_all_reduce(Communicator& group, Stream& stream) {
  constexpr int kSmallRepeats = 21, kLargeRepeats = 5;
  constexpr auto kNumber = static_cast<std::int64_t>(sizeof(float));
  LinkSpeed speed;
  speed.latency_us = 1e6 * all_reduce_seconds(group, 1, kSmallRepeats, stream);
  const double seconds = all_reduce_seconds(group, kLarge / kNumber, kLargeRepeats, stream);
  const double sent = 2.0 * (group.ranks() - 1) / group.ranks() * static_cast<double>(kLarge);
  speed.bytes_per_s = sent / seconds;
  return speed;
}

std::vector<std::vector<LinkSpeed>> pair_rounds(int ranks) {
  // A round-robin tournament: place 0 stays, the others rotate. An odd number gets an empty place.
  const int places = ranks + ranks % 2;
  std::vector<std::vector<LinkSpeed>> rounds;
  for (int round = 0; round + 1 < places; ++round) {
    const auto player = [&](int place) {
      return place == 0 ? 0 : 1 + (place - 1 + round) % (places - 1);
    };
    std::vector<LinkSpeed>& pairs = rounds.emplace_back();
    for (int place = 0; place < places / 2; ++place) {
      const int a = player(place), b = player(places - 1 - place);
      if (std::max(a, b) == ranks) continue;
      pairs.push_back({.first = std::min(a, b), .second = std::max(a, b)});
    }
  }
  return rounds;
}

LinkReport check_links(World& world, Exchange& exchange,
                       const std::function<double()>& measured_flops) {
  LinkReport report;
  report.bytes = kLarge;
  report.places = rank_places(exchange);
  report.flops_per_s = flops_of_ranks(exchange, measured_flops);
  if (world.ranks() == 1) return report;
  Stream stream;
  measure_pairs(world, exchange, stream, report);
  share_pairs(exchange, report);
  report.all = measure_all_reduce(*world.all("check-links-all"), stream);
  report.all.latency_us = exchange.broadcast(report.all.latency_us);
  report.all.bytes_per_s = exchange.broadcast(report.all.bytes_per_s);
  return report;
}

}  // namespace llmc
