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

TEST_CASE("keys keep their order, numbers their value, lines are there at once") {
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

TEST_CASE("floats and doubles survive the text") {
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
  int wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    wrong += static_cast<float>(records[i][0].second.number("f")) != values[i] * 1e-20f;
    wrong += records[i][1].second.number("d") != std::exp(static_cast<double>(values[i]) * 0.1);
  }
  CHECK(wrong == 0);
}

TEST_CASE("a log is started anew or continued") {
  const llmc_test::TemporaryDirectory directory;
  const std::string path = directory.file("log");
  llmc::RunLog(path).write({{"step", 1}});
  llmc::RunLog(path, true).write({{"step", 2}});
  CHECK(llmc::read_file(path) == "{\"step\":1}\n{\"step\":2}\n");
  llmc::RunLog(path, false).write({{"step", 3}});
  CHECK(llmc::read_file(path) == "{\"step\":3}\n");
  llmc::RunLog("/dev/null").write({{"step", 1}});
}

TEST_CASE("after a resume each step stands in the log once") {
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
  const auto trimmed = llmc::trim_log(path, 4);
  CHECK(trimmed.kept == 7);
  CHECK(trimmed.dropped == 3);
  CHECK(trimmed.damaged == 1);
  CHECK(llmc::read_file(path) == text.substr(0, text.find("{\"step\":5")));
  llmc::RunLog(path, true).write({{"step", 5}});
  CHECK(llmc::log_value(llmc::read_log(path).back(), "step").integer("step") == 5);

  // Nothing to drop: the file is not rewritten, unless its last line has no line end.
  const auto written = std::filesystem::last_write_time(path);
  const auto again = llmc::trim_log(path, 5);
  CHECK(again.kept == 8);
  CHECK(again.dropped + again.damaged == 0);
  CHECK(std::filesystem::last_write_time(path) == written);
  write("{\"step\":1}");
  CHECK(llmc::trim_log(path, 1).kept == 1);
  CHECK(llmc::read_file(path) == "{\"step\":1}\n");
  write(std::string(100, '\0') + "\n{\"step\":1}\n[1]\n\n");  // a power cut may leave this
  CHECK(llmc::trim_log(path, 1).damaged == 3);
  CHECK(llmc::read_file(path) == "{\"step\":1}\n");
  write("");
  CHECK(llmc::trim_log(path, 1).kept == 0);
  CHECK(llmc::trim_log(directory.file("none"), 1).kept == 0);
  CHECK(!std::filesystem::exists(directory.file("none")));
  CHECK(llmc::trim_log("/dev/null", 1).kept == 0);
  CHECK(llmc::trim_log(path, 0).kept == 0);
}

TEST_CASE("what is wrong with a log is said") {
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
        }).starts_with("cannot make the directory " + path));
  if (std::filesystem::exists("/dev/full")) {
    llmc::RunLog full("/dev/full");
    CHECK(complaint([&] {
            full.write({{"step", 1}});
          }).starts_with("cannot write /dev/full: No space left on device"));
  }
}

TEST_SUITE_END();
