// Inputs of programs: pipes are copied, so that they can be read several times.
#include <sys/stat.h>

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "llmc/base/checksum.h"
#include "llmc/io/data/documents.h"
#include "llmc/io/data/input_file.h"
#include "test/support.h"
#include "test/write_file.h"

TEST_SUITE_BEGIN("input_file");

using namespace llmc;
using namespace llmc_test;

TEST_CASE("a copied pipe has the bytes of the pipe and no name") {
  const TemporaryDirectory folder, copies;
  const std::string pipe = folder.file("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const std::string text = std::string(500'000, 'x') + '\n' + std::string("a\0b", 3);
  std::thread writer([&] { write(pipe, text); });
  DocumentReader reader({pipe}, {}, copies.path());
  writer.join();
  CHECK(reader.inputs()[0].is_pipe());
  CHECK(reader.inputs()[0].checksum() == checksum_of(text));
  CHECK(std::filesystem::is_empty(copies.path()));
  std::filesystem::remove(pipe);
  reader.check_unchanged();
  Document document;
  std::string storage;
  REQUIRE(reader.next(document));
  CHECK(reader.text_of(document, storage) == text);
  reader.release_read();
  CHECK(reader.text_of_input(0) == text);
  CHECK_FALSE(reader.next(document));
}

TEST_CASE("an unnamed file can be written and read and is in no directory") {
  const TemporaryDirectory folder;
  const FileDescriptor file = unnamed_file(folder.path());
  const std::string text = "bytes";
  write_all(file, std::as_bytes(std::span(text)), "file");
  const MappedFile map(file, "file");
  CHECK(std::string_view(reinterpret_cast<const char*>(map.bytes().data()), 5) == text);
  CHECK(std::filesystem::is_empty(folder.path()));
  CHECK(contains(complaint([&] { unnamed_file(folder.file("none")); }),
                 "cannot create a temporary file in " + folder.file("none")));
}

TEST_CASE("the same pipe cannot be two inputs") {
  const TemporaryDirectory folder;
  const std::string pipe = folder.file("pipe"), link = folder.file("link"),
                    other = folder.file("other"), text = folder.file("a.txt");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  REQUIRE(mkfifo(other.c_str(), 0600) == 0);
  std::filesystem::create_symlink(pipe, link);
  write(text, "x");
  check_pipes({pipe, other, text, text, folder.file("none")});
  CHECK(contains(complaint([&] { check_pipes({pipe, text, pipe}); }), pipe + " is named twice"));
  CHECK(contains(complaint([&] {
                   check_pipes({pipe, other, link});
                 }),
                 pipe + " and " + link + " are the same pipe"));
  CHECK(contains(complaint([&] {
                   check_pipes({"-", text, "/dev/stdin"});
                 }),
                 "/dev/stdin is named twice"));
}

TEST_SUITE_END();
