// How a run ends early, as all ranks agree, and OUT/status.json.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/process_clock.h"
#include "llmc/train/run/run_status.h"
#include "llmc/train/run/stop_agreement.h"
#include "test/support.h"

using namespace llmc;
using namespace llmc_test;

namespace {

std::string status_of(const std::filesystem::path& out) {
  return read_file(out / kStatusFile);
}

Json json_of(const std::filesystem::path& out) {
  return parse_json(status_of(out), "the status");
}

}  // namespace

TEST_SUITE("run_end") {
  TEST_CASE("the age of the process grows with the time") {
    const double before = seconds_since_process_start();
    CHECK(before >= -0.02);  // the kernel counts in ticks
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK(seconds_since_process_start() - before >= 0.045);
  }

  TEST_CASE("the limit of minutes counts after the first step, on rank 0") {
    Exchange exchange;
    StopAgreement short_run(exchange, 1e-9), endless(exchange, 0), long_run(exchange, 1e9);
    CHECK(!short_run.agree());
    for (StopAgreement* stop : {&short_run, &endless, &long_run}) stop->begin_time_limit();
    CHECK(short_run.agree());
    CHECK(short_run.reason() == "--stop-after-minutes 1e-09");
    CHECK(!short_run.failed());
    CHECK(!endless.agree());
    CHECK(!long_run.agree());
  }

  TEST_CASE("what ranks know is combined: the time, a failure") {
    Exchange exchange;
    StopAgreement first(exchange, 1e-9), second(exchange, 0), other(exchange, 0);
    first.begin_time_limit();
    second.report_failure();
    CHECK(other.settle(std::vector<std::int64_t>{0, first.own(), 0}));
    CHECK(!other.failed());
    CHECK(other.settle(std::vector<std::int64_t>{first.own(), second.own()}));
    CHECK(other.failed());
    CHECK(first.own() != second.own());
  }

  TEST_CASE("the status of a run from its start to its end") {
    const TemporaryDirectory folder;
    const std::filesystem::path out = folder.path();
    {
      RunStatus status(out, {.step = 2, .steps = 9, .checkpoint = "run/step_000002"});
      const std::string text = status.begin();
      CHECK(status_of(out) == text);
      CHECK(json_of(out)["status"].text() == "running");
      CHECK(json_of(out)["exit_code"].is_null());
      CHECK(json_of(out)["step"].number() == 2);
      status.set_progress({.step = 5, .steps = 9});
      status.stop("SIGTERM");
      status.fail(1, "too late");
    }
    const Json stopped = json_of(out);
    CHECK(stopped["status"].text() == "stopped");
    CHECK(stopped["step"].number() == 5);
    CHECK(stopped["steps"].number() == 9);
    CHECK(stopped["exit_code"].number() == 0);
    CHECK(stopped["reason"].text() == "SIGTERM");
    CHECK(stopped["checkpoint"].is_null());
    CHECK(stopped["time"].text().size() == 20);
    check_status_file(out);
    RunStatus second(out, {});
    second.begin();
    second.fail(2, "a \"reason\"\nof two lines \xff");
    const Json failed = json_of(out);
    CHECK(failed["status"].text() == "failed");
    CHECK(failed["exit_code"].number() == 2);
    CHECK(failed["reason"].text() == "a \"reason\"\nof two lines \xef\xbf\xbd");
    RunStatus third(out, {});
    third.begin();
    third.finish();
    CHECK(json_of(out)["status"].text() == "finished");
    CHECK(json_of(out)["reason"].is_null());
  }

  TEST_CASE("without a folder nothing is written") {
    RunStatus status("", {});
    CHECK(status.begin() == "");
    status.finish();
    status.fail(1, "an error");
    CHECK(!std::filesystem::exists(kStatusFile));
  }

  TEST_CASE("a run that ended writes no status, and a new one removes temporary files") {
    const TemporaryDirectory folder;
    write_file(folder.path() / "status.json.tmp-1a2b3c4d", "torn");
    write_file(folder.path() / "status.json.tmp-mine", "another file");
    auto status = std::make_unique<RunStatus>(folder.path(), RunProgress{});
    status->begin();
    CHECK(!std::filesystem::exists(folder.path() / "status.json.tmp-1a2b3c4d"));
    CHECK(std::filesystem::exists(folder.path() / "status.json.tmp-mine"));
    status.reset();
    CHECK(json_of(folder.path())["status"].text() == "running");
  }

  TEST_CASE("a rank that fails writes the error, unless another rank or another run has written") {
    const TemporaryDirectory folder;
    const std::filesystem::path& out = folder.path();
    RunStatus rank0(out, {.steps = 9}), rank1(out, {.step = 3, .steps = 9}), rank2(out, {});
    rank2.fail(1, "before rank 0 has written");
    CHECK(!std::filesystem::exists(out / kStatusFile));
    const std::string text = rank0.begin();
    rank1.join(text);
    rank2.join(text);
    rank1.fail(1, "rank 1: no disk");
    rank2.fail(2, "rank 2: rank 1 has ended");
    rank0.fail(2, "rank 0: rank 1 has ended");
    CHECK(json_of(out)["reason"].text() == "rank 1: no disk");
    CHECK(json_of(out)["status"].text() == "failed");
    CHECK(json_of(out)["step"].number() == 3);
    RunStatus later(out, {.steps = 7});
    const std::string later_text = later.begin();
    RunStatus old(out, {});
    old.join(text);
    old.fail(1, "a rank of the run before");
    CHECK(status_of(out) == later_text);
  }

  TEST_CASE("another file of the name is refused") {
    const TemporaryDirectory folder;
    check_status_file(folder.path());  // none
    for (const char* text : {"", "text", "[]", "{\"status\": \"good\", \"step\": 1}",
                             "{\"status\": 1, \"step\": 1}", "{\"status\": \"stopped\"}"}) {
      write_file(folder.path() / kStatusFile, text);
      CHECK_THROWS_WITH_AS(
          check_status_file(folder.path()),
          doctest::Contains("status.json is not the status of a run, and a run would overwrite it"),
          Error);
      CHECK(status_of(folder.path()) == text);
    }
    std::filesystem::remove(folder.path() / kStatusFile);
    std::filesystem::create_directory(folder.path() / kStatusFile);
    CHECK_THROWS_AS(check_status_file(folder.path()), Error);
  }
}
