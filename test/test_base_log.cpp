// Log files with the predictions of a base model.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "llmc/eval/base_log.h"
#include "test/predictions.h"

using namespace llmc;
using namespace llmc_test;

namespace {

void write_log(const std::string& path, const Predictions& predictions,
               const BaseLogContent& content) {
  BaseLogWriter writer(path, content);
  for (const Prediction& prediction : predictions) writer.add(prediction.view());
  writer.commit();
}

BaseLogContent content_of(const Predictions& predictions) {
  return {.vocabulary = std::ssize(predictions[0].log_probs),
          .tokens = std::ssize(predictions),
          .T = 8,
          .stride = 4,
          .checksum = 17};
}

std::string log_error(const std::string& path, const BaseLogContent& expected) {
  return complaint([&] {
    BaseLogReader reader(path, expected);
    predictions_of(reader);
  });
}

}  // namespace

TEST_SUITE("base_log") {
  TEST_CASE("a model compared with its own log stays within the bound of the format") {
    const TemporaryDirectory folder;
    const std::string path = folder.file("log");
    for (const std::int64_t V : {1, 2, 301}) {
      const Pair pair = random_pair(60, V, 0.2f);
      const BaseLogContent content = content_of(pair.base);
      write_log(path, pair.base, content);
      CHECK(std::filesystem::file_size(path) == 64 + 60 * (20 + 2 * V));
      BaseLogReader reader(path, content);
      const Predictions stored = predictions_of(reader);
      REQUIRE(stored.size() == pair.base.size());
      double max_step = 0;
      for (std::size_t i = 0; i < stored.size(); ++i) {
        const auto& expected = pair.base[i].log_probs;
        const auto [min, max] = std::minmax_element(expected.begin(), expected.end());
        const double step = (static_cast<double>(*max) - static_cast<double>(*min)) / 65535;
        max_step = std::max(max_step, step);
        CHECK(stored[i].token == pair.base[i].token);
        CHECK(stored[i].log_prob == pair.base[i].log_prob);
        for (std::size_t v = 0; v < expected.size(); ++v) {
          const double error =
              static_cast<double>(stored[i].log_probs[v]) - static_cast<double>(expected[v]);
          CHECK(std::abs(error) <= 0.5 * step + 1e-6);
        }
      }
      const ComparisonResult own = compare(stored, pair.base);
      CHECK(own.nll_difference.value == 0);
      CHECK(own.agreement.value == 1);
      CHECK(own.kl_max <= 1.01 * max_step * max_step / 8 + 1e-12);
      const ComparisonResult logged = compare(stored, pair.model),
                             exact = compare(pair.base, pair.model);
      CHECK(logged.nll_difference.value == exact.nll_difference.value);
      CHECK(logged.agreement.value == exact.agreement.value);
      CHECK(std::abs(logged.kl.value - exact.kl.value) <= max_step);
    }
  }

  TEST_CASE("the content of a log follows from the text and its windows") {
    const TokenText text(50, 100, 6), other(50, 100, 7);
    const BaseLogContent content = base_log_content(text.task(8, 4), 50);
    CHECK(content == base_log_content(text.task(8, 4), 50));
    CHECK(content.tokens == 99);
    CHECK(content.T == 8);
    CHECK(content.stride == 4);
    CHECK(content.checksum != base_log_content(other.task(8, 4), 50).checksum);
  }

  TEST_CASE("a log of something else, or a damaged one, is an error that names the file") {
    const TemporaryDirectory folder;
    const std::string path = folder.file("log");
    const Predictions base = random_pair(10, 9, 0).base;
    const BaseLogContent content = content_of(base);
    write_log(path, base, content);
    CHECK(log_error(path, content).empty());
    const auto check_content = [&](auto change, const std::string& phrase) {
      BaseLogContent expected = content;
      change(expected);
      const std::string message = log_error(path, expected);
      CHECK_MESSAGE(contains(message, path), message);
      CHECK_MESSAGE(contains(message, phrase), message);
    };
    check_content([](auto& c) { c.vocabulary = 10; }, "a vocabulary of 9, not 10");
    check_content([](auto& c) { c.T = 9; }, "windows of 8, not 9");
    check_content([](auto& c) { c.stride = 8; }, "a stride of 4, not 8");
    check_content([](auto& c) { c.tokens = 11; }, "a number of tokens of 10, not 11");
    check_content([](auto& c) { c.checksum = 18; }, "another text");
    const std::string bytes = read_file(path);
    const auto check_bytes = [&](const std::string& changed, const std::string& phrase) {
      llmc::write_file(path, changed);
      const std::string message = log_error(path, content);
      CHECK_MESSAGE(contains(message, path), message);
      CHECK_MESSAGE(contains(message, phrase), message);
    };
    check_bytes("", "not a log");
    check_bytes(bytes.substr(0, 63), "not a log");
    check_bytes("x" + bytes.substr(1), "not a log");
    check_bytes(bytes.substr(0, bytes.size() - 1), "incomplete");
    check_bytes(bytes + "x", "incomplete");
    for (const std::size_t at : {std::size_t{64}, std::size_t{200}, bytes.size() - 1}) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ 1);
      check_bytes(damaged, "damaged");
    }
    std::string newer = bytes;
    newer[8] = 2;
    check_bytes(newer, "version 2");
    CHECK(contains(log_error(folder.file("missing"), content), "missing"));
  }

  TEST_CASE("an unfinished log leaves no file, and values that are not finite are refused") {
    const TemporaryDirectory folder;
    const std::string path = folder.file("log");
    Predictions base = random_pair(2, 9, 0).base;
    {
      BaseLogWriter writer(path, content_of(base));
      writer.add(base[0].view());
      CHECK(contains(complaint([&] { writer.commit(); }), "1 of 2"));
      base[1].log_probs[3] = std::nanf("");
      CHECK(contains(complaint([&] { writer.add(base[1].view()); }), "not finite"));
    }
    CHECK(std::filesystem::is_empty(folder.path()));
  }
}
