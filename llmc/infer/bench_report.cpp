#include "llmc/infer/bench_report.h"

#include <cmath>

#include "llmc/base/number_text.h"

namespace llmc {

double BenchResult::mean() const {
  double sum = 0;
  for (const double x : microseconds) sum += x;
  return sum / static_cast<double>(microseconds.size());
}

double BenchResult::stddev() const {
  double sum = 0;
  for (const double x : microseconds) sum += (x - mean()) * (x - mean());
  const auto n = static_cast<double>(microseconds.size());
  return n > 1 ? std::sqrt(sum / (n - 1)) : 0;
}

namespace {

std::vector<std::string> cells(const BenchResult& r, const BenchRoofs& roofs) {
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

std::string line_of(const std::vector<std::string>& row, bool markdown) {
  std::string line = markdown ? "|" : "";
  for (const std::string& cell : row) {
    line += markdown ? " " + cell + " |" : (line.empty() ? "" : ",") + cell;
  }
  return line + "\n";
}

}  // namespace

std::string bench_table(const std::vector<BenchResult>& results, const BenchRoofs& roofs,
                        BenchFormat format) {
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

Json bench_json(const BenchResult& r, const BenchRoofs& roofs) {
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
