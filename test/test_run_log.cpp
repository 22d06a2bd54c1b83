// The run log: one JSON object per line, complete after each write, each step once after a resume.
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "llmc/io/run_log.h"
#include "test/support.h"

TEST_SUITE_BEGIN("run_log");

namespace {

using llmc_test::complaint;
}  // namespace

TEST_CASE("keys keep their order, numbers their values, and each line is written immediately") {
  const llmc_test::TemporaryDirectory directory;
  const std::string path = directory.file("deep/er/log.jsonl");
  llmc::RunLog log(path);
  CHECK(llmc::read_file(path).empty());
  log.write({{"step", 3}, {"loss", 2.6f}, {"lr", 3e-4}, {"alpha", 1.0}});
  CHECK(llmc::read_file(path) == "{\"step\":3,\"loss\":2.6,\"lr\":0.0003,\"alpha\":1.0}\n");
  log.write({{"step", std::int64_t{1} << 40},
             {"loss", std::nanf("")},
             {"up", INFINITY},
             {"down", -INFINITY},
             {"sample", "a\n\"b\"\t\xc3\xa9\xff"},
             {"ok", true},
             {"none", {}}});
  log.write({{"step", 5}, {"step", 6}});  // the later value counts
  log.write(llmc::LogRecord{{"tokens", ~std::uint64_t{0}}});
  const std::string text = llmc::read_file(path);
  CHECK(text.substr(text.find('\n') + 1) ==
        "{\"step\":1099511627776,\"loss\":null,\"up\":null,\"down\":null,"
        "\"sample\":\"a\\n\\\"b\\\"\\t\xc3\xa9\xef\xbf\xbd\",\"ok\":true,\"none\":null}\n"
        "{\"step\":6}\n"
        "{\"tokens\":18446744073709551615}\n");

  const auto records = llmc::read_log(path);
  REQUIRE(records.size() == 4);
  CHECK(records[0] == llmc::LogRecord{{"step", 3}, {"loss", 2.6}, {"lr", 3e-4}, {"alpha", 1.0}});
  CHECK(static_cast<float>(llmc::log_value(records[0], "loss").number("loss")) == 2.6f);
  CHECK(llmc::log_value(records[1], "loss").is_null());
  CHECK(llmc::log_value(records[1], "absent").is_null());
  CHECK(llmc::log_value(records[3], "tokens").unsigned_integer("tokens") == ~std::uint64_t{0});
}

TEST_CASE("floats and doubles are read back exactly") {
  const llmc_test::TemporaryDirectory directory;
  const auto values = llmc_test::random_floats(300, 5, 1e3);
  {
    llmc::RunLog log(directory.file("log"));
    for (const float x : values) {
      log.write({{"f", x * 1e-20f}, {"d", std::exp(static_cast<double>(x) * 0.1)}});
    }
  }
  const auto records = llmc::read_log(directory.file("log"));
  REQUIRE(records.size() == values.size());
  int num_wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    num_wrong += static_cast<float>(records[i][0].second.number("f")) != values[i] * 1e-20f;
    num_wrong += records[i][1].second.number("d") != std::exp(static_cast<double>(values[i]) * 0.1);
  }
  CHECK(num_wrong == 0);
}

TEST_CASE("a log is truncated or appended to") {
  const llmc_test::TemporaryDirectory directory;
  const std::string path = directory.file("log");
  llmc::RunLog(path).write({{"step", 1}});
  llmc::RunLog(path, true).write({{"step", 2}});
  CHECK(llmc::read_file(path) == "{\"step\":1}\n{\"step\":2}\n");
  llmc::RunLog(path, false).write({{"step", 3}});
  CHECK(llmc::read_file(path) == "{\"step\":3}\n");
  llmc::RunLog("/dev/null").write({{"step", 1}});
}

TEST_CASE("after a resume each step is in the log once") {
  const llmc_test::TemporaryDirectory directory;
  const std::string path = directory.file("log");
  const std::string header = "{\"model\":\"d12\"}\n";
  std::string text = header;
  for (int step = 1; step <= 6; ++step) {
    text += "{\"step\":" + std::to_string(step) + ",\"loss\": 1.50}\n";  // the space must be kept
    if (step % 2 == 0) text += "{\"step\":" + std::to_string(step) + ",\"val_loss\":2.5}\n";
  }
  const auto write = [&](const std::string& bytes) { std::ofstream(path) << bytes; };
  write(text + "{\"step\":7,\"lo");
  const auto result = llmc::trim_log(path, 4);
  CHECK(result.num_kept == 7);
  CHECK(result.num_dropped == 3);
  CHECK(result.num_damaged == 1);
  CHECK(llmc::read_file(path) == text.substr(0, text.find("{\"step\":5")));
  llmc::RunLog(path, true).write({{"step", 5}});
  CHECK(llmc::log_value(llmc::read_log(path).back(), "step").integer("step") == 5);

  // Nothing to drop: the file is not rewritten, unless its last line has no line end.
  const auto write_time = std::filesystem::last_write_time(path);
  const auto second_result = llmc::trim_log(path, 5);
  CHECK(second_result.num_kept == 8);
  CHECK(second_result.num_dropped + second_result.num_damaged == 0);
  CHECK(std::filesystem::last_write_time(path) == write_time);
  write("{\"step\":1}");
  CHECK(llmc::trim_log(path, 1).num_kept == 1);
  CHECK(llmc::read_file(path) == "{\"step\":1}\n");
  const std::string begin = "{\"step\":0,\"run\":\"started\"}\n";
  write(begin + "{\"step\":0,\"val_loss\":2.5}\n{\"step\":2,\"run\":\"resumed\"}\n");
  CHECK(llmc::trim_log(path, -1).num_dropped == 2);
  CHECK(llmc::read_file(path) == begin);
  write(std::string(100, '\0') + "\n{\"step\":1}\n[1]\n\n");  // a power cut may leave this
  CHECK(llmc::trim_log(path, 1).num_damaged == 3);
  CHECK(llmc::read_file(path) == "{\"step\":1}\n");
  write("");
  CHECK(llmc::trim_log(path, 1).num_kept == 0);
  CHECK(llmc::trim_log(directory.file("none"), 1).num_kept == 0);
  CHECK(!std::filesystem::exists(directory.file("none")));
  CHECK(llmc::trim_log("/dev/null", 1).num_kept == 0);
  CHECK(llmc::trim_log(path, 0).num_kept == 0);
}

TEST_CASE("the error for a log names the file, the line and the problem") {
  const llmc_test::TemporaryDirectory directory;
  const std::string path = directory.file("log");
  std::ofstream(path) << "{\"step\":1}\n{\"step\":2\n";
  CHECK(complaint([&] { llmc::read_log(path); }) ==
        path + " line 2 is not valid JSON (at byte 10)");
  std::ofstream(path) << "{\"step\":[1]}\n";
  CHECK(complaint([&] { llmc::read_log(path); }) == path + " line 1: step is not a string");
  CHECK(complaint([&] { llmc::read_log(directory.file("none")); }) ==
        "cannot open " + directory.file("none") + ": No such file or directory");
  CHECK(complaint([&] { llmc::RunLog{directory.path()}; }) ==
        "cannot write " + directory.path().string() + ": Is a directory");
  CHECK(complaint([&] {
          llmc::RunLog{path + "/x"};
        }).starts_with("cannot create the directory " + path));
  if (std::filesystem::exists("/dev/full")) {
    llmc::RunLog full("/dev/full");
    CHECK(complaint([&] {
            full.write({{"step", 1}});
          }).starts_with("cannot write /dev/full: No space left on device"));
  }
}

TEST_SUITE_END();
