// Time per operation: nesting, sums of parts, and no effect without a profiler.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "llmc/base/json.h"
#include "llmc/base/json_value.h"
#include "llmc/io/run_log.h"
#include "llmc/ops/gemm/matmul.h"
#include "llmc/train/watch/step_profiler.h"
#include "test/support.h"

TEST_SUITE_BEGIN("profiler");

namespace {

using llmc::Profiler;
using llmc::ProfileScope;
using llmc::Stream;
using llmc_test::contains;

// Work for the device: fills memory with zeros.
struct FillWork {
  llmc::Buffer<float> memory{4096};
  void operator()(Stream& stream) const { llmc::fill_zero(memory.data(), memory.size(), stream); }
};

// One step: two blocks of two parts each, and a head.
void profile_step_work(const FillWork& work, Stream& stream) {
  for (int block = 0; block < 2; ++block) {
    const ProfileScope scope("block", stream);
    {
      const ProfileScope part("attention", stream, {.flops = 0, .bytes = 100});
      work(stream);
    }
    const ProfileScope part("mlp", stream);
    work(stream);
    llmc::count_work({.flops = 50, .bytes = 0}, stream);
  }
  const ProfileScope scope("head", stream);
  work(stream);
}

void profile_steps(Profiler& profiler, int steps, const FillWork& work, Stream& stream) {
  for (int step = 0; step < steps; ++step) {
    profiler.begin_step(stream);
    profile_step_work(work, stream);
    profiler.end_step(stream);
  }
}

}  // namespace

TEST_CASE("each operation is counted under its parent") {
  Stream stream;
  const FillWork work;
  Profiler profiler;
  profile_steps(profiler, 3, work, stream);
  CHECK(profiler.steps() == 3);
  const std::vector<Profiler::Entry> entries = profiler.entries();
  std::vector<std::string> names;
  for (const auto& entry : entries) names.push_back(std::to_string(entry.depth) + entry.name);
  CHECK(names == std::vector<std::string>{"0step", "1block", "2attention", "2mlp", "1head"});
  const std::vector<std::int64_t> calls{3, 6, 6, 6, 3};
  for (std::size_t i = 0; i < entries.size(); ++i) CHECK(entries[i].calls == calls[i]);
  CHECK(entries[2].work.bytes == 600);
  CHECK(entries[3].work.flops == 300);
  CHECK(entries[3].parent == 1);
  CHECK(entries[4].parent == 0);
}

TEST_CASE("the times of the parts and the remaining time add up to the whole") {
  Stream stream;
  const FillWork work;
  Profiler profiler;
  profile_steps(profiler, 2, work, stream);
  const auto rows = llmc::profile_rows(profiler);
  std::vector<std::string> paths;
  std::map<std::string, double> milliseconds;
  for (const auto& row : rows) {
    paths.push_back(row.path);
    milliseconds[row.path] = row.milliseconds;
    // The rest is a difference of times, which a GPU's events measure as floats.
    CHECK(row.milliseconds >= -1e-6 * rows[0].milliseconds);
    CHECK(std::isfinite(row.fraction));
  }
  CHECK(paths == std::vector<std::string>{"step", "block", "block/attention", "block/mlp",
                                          "block/between operations", "head",
                                          "outside operations"});
  CHECK(milliseconds["block/attention"] > 0);
  CHECK(milliseconds["block/attention"] + milliseconds["block/mlp"] +
            milliseconds["block/between operations"] ==
        doctest::Approx(milliseconds["block"]));
  CHECK(milliseconds["block"] + milliseconds["head"] + milliseconds["outside operations"] ==
        doctest::Approx(milliseconds["step"]));
}

TEST_CASE("scopes have no effect without a profiler, and a step detaches its profiler") {
  Stream stream;
  const FillWork work;
  profile_step_work(work, stream);
  CHECK(stream.profiler() == nullptr);
  Profiler profiler;
  profile_steps(profiler, 1, work, stream);
  CHECK(stream.profiler() == nullptr);
  profile_step_work(work, stream);
  CHECK(profiler.entries()[1].calls == 2);
}

TEST_CASE("a trace has the calls of the last step, inside each other") {
  Stream stream;
  const FillWork work;
  Profiler profiler;
  profile_steps(profiler, 1, work, stream);
  CHECK(profiler.last_calls().empty());
  profiler.keep_calls();
  profile_steps(profiler, 2, work, stream);
  const std::vector<Profiler::Call>& calls = profiler.last_calls();
  std::vector<std::string> names;
  for (const auto& call : calls) names.push_back(call.name);
  CHECK(names == std::vector<std::string>{"step", "block", "attention", "mlp", "block", "attention",
                                          "mlp", "head"});
  CHECK(calls[0].begin == 0);
  for (const std::size_t block : {1, 4}) {
    CHECK(calls[block].begin <= calls[block + 1].begin);
    CHECK(calls[block + 1].end <= calls[block + 2].begin);
    CHECK(calls[block + 2].end <= calls[block].end);
    CHECK(calls[block].end <= calls[block + 3].begin);
  }
  CHECK(calls[7].end <= calls[0].end);
  const llmc::Json trace = llmc::parse_json(llmc::profile_trace(profiler), "trace");
  std::size_t boxes = 0;
  for (const llmc::Json& event : trace["traceEvents"]) {
    if (event["ph"].text() != "X") continue;
    CHECK(event["name"].text() == calls[boxes].name);
    const double begin = event["ts"].number(), end = begin + event["dur"].number();
    CHECK(std::abs(begin - 1000 * calls[boxes].begin) < 0.001);
    CHECK(std::abs(end - 1000 * calls[boxes].end) < 0.001);
    ++boxes;
  }
  CHECK(boxes == calls.size());
}

TEST_CASE("a matrix product counts its multiplications and additions") {
  Stream stream;
  llmc::Gemm gemm;
  llmc::Buffer<float> memory(8 * 16 + 16 * 24 + 8 * 24);
  llmc::fill_zero(memory.data(), memory.size(), stream);
  Profiler profiler;
  profiler.begin_step(stream);
  {
    const ProfileScope scope("product", stream);
    llmc::matmul(llmc::make_tensor(memory.data() + 8 * 16 + 16 * 24, 8, 24),
                 llmc::make_tensor(static_cast<const float*>(memory.data()), 8, 16),
                 llmc::Transpose::no,
                 llmc::make_tensor(static_cast<const float*>(memory.data()) + 8 * 16, 16, 24),
                 llmc::Transpose::no, 0.0f, static_cast<const float*>(nullptr), gemm, stream);
  }
  profiler.end_step(stream);
  CHECK(profiler.entries()[1].work.flops == 2.0 * 8 * 24 * 16);
}

TEST_CASE("an operation that fails leaves no scope open") {
  Stream stream;
  const FillWork work;
  Profiler profiler;
  profiler.begin_step(stream);
  CHECK(contains(llmc_test::complaint([&] {
                   const ProfileScope scope("failing", stream);
                   llmc::fail("it failed");
                 }),
                 "it failed"));
  profile_step_work(work, stream);
  profiler.end_step(stream);
  CHECK(profiler.entries().size() == 6);
}

TEST_CASE("a rate has the unit of the counted work") {
  const auto rate = [](double milliseconds, llmc::Work work) {
    return llmc::rate_text({.path = "x", .calls = 1, .milliseconds = milliseconds, .work = work});
  };
  CHECK(rate(2, {.flops = 9e9, .bytes = 0}) == "4.5 TFLOP/s");
  CHECK(rate(2, {.flops = 9e8, .bytes = 5}) == "450 GFLOP/s");
  CHECK(rate(2, {.flops = 0, .bytes = 5e6}) == "2.5 GB/s");
  CHECK(rate(2, {.flops = 0, .bytes = 6.2e9}) == "3.1 TB/s");
  CHECK(rate(2, {}).empty());
  CHECK(rate(0, {.flops = 1, .bytes = 0}).empty());
}

TEST_CASE("profiling starts at the second step and is reported once") {
  const llmc_test::TemporaryDirectory directory;
  const std::string out = directory.file("profile.jsonl");
  Stream stream;
  const FillWork work;
  llmc::StepProfiler step_profiler(2, out);
  std::vector<bool> reported;
  for (int step = 0; step < 5; ++step) {
    step_profiler.begin_step(stream);
    CHECK((stream.profiler() != nullptr) == (step == 1 || step == 2));
    profile_step_work(work, stream);
    const auto table = step_profiler.end_step(stream);
    reported.push_back(table.has_value());
    if (table) {
      CHECK(contains(*table, "profile of 2 steps, "));
      CHECK(contains(*table, "\n  mlp "));
      CHECK(contains(*table, "\noutside operations "));
    }
  }
  CHECK(reported == std::vector<bool>{false, false, true, false, false});
  CHECK_FALSE(step_profiler.end_run().has_value());

  const auto lines = llmc::read_log(out);
  REQUIRE(lines.size() == 7);
  CHECK(llmc::log_value(lines[0], "operation") == llmc::Scalar("step"));
  CHECK(llmc::log_value(lines[0], "steps").integer("steps") == 2);
  CHECK(llmc::log_value(lines[1], "calls_per_step").number("calls") == 2);
  CHECK(llmc::log_value(lines[2], "bytes_per_s").number("rate") > 0);
  CHECK(llmc::log_value(lines[3], "flop_per_s").number("rate") > 0);
}

TEST_CASE("a run that ends early reports the steps profiled so far") {
  Stream stream;
  const FillWork work;
  llmc::StepProfiler step_profiler(4, "");
  step_profiler.begin_step(stream);
  CHECK_FALSE(step_profiler.end_step(stream).has_value());
  CHECK(contains(step_profiler.end_run().value_or(""), "no second step"));
  step_profiler.begin_step(stream);
  profile_step_work(work, stream);
  CHECK_FALSE(step_profiler.end_step(stream).has_value());
  CHECK(contains(step_profiler.end_run().value_or(""), "profile of 1 step, "));

  llmc::StepProfiler disabled(0, "");
  disabled.begin_step(stream);
  CHECK(stream.profiler() == nullptr);
  CHECK_FALSE(disabled.end_step(stream).has_value());
  CHECK_FALSE(disabled.end_run().has_value());
}

TEST_SUITE_END();
