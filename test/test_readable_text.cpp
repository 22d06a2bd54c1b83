#include <doctest/doctest.h>

#include "llmc/base/terminal.h"

using llmc::labelled_text;
using llmc::readable_text;

TEST_SUITE("readable_text") {
  TEST_CASE("valid text is unchanged") {
    for (const char* text :
         {"", "plain\n\ttext", "na\u00efve \u20ac \U0001F600", "\uD7FF\uE000\U0010FFFF"}) {
      CHECK(readable_text(text) == text);
    }
  }

  TEST_CASE("bytes that are not UTF-8 and control characters are replaced one by one") {
    const std::string bad = "\uFFFD";
    CHECK(readable_text("a\x80z") == "a" + bad + "z");
    CHECK(readable_text("\xE2\x82") == bad + bad);            // cut short
    CHECK(readable_text("\xC0\x80") == bad + bad);            // overlong
    CHECK(readable_text("\xED\xA0\x80") == bad + bad + bad);  // a surrogate
    CHECK(readable_text("\xF4\x90\x80\x80") == bad + bad + bad + bad);
    CHECK(readable_text("\x1b[31m") == bad + "[31m");
  }

  TEST_CASE("a labelled text of several lines has marked lines and a visible end") {
    CHECK(labelled_text("sample", "one line") == "sample: one line");
    CHECK(labelled_text("sample", "") == "sample: ");
    CHECK(labelled_text("sample", "\na\n\nb") ==
          "sample:\n  |\n  | a\n  |\n  | b\n  (end of sample)");
    CHECK(labelled_text("sample", "a\n") == "sample:\n  | a\n  |\n  (end of sample)");
  }
}
