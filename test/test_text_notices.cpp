// Warnings about texts that are probably meant to be read in another way.
#include <iostream>
#include <sstream>
#include <string>

#include "llmc/io/data/text_notices.h"
#include "test/compressed_samples.h"
#include "test/support.h"
#include "test/write_file.h"

TEST_SUITE_BEGIN("text_notices");

using namespace llmc;
using namespace llmc_test;

namespace {

const DocumentFormat kText{.kind = DocumentFormat::Kind::text, .separator = {}};

// The warnings about the texts that `examine` passes.
template <class Examine>
std::string warnings(const Examine& examine) {
  std::ostringstream output;
  std::streambuf* const old_buffer = std::cerr.rdbuf(output.rdbuf());
  TextNotices notices({.json_lines = "use --x", .end_of_text = "use --y"});
  examine(notices);
  notices.print();
  std::cerr.rdbuf(old_buffer);
  return output.str();
}

std::string warnings_of(const std::string& text, const DocumentFormat& format = kText) {
  return warnings([&](TextNotices& notices) { notices.examine(text, "a.txt", format); });
}

}  // namespace

TEST_CASE("JSON lines that are read as a text are reported with the flag that helps") {
  const std::string line = "{\"text\": \"a\"}\n";
  const std::string warning =
      "warning: a.txt looks like JSON lines but is read as a text, with keys and quotes: use --x\n";
  CHECK(warnings_of(line) == warning);
  CHECK(warnings_of(line + line) == warning);
  CHECK(warnings_of("\xef\xbb\xbf\n" + line + line) == warning);
  CHECK(warnings_of(line, {.kind = DocumentFormat::Kind::json_lines, .separator = {}}).empty());
  for (const char* text :
       {"", "a", "{ is a brace\n", "{\"a\": 1}\nis an object\nand more\n", "[1]\n"}) {
    CHECK(warnings_of(text).empty());
  }
}

TEST_CASE("a spelled <|endoftext|> is counted and reported with the flag that helps") {
  CHECK(warnings_of("a\n<|endoftext|>\nb\n<|endoftext|>") ==
        "warning: a.txt: <|endoftext|> is spelled out 2 times and stays ordinary text: use --y\n");
  CHECK(contains(warnings_of("a <|endoftext|> b"), "is spelled out 1 time and stays"));
  CHECK(contains(warnings_of("a <|endoftext|> b"), "sed 's/<|endoftext|>/\\n&\\n/g'"));
  DocumentFormat split = kText;
  split.separator = "<|endoftext|>";
  CHECK(warnings_of("a\n<|endoftext|>\nb\r\nc\n<|endoftext|>\r\n", split).empty());
  CHECK(contains(warnings_of("a<|endoftext|>\n<|endoftext|>\n", split), "1 time"));
  std::string large(20'000'000, 'x');
  large += "<|endoftext|>";
  CHECK(warnings_of(large).empty());  // only the start of a text is examined
  CHECK(contains(warnings_of("<|endoftext|>" + large), "at least 1 time"));
}

TEST_CASE("line ends of Windows are reported") {
  CHECK(contains(warnings_of("a\r\nb\r\n"), "warning: a.txt has line ends of Windows (\\r\\n)"));
  CHECK(warnings_of("a\r\nb\nc\n").empty());
}

TEST_CASE("the warning about JSON lines in another encoding does not say that the bytes are used") {
  const std::string line = "{\"text\": \"caf\xe9 na\xefve\"}\n";
  CHECK(contains(warnings_of(line), "its bytes are used as they are; convert it with iconv"));
  const std::string warning =
      warnings_of(line, {.kind = DocumentFormat::Kind::json_lines, .separator = {}});
  CHECK(contains(warning, "a.txt looks like Latin-1 (ISO 8859-1): convert it with iconv"));
}

TEST_CASE("several files give one warning per kind") {
  const std::string all = warnings([](TextNotices& notices) {
    for (const char* path : {"a", "b", "c"}) notices.examine("x\r\n<|endoftext|>\r\n", path, kText);
    for (const char* path : {"d", "e"}) notices.examine("{}\n", path, kText);
  });
  CHECK(contains(all, "warning: d and 1 other file look like JSON lines"));
  CHECK(contains(all, "warning: a and 2 other files: <|endoftext|> is spelled out 3 times"));
  CHECK(contains(all, "warning: a and 2 other files have line ends"));
  CHECK(std::count(all.begin(), all.end(), '\n') == 3);
}

TEST_CASE("compressed files are examined, and unreadable ones are left to their reader") {
  const TemporaryDirectory directory;
  const auto examine = [&](const std::string& name, const std::string& content) {
    write(directory.file(name), content);
    return warnings(
        [&](TextNotices& notices) { notices.examine_file(directory.file(name), kText); });
  };
  CHECK(contains(examine("a.gz", gzip("{\"text\": 1}\n")), "looks like JSON lines"));
  CHECK(contains(examine("a.zst", zstd("a\r\n")), "line ends of Windows"));
  CHECK(contains(examine("b.gz", gzip("caf\xe9 caf\xe9")), "looks like Latin-1"));
  CHECK(examine("c.gz", gzip("{\"text\": 1}\n").substr(0, 14)).empty());
  CHECK(warnings([](TextNotices& notices) { notices.examine_file("/nowhere", kText); }).empty());
}

TEST_SUITE_END();
