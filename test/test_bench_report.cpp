// The table and the JSON of `infer_gpt2 bench`.
#include <string>
#include <vector>

#include "llmc/infer/bench_report.h"
#include "test/support.h"

TEST_SUITE_BEGIN("bench_report");

namespace {

using llmc::BenchFormat;
using llmc::BenchResult;

constexpr llmc::BenchRoofs kRoofs = {.copy = 1000, .peak = 2000};

// 1000 MB in 2 ms, half of a copy of 1000 GB/s.
BenchResult step_result() {
  return {.test = "step",
          .batch = 8,
          .tokens = 32,
          .position = 512,
          .microseconds = {1900, 2100},
          .bytes = 1e9,
          .power = llmc::MeanPower{400, llmc::PowerSource::power_readings},
          .joules = 0.8};
}

}  // namespace

TEST_CASE("a table has time, speed, bandwidth and energy per token") {
  BenchResult prompt{.test = "prompt", .batch = 1, .tokens = 16, .microseconds = {50}};
  CHECK(llmc::bench_table({prompt, step_result()}, kRoofs, BenchFormat::csv) ==
        "test,batch,tokens,position,us/token,sd,tok/s,GB/s,% of copy,MBU %,mJ/token\n"
        "prompt,1,16,-,50.0,0.0,20000.0,-,-,-,-\n"
        "step,8,32,512,2000.0,141.4,500.0,500.0,50.0,25.0,800.000\n");
  const std::string table = llmc::bench_table({prompt}, kRoofs, BenchFormat::md);
  CHECK(
      llmc_test::contains(table, "| prompt | 1 | 16 | - | 50.0 | 0.0 | 20000.0 | - | - | - | - |"));
  CHECK(llmc::bench_table({prompt}, kRoofs, BenchFormat::json).empty());
}

TEST_CASE("the JSON of a result names the sensor of its energy, or has null") {
  llmc::Json json = llmc::bench_json(step_result(), kRoofs);
  CHECK(json["joules_per_token"] == 0.8);
  CHECK(json["watts"] == 400);
  CHECK(json["energy_source"] == "power readings");
  CHECK(json["percent_of_copy"].number() == doctest::Approx(50));
  CHECK(json["mbu_percent"].number() == doctest::Approx(25));
  CHECK(json["position"] == 512);

  BenchResult host = step_result();
  host.power.reset();
  json = llmc::bench_json(host, {.copy = 1000});
  for (const char* key : {"joules_per_token", "watts", "energy_source", "mbu_percent"})
    CHECK(json[key].is_null());
}
