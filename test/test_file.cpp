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

  TEST_CASE("a Git LFS pointer is named as such, read or mapped") {
    const llmc_test::TemporaryDirectory folder;
    const std::string path = folder.file("model.safetensors");
    const std::string pointer =
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 548105171\n";
    llmc::write_file(path, pointer);
    for (const bool mapped : {false, true}) {
      const std::string error = llmc_test::complaint([&] {
        mapped ? static_cast<void>(llmc::MappedFile(path))
               : static_cast<void>(llmc::read_file(path));
      });
      CHECK(error.starts_with(path + " is a Git LFS pointer"));
      CHECK(llmc_test::contains(error, "git lfs pull"));
    }
    // A long text that begins like a pointer is none.
    const std::string text = pointer + std::string(1024, 'x');
    llmc::write_file(path, text);
    CHECK(llmc::read_file(path) == text);
    CHECK(llmc::MappedFile(path).bytes().size() == text.size());
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
