// Reading of files: regular files, pipes and devices.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstdio>
#include <string>
#include <thread>

#include "llmc/base/file.h"
#include "test/support.h"

TEST_SUITE("file") {
  TEST_CASE("a device that never ends is refused") {
    for (const char* path : {"/dev/zero", "/dev/urandom"}) {
      CHECK_THROWS_WITH_AS(llmc::read_file(path),
                           doctest::Contains((std::string(path) + " is a device").c_str()),
                           llmc::Error);
    }
    CHECK(llmc::read_file("/dev/null").empty());
  }

  TEST_CASE("a pipe is read to its end") {
    const llmc_test::TemporaryDirectory folder;
    const std::string path = folder.file("pipe");
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    const std::string text(300'000, 'x');  // more than a pipe holds
    std::thread writer([&] {
      std::FILE* out = std::fopen(path.c_str(), "w");
      std::fwrite(text.data(), 1, text.size(), out);
      std::fclose(out);
    });
    CHECK(llmc::read_file(path) == text);
    writer.join();
  }
}
