#include "llmc/train/run/link_report.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "llmc/base/number_text.h"

namespace llmc {

namespace {

constexpr double kSlow = 0.8;                // fraction of the median
constexpr std::size_t kMaxListedRanks = 16;  // whose pairs are all printed

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// "312.0 TFLOP/s", "85.3 GFLOP/s"
std::string flops_text(double flops) {
  constexpr double kTera = 1e12;
  if (flops >= kTera) return number_text("%.1f TFLOP/s", flops / kTera);
  return number_text("%.1f GFLOP/s", flops * 1e-9);
}

std::string bandwidth_text(double bytes_per_s) {
  return number_text("%.3g GB/s", bytes_per_s * 1e-9);
}

std::string pair_name(const LinkSpeed& pair) {
  return "ranks " + std::to_string(pair.first) + "-" + std::to_string(pair.second);
}

bool on_one_machine(const LinkReport& report, const LinkSpeed& pair) {
  return report.places[static_cast<std::size_t>(pair.first)].machine ==
         report.places[static_cast<std::size_t>(pair.second)].machine;
}

std::string below_text(double value, double typical) {
  return number_text("%.0f%% below the median of ", 100 * (1 - value / typical));
}

std::string column(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

std::string speed_line(const std::string& name, const LinkSpeed& speed) {
  return "\n  " + column(name, 16) + column(number_text("%.1f us", speed.latency_us), 14) +
         bandwidth_text(speed.bytes_per_s);
}

// "\n  120 pairs: ..." instead of a line for each pair.
std::string range_of_pairs(const LinkReport& report) {
  std::vector<double> speeds;
  for (const LinkSpeed& pair : report.pairs) speeds.push_back(pair.bytes_per_s);
  return "\n  " + std::to_string(speeds.size()) +
         " pairs: " + bandwidth_text(std::ranges::min(speeds)) + " to " +
         bandwidth_text(std::ranges::max(speeds)) + ", median " + bandwidth_text(median(speeds));
}

}  // namespace

std::vector<SlowPart> slow_parts(const LinkReport& report) {
  std::vector<SlowPart> slow;
  const double typical = median(report.flops_per_s);
  for (std::size_t rank = 0; rank < report.flops_per_s.size(); ++rank) {
    const double flops = report.flops_per_s[rank];
    if (flops >= kSlow * typical) continue;
    slow.push_back({"rank " + std::to_string(rank),
                    place_text(report.places[rank]) + ": " + flops_text(flops) + ", " +
                        below_text(flops, typical) + flops_text(typical)});
  }
  for (const bool one_machine : {true, false}) {
    std::vector<double> speeds;
    for (const LinkSpeed& pair : report.pairs) {
      if (on_one_machine(report, pair) == one_machine) speeds.push_back(pair.bytes_per_s);
    }
    const double typical_speed = median(speeds);
    for (const LinkSpeed& pair : report.pairs) {
      if (on_one_machine(report, pair) != one_machine) continue;
      if (pair.bytes_per_s >= kSlow * typical_speed) continue;
      slow.push_back(
          {pair_name(pair),
           place_text(report.places[static_cast<std::size_t>(pair.first)]) + " and " +
               place_text(report.places[static_cast<std::size_t>(pair.second)]) + ": " +
               bandwidth_text(pair.bytes_per_s) + ", " +
               below_text(pair.bytes_per_s, typical_speed) + bandwidth_text(typical_speed) +
               (one_machine ? " of pairs on one machine" : " of pairs of two machines")});
    }
  }
  return slow;
}

std::string link_report_text(const LinkReport& report) {
  std::string text = "check of links: matrix products";
  for (std::size_t rank = 0; rank < report.places.size(); ++rank) {
    text += "\n  " + column("rank " + std::to_string(rank), 16) +
            column(flops_text(report.flops_per_s[rank]), 14) + place_text(report.places[rank]);
  }
  if (!report.pairs.empty()) {
    text += number_text("\ncheck of links: all-reduce, latency and bandwidth per rank (%.0f MiB)",
                        static_cast<double>(report.bytes) / (1 << 20));
    if (report.places.size() > kMaxListedRanks) {
      text += range_of_pairs(report);
    } else {
      for (const LinkSpeed& pair : report.pairs) text += speed_line(pair_name(pair), pair);
    }
    if (report.places.size() > 2) {
      text += speed_line("all " + std::to_string(report.places.size()) + " ranks", report.all);
    }
  }
  if (report.places.size() == 1) return text;
  const std::vector<SlowPart> slow = slow_parts(report);
  for (const SlowPart& part : slow) text += "\nslow: " + part.name + " (" + part.reason + ")";
  if (slow.empty()) text += "\nno device and no pair is more than 20% slower than the median";
  return text;
}

LogRecord link_record(std::int64_t step, const LinkReport& report) {
  std::string flops, pairs, latencies, speeds, slow;
  const auto add = [](std::string& list, const std::string& word, const char* separator = " ") {
    list += (list.empty() ? "" : separator) + word;
  };
  for (const double value : report.flops_per_s) add(flops, number_text("%.4g", value * 1e-12));
  for (const LinkSpeed& pair : report.pairs) {
    add(pairs, std::to_string(pair.first) + "-" + std::to_string(pair.second));
    add(latencies, number_text("%.4g", pair.latency_us));
    add(speeds, number_text("%.4g", pair.bytes_per_s * 1e-9));
  }
  for (const SlowPart& part : slow_parts(report)) add(slow, part.name, ", ");
  LogRecord record = {
      {"step", step}, {"check_links", std::ssize(report.places)}, {"check_tflops_ranks", flops}};
  if (report.pairs.empty()) return record;
  const LogRecord links = {{"check_pairs", pairs},
                           {"check_pair_us", latencies},
                           {"check_pair_gb_per_s", speeds},
                           {"check_all_us", report.all.latency_us},
                           {"check_all_gb_per_s", report.all.bytes_per_s * 1e-9},
                           {"check_slow", slow}};
  record.insert(record.end(), links.begin(), links.end());
  return record;
}

}  // namespace llmc
