// The results of `infer_gpt2 bench` as a table and as JSON.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "llmc/base/json.h"
#include "llmc/base/number_text.h"
#include "llmc/config/infer_settings.h"
#include "llmc/device/mean_power.h"

namespace llmc {

// A row of the table. Times are of one repetition, divided by its tokens of all sequences.
struct BenchResult {
  std::string test{};
  std::int64_t batch = 0, tokens = 0, position = 0;
  std::vector<double> microseconds{};  // per token, one per repetition
  double bytes = 0;                    // that must be read, per token; 0: not limited by memory
  std::optional<MeanPower> power{};    // of the GPU during the test
  double joules = 0;                   // per token; undefined without `power`

  double mean() const {
    double sum = 0;
    for (const double x : microseconds) sum += x;
    return sum / static_cast<double>(microseconds.size());
  }
  // Standard deviation of the repetitions; 0 for one.
  double stddev() const {
    double sum = 0;
    for (const double x : microseconds) sum += (x - mean()) * (x - mean());
    const auto n = static_cast<double>(microseconds.size());
    return n > 1 ? std::sqrt(sum / (n - 1)) : 0;
  }
  double gigabytes_per_second() const { return 1e-3 * bytes / mean(); }
  // Share of a bandwidth of `roof` GB/s.
  double percent_of(double roof) const { return 100 * gigabytes_per_second() / roof; }
};

// Bandwidths in GB/s with which that of a result is compared.
struct BenchRoofs {
  double copy = 0;  // of a copy in the same process
  double peak = 0;  // of the device's memory; 0: unknown
};

namespace bench_report_detail {

inline std::vector<std::string> cells(const BenchResult& r, const BenchRoofs& roofs) {
  const bool is_step = r.bytes > 0;
  return {r.test,
          std::to_string(r.batch),
          std::to_string(r.tokens),
          r.test == "step" ? std::to_string(r.position) : "-",
          number_text("%.1f", r.mean()),
          number_text("%.1f", r.stddev()),
          number_text("%.1f", 1e6 / r.mean()),
          is_step ? number_text("%.1f", r.gigabytes_per_second()) : "-",
          is_step ? number_text("%.1f", r.percent_of(roofs.copy)) : "-",
          is_step && roofs.peak > 0 ? number_text("%.1f", r.percent_of(roofs.peak)) : "-",
          r.power ? number_text("%.3f", 1e3 * r.joules) : "-"};
}

inline std::string line_of(const std::vector<std::string>& row, bool markdown) {
  std::string line = markdown ? "|" : "";
  for (const std::string& cell : row) {
    line += markdown ? " " + cell + " |" : (line.empty() ? "" : ",") + cell;
  }
  return line + "\n";
}

}  // namespace bench_report_detail

// The table, or an empty text for json, which bench_json() is.
inline std::string bench_table(const std::vector<BenchResult>& results, const BenchRoofs& roofs,
                               BenchFormat format) {
  using namespace bench_report_detail;
  if (format == BenchFormat::json) return {};
  const bool markdown = format == BenchFormat::md;
  const std::vector<std::string> titles = {"test",      "batch", "tokens",  "position",
                                           "us/token",  "sd",    "tok/s",   "GB/s",
                                           "% of copy", "MBU %", "mJ/token"};
  std::string text = line_of(titles, markdown);
  if (markdown) text += line_of(std::vector<std::string>(titles.size(), "---"), true);
  for (const BenchResult& result : results) text += line_of(cells(result, roofs), markdown);
  return text;
}

// One result. The keys of energy and of the peak are null if they are unknown.
inline Json bench_json(const BenchResult& r, const BenchRoofs& roofs) {
  Json json = {{"test", r.test},
               {"batch", r.batch},
               {"tokens", r.tokens},
               {"us_per_token", r.mean()},
               {"us_per_token_sd", r.stddev()},
               {"tokens_per_second", 1e6 / r.mean()},
               {"samples_us", r.microseconds}};
  if (r.test == "step") json["position"] = r.position;
  if (r.bytes > 0) {
    json["gb_per_second"] = r.gigabytes_per_second();
    json["percent_of_copy"] = r.percent_of(roofs.copy);
    json["mbu_percent"] = nullptr;
    if (roofs.peak > 0) json["mbu_percent"] = r.percent_of(roofs.peak);
  }
  json["joules_per_token"] = nullptr;
  json["watts"] = nullptr;
  json["energy_source"] = nullptr;
  if (r.power) {
    json["joules_per_token"] = r.joules;
    json["watts"] = r.power->watts;
    json["energy_source"] = power_source_name(r.power->source);
  }
  return json;
}

}  // namespace llmc
