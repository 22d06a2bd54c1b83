// The lock on a run log: one run at a time, whatever happens to the file.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "llmc/io/run_log.h"
#include "llmc/train/run/log_lock.h"
#include "test/support.h"

using namespace llmc;
using llmc_test::complaint;
using llmc_test::contains;

TEST_SUITE("log_lock") {
  TEST_CASE("a second run cannot lock a log, and the error names it") {
    const llmc_test::TemporaryDirectory directory;
    const std::string path = directory.file("deep/log.jsonl");
    {
      const LogLock lock(path);
      RunLog(path).write({{"step", 1}});  // its own run writes
      const std::string error = complaint([&] { const LogLock second(path); });
      CHECK(contains(error, "another run is writing into --log " + path));
      CHECK(read_file(path) == "{\"step\":1}\n");
    }
    const LogLock later(path);
    CHECK(read_file(path) == "{\"step\":1}\n");
  }

  TEST_CASE("only an empty log that the lock created is removed") {
    const llmc_test::TemporaryDirectory directory;
    const std::string own = directory.file("own"), other = directory.file("other");
    write_file(other, "");
    {
      const LogLock a(own), b(other);
      CHECK(path_exists(own));
    }
    CHECK(!path_exists(own));
    CHECK(path_exists(other));
    {
      const LogLock lock(own);
      RunLog(own).write({{"step", 1}});
    }
    CHECK(path_exists(own));
  }

  TEST_CASE("a failed lock does not remove the log of the other run") {
    const llmc_test::TemporaryDirectory directory;
    const std::string path = directory.file("log");
    const LogLock lock(path);
    CHECK(contains(complaint([&] { const LogLock second(path); }), "another run"));
    CHECK(path_exists(path));
  }

  TEST_CASE("the lock follows the log that trim_log has replaced") {
    const llmc_test::TemporaryDirectory directory;
    const std::string path = directory.file("log");
    write_file(path, "{\"step\":1}\n{\"step\":2}\n");
    LogLock lock(path);
    REQUIRE(trim_log(path, 1).num_dropped == 1);
    lock.renew();
    lock.renew();  // nothing changes
    CHECK(contains(complaint([&] { const LogLock second(path); }), "another run"));
  }

  TEST_CASE("a run that locked the new log first keeps it") {
    const llmc_test::TemporaryDirectory directory;
    const std::string path = directory.file("log");
    write_file(path, "{\"step\":1}\n{\"step\":2}\n");
    LogLock lock(path);
    trim_log(path, 1);
    const LogLock second(path);
    CHECK(contains(complaint([&] { lock.renew(); }), "another run"));
  }

  TEST_CASE("devices, pipes and an empty path are not locked") {
    const llmc_test::TemporaryDirectory directory;
    const std::string pipe = directory.file("pipe");
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    for (const std::string& path : {std::string("/dev/null"), pipe, std::string()}) {
      LogLock first(path), second(path);
      first.renew();
    }
    CHECK(path_exists(pipe));
  }

  TEST_CASE("a log that cannot be written is an error with its name") {
    const llmc_test::TemporaryDirectory directory;
    write_file(directory.file("file"), "x");
    const std::string path = directory.file("file/log");
    CHECK(contains(complaint([&] { const LogLock lock(path); }), "file"));
  }
}
