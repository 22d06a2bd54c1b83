// The results of `infer_gpt2 bench` as a table and as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "llmc/base/json.h"
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

  double mean() const;
  // Standard deviation of the repetitions; 0 for one.
  double stddev() const;
  double gigabytes_per_second() const { return 1e-3 * bytes / mean(); }
  // Share of a bandwidth of `roof` GB/s.
  double percent_of(double roof) const { return 100 * gigabytes_per_second() / roof; }
};

// Bandwidths in GB/s with which that of a result is compared.
struct BenchRoofs {
  double copy = 0;  // of a copy in the same process
  double peak = 0;  // of the device's memory; 0: unknown
};

// The table, or an empty text for json, which bench_json() is.
std::string bench_table(const std::vector<BenchResult>& results, const BenchRoofs& roofs,
                        BenchFormat format);

// One result. The keys of energy and of the peak are null if they are unknown.
Json bench_json(const BenchResult& r, const BenchRoofs& roofs);

}  // namespace llmc
