// Time per operation: nesting, sums of parts, and no effect without a profiler.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "llmc/ops/gemm/matmul.h"
#include "llmc/train/watch/profiling.h"
#include "test/support.h"

TEST_SUITE_BEGIN("profiler");

namespace {

using llmc::Profiler;
using llmc::ProfileScope;
using llmc::Stream;
using llmc_test::contains;

// Some work for the device: fills memory with zeros.
struct Chore {
  llmc::Buffer<float> memory{4096};
  void operator()(Stream& stream) const { llmc::fill_zero(memory.data(), memory.size(), stream); }
};

// One step: two lessons of two parts each, and a pause.
void school_day(const Chore& chore, Stream& stream) {
  for (int lesson = 0; lesson < 2; ++lesson) {
    const ProfileScope scope("lesson", stream);
    {
      const ProfileScope part("reading", stream, {.flops = 0, .bytes = 100});
      chore(stream);
    }
    const ProfileScope part("writing", stream);
    chore(stream);
    llmc::count_work({.flops = 50, .bytes = 0}, stream);
  }
  const ProfileScope scope("pause", stream);
  chore(stream);
}

void profile_days(Profiler& profiler, int days, const Chore& chore, Stream& stream) {
  for (int day = 0; day < days; ++day) {
    profiler.begin_step(stream);
    school_day(chore, stream);
    profiler.end_step(stream);
  }
}

}  // namespace

TEST_CASE("operations are counted where they nest") {
  Stream stream;
  const Chore chore;
  Profiler profiler;
  profile_days(profiler, 3, chore, stream);
  CHECK(profiler.steps() == 3);
  const std::vector<Profiler::Entry> entries = profiler.entries();
  std::vector<std::string> names;
  for (const auto& entry : entries) names.push_back(std::to_string(entry.depth) + entry.name);
  CHECK(names == std::vector<std::string>{"0step", "1lesson", "2reading", "2writing", "1pause"});
  const std::vector<std::int64_t> calls{3, 6, 6, 6, 3};
  for (std::size_t i = 0; i < entries.size(); ++i) CHECK(entries[i].calls == calls[i]);
  CHECK(entries[2].work.bytes == 600);
  CHECK(entries[3].work.flops == 300);
  CHECK(entries[3].parent == 1);
  CHECK(entries[4].parent == 0);
}

TEST_CASE("parts take no longer than the whole, and the rest is shown") {
  Stream stream;
  const Chore chore;
  Profiler profiler;
  profile_days(profiler, 2, chore, stream);
  const auto rows = llmc::profile_rows(profiler);
  std::vector<std::string> paths;
  std::map<std::string, double> milliseconds;
  for (const auto& row : rows) {
    paths.push_back(row.path);
    milliseconds[row.path] = row.milliseconds;
    // The rest is a difference of times, which a GPU's events measure as floats.
    CHECK(row.milliseconds >= -1e-6 * rows[0].milliseconds);
    CHECK(std::isfinite(row.share));
  }
  CHECK(paths == std::vector<std::string>{"step", "lesson", "lesson/reading", "lesson/writing",
                                          "lesson/between operations", "pause",
                                          "outside operations"});
  CHECK(milliseconds["lesson/reading"] > 0);
  CHECK(milliseconds["lesson/reading"] + milliseconds["lesson/writing"] +
            milliseconds["lesson/between operations"] ==
        doctest::Approx(milliseconds["lesson"]));
  CHECK(milliseconds["lesson"] + milliseconds["pause"] + milliseconds["outside operations"] ==
        doctest::Approx(milliseconds["step"]));
}

TEST_CASE("without a profiler scopes do nothing; after a step there is none") {
  Stream stream;
  const Chore chore;
  school_day(chore, stream);
  CHECK(stream.profiler() == nullptr);
  Profiler profiler;
  profile_days(profiler, 1, chore, stream);
  CHECK(stream.profiler() == nullptr);
  school_day(chore, stream);
  CHECK(profiler.entries()[1].calls == 2);
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
  const Chore chore;
  Profiler profiler;
  profiler.begin_step(stream);
  CHECK(contains(llmc_test::complaint([&] {
                   const ProfileScope scope("failing", stream);
                   llmc::fail("it failed");
                 }),
                 "it failed"));
  school_day(chore, stream);
  profiler.end_step(stream);
  CHECK(profiler.entries().size() == 6);
}

TEST_CASE("a rate has the unit of what was counted") {
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

TEST_CASE("steps are watched from the second on, and reported once") {
  const llmc_test::TemporaryDirectory directory;
  const std::string out = directory.file("profile.jsonl");
  Stream stream;
  const Chore chore;
  llmc::Profiling profiling(2, out);
  std::vector<bool> reported;
  for (int step = 0; step < 5; ++step) {
    profiling.begin_step(stream);
    CHECK((stream.profiler() != nullptr) == (step == 1 || step == 2));
    school_day(chore, stream);
    const auto table = profiling.end_step(stream);
    reported.push_back(table.has_value());
    if (table) {
      CHECK(contains(*table, "profile of 2 steps, "));
      CHECK(contains(*table, "\n  writing "));
      CHECK(contains(*table, "\noutside operations "));
    }
  }
  CHECK(reported == std::vector<bool>{false, false, true, false, false});
  CHECK_FALSE(profiling.end_run().has_value());

  const auto lines = llmc::read_log(out);
  REQUIRE(lines.size() == 7);
  CHECK(llmc::log_value(lines[0], "operation") == llmc::Scalar("step"));
  CHECK(llmc::log_value(lines[0], "steps").integer("steps") == 2);
  CHECK(llmc::log_value(lines[1], "calls_per_step").number("calls") == 2);
  CHECK(llmc::log_value(lines[2], "bytes_per_s").number("rate") > 0);
  CHECK(llmc::log_value(lines[3], "flop_per_s").number("rate") > 0);
}

TEST_CASE("a run that ends early says what it has") {
  Stream stream;
  const Chore chore;
  llmc::Profiling profiling(4, "");
  profiling.begin_step(stream);
  CHECK_FALSE(profiling.end_step(stream).has_value());
  CHECK(contains(profiling.end_run().value_or(""), "no second step"));
  profiling.begin_step(stream);
  school_day(chore, stream);
  CHECK_FALSE(profiling.end_step(stream).has_value());
  CHECK(contains(profiling.end_run().value_or(""), "profile of 1 step, "));

  llmc::Profiling off(0, "");
  off.begin_step(stream);
  CHECK(stream.profiler() == nullptr);
  CHECK_FALSE(off.end_step(stream).has_value());
  CHECK_FALSE(off.end_run().has_value());
}

TEST_SUITE_END();
