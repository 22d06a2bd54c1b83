// The nearest known name of a mistyped one, numbers as typed, and the likely encoding of a text.
#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/base/shell_word.h"
#include "llmc/base/similar_path.h"
#include "llmc/base/suggestions.h"
#include "llmc/config/infer_table.h"
#include "llmc/config/model_config.h"
#include "llmc/config/names_elsewhere.h"
#include "llmc/config/setting_text.h"
#include "llmc/config/tokenize_table.h"
#include "llmc/config/train_table.h"
#include "llmc/io/data/packed_kind.h"
#include "llmc/io/data/text_encoding.h"
#include "test/support.h"

using namespace llmc;
using llmc_test::complaint;
using llmc_test::contains;

namespace {

std::string utf16(const std::string& ascii, bool little_endian) {
  std::string text;
  for (const char c : ascii) {
    text += little_endian ? std::string{c, '\0'} : std::string{'\0', c};
  }
  return text;
}

std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

// Checks that each flag with other names is the current name of a flag of the program P.
template <class P>
void check_names_elsewhere() {
  const std::vector<std::string> flags = flags_with_names_elsewhere(P::kName);
  CHECK(flags.size() > 10);
  for (const std::string& flag : flags) {
    CAPTURE(flag);
    const Setting<P>* row = find_setting(P::settings(), flag);
    REQUIRE(row != nullptr);
    CHECK(row->flag == flag);
    CHECK(!names_elsewhere(P::kName, flag).empty());
  }
}

}  // namespace

TEST_SUITE("suggestions") {
  TEST_CASE("the edit distance counts insertions, deletions, replacements and swaps") {
    CHECK(edit_distance("", "") == 0);
    CHECK(edit_distance("", "abc") == 3);
    CHECK(edit_distance("abc", "") == 3);
    CHECK(edit_distance("steps", "steps") == 0);
    CHECK(edit_distance("steps", "stepz") == 1);
    CHECK(edit_distance("steps", "stpes") == 1);
    CHECK(edit_distance("kitten", "sitting") == 3);
    CHECK(edit_distance("ca", "abc") == 3);
  }

  TEST_CASE("equal names precede prefixes, flags precede other names, and prefixes near names") {
    const std::vector<KnownName> known = {{"--lr", "--lr"},
                                          {"--learning-rate", "--lr"},
                                          {"--sample", "--other"},
                                          {"--sample-every", "--sample-every"},
                                          {"--sample-length", "--sample-length"},
                                          {"--sampling", "--top-k"},
                                          {"-b", "--batch-size"}};
    using Answers = std::vector<std::string>;
    CHECK(nearest_answers("--Learning_Rate", known) == Answers{"--lr"});
    CHECK(nearest_answers("--sample", known) == Answers{"--other"});
    CHECK(nearest_answers("--samp", known) == Answers{"--sample-every", "--sample-length"});
    CHECK(nearest_answers("--sampli", known) == Answers{"--top-k"});
    CHECK(nearest_answers("--lr0", known) == Answers{"--lr"});
    CHECK(nearest_answers("-b", known) == Answers{"--batch-size"});
    CHECK(nearest_answers("-c", known).empty());
    CHECK(nearest_answers("--", known).empty());
    CHECK(nearest_answers("a", {{"ab", "1"}, {"ac", "2"}}).empty());
    CHECK(nearest_answers("abcx", {{"abca", "1"}, {"abcb", "2"}, {"abcc", "3"}, {"abcd", "4"}})
              .empty());
    CHECK(did_you_mean({}) == "");
    CHECK(did_you_mean({"a", "b", "c"}) == "; did you mean a, b or c?");
  }

  TEST_CASE("words are quoted for the shell if they need it") {
    CHECK(shell_word("run/step_1.bin") == "run/step_1.bin");
    CHECK(shell_word("") == "''");
    CHECK(shell_word("a b") == "'a b'");
    CHECK(shell_word("it's $x") == "'it'\\''s $x'");
  }

  TEST_CASE("integers may have an exponent if they stay whole and exact") {
    const auto parsed = [](const std::string& text) {
      std::int64_t value = -7;
      return parse_number(text, value) ? value : -7;
    };
    CHECK(parsed("1e3") == 1000);
    CHECK(parsed("2.5E5") == 250000);
    CHECK(parsed("-1e2") == -100);
    CHECK(parsed("9e15") == 9'000'000'000'000'000);
    for (const char* text : {"1.5", "1e-3", "1e16", "1e30", "1.0", "e3", "1e", "1e3 ", "", "nan"}) {
      CAPTURE(text);
      CHECK(parsed(text) == -7);
    }
    std::uint64_t value = 3;
    CHECK(!parse_number("-1e3", value));
    CHECK(value == 3);
    CHECK(parse_number("18446744073709551615", value));
    double real = 0;
    CHECK(parse_number("1.5", real));
    CHECK(setting_detail::whole_number_meant("0.3k") == "300");
    CHECK(setting_detail::whole_number_meant("1.5B") == "1500000000");
    CHECK(setting_detail::whole_number_meant("0.0005k") == "");
    CHECK(setting_detail::whole_number_meant("k") == "");
    CHECK(setting_detail::whole_number_meant("9e99G") == "");
  }

  TEST_CASE("UTF-8 in any language has no problem of encoding") {
    CHECK(encoding_problem("") == "");
    CHECK(encoding_problem("a") == "");
    CHECK(encoding_problem("\xef\xbb\xbf"
                           "caf\u00e9") == "");
    CHECK(encoding_problem("a text that ends inside a character \xe4\xbd") == "");
    for (const char* text :
         {"\u043f\u0440\u0438 ", "\u4f60\u597d", "\U0001f642x", "a\tb\r\n\x1b[1m"}) {
      for (const int shift : {0, 1, 2, 3}) {  // samples begin at every byte of a character
        CHECK(encoding_problem(std::string(static_cast<std::size_t>(shift), 'x') +
                               repeated(text, 60'000)) == "");
      }
    }
    CHECK(encoding_problem(repeated("some words, one NUL", 9) + std::string(1, '\0')) == "");
  }

  TEST_CASE("other encodings are named, with and without a byte order mark") {
    const std::string text = repeated("Some text. ", 50);
    CHECK(contains(encoding_problem(utf16(text, true)), "iconv -f UTF-16LE -t UTF-8"));
    CHECK(contains(encoding_problem(utf16(text, false)), "iconv -f UTF-16BE -t UTF-8"));
    CHECK(contains(encoding_problem("\xff\xfe`O}Y`O}Y"), "UTF-16LE"));
    CHECK(contains(encoding_problem("\xfe\xffO`Y}O`Y}"), "UTF-16BE"));
    std::string little, big;
    for (const char c : text) {
      little += std::string{c, '\0', '\0', '\0'};
      big += std::string{'\0', '\0', '\0', c};
    }
    CHECK(contains(encoding_problem(little), "UTF-32LE"));
    CHECK(contains(encoding_problem(big), "UTF-32BE"));
    CHECK(contains(encoding_problem(text + "caf\xe9 "), "ISO-8859-1"));
    CHECK(contains(encoding_problem(text + "\x93 quoted \x94"), "WINDOWS-1252"));
    CHECK(contains(encoding_problem(repeated("caf\u00e9 ", 9) + "\xe9 "), "not UTF-8"));
    CHECK(contains(encoding_problem(std::string(500, '\0')), "NUL bytes"));
    const auto kind_error = [](const std::string& start) {
      return complaint([&] { warn_about_encoding(start + repeated("\xff", 9), "d/my data.x"); });
    };
    CHECK(contains(kind_error("PK\x03\x04"), "d/my data.x is not a text: it is a zip archive"));
    CHECK(contains(kind_error("PAR1"), "it is a Parquet file: convert it with python3 -c"));
    CHECK(contains(kind_error("PAR1"), "'d/my data.x' 'd/my data.jsonl'"));
    CHECK(contains(kind_error("\x93NUMPY"), "numpy.load(sys.argv[1])"));
    CHECK(contains(packed_kind("\x93NUMPY", "a.bin"), " a.bin a.bin.bin, and read that with"));
    CHECK(contains(kind_error("BZh9"), "bzip2 -dk 'd/my data.x'"));
    CHECK(encoding_problem("PAR1 is a text, BZh too") == "");
    std::string late = repeated("Some plain text. ", 20'000);
    late += repeated("caf\xe9 na\xefve ", 20'000);  // beyond the first 64 KiB
    CHECK(contains(encoding_problem(late), "ISO-8859-1"));
  }

  TEST_CASE("flags that have other names elsewhere are flags of their program") {
    check_names_elsewhere<TrainProgram>();
    check_names_elsewhere<InferProgram>();
    check_names_elsewhere<TokenizeProgram>();
    CHECK(names_elsewhere("train_gpt2", "--lr") ==
          std::vector<std::string>{"--learning-rate", "--max-lr", "--peak-lr", "-l"});
    CHECK(names_elsewhere("infer_gpt2", "--lr").empty());
  }

  TEST_CASE("names of what has no flag here have a text, of their own program first") {
    CHECK(contains(way_here("train_gpt2", "--use_wandb"), "scripts/export_run.py"));
    CHECK(contains(way_here("infer_gpt2", "--NUM-BEAMS"), "beam search is not supported"));
    CHECK(way_here("train_gpt2", "--num-beams").empty());
    CHECK(way_in_other_program("train_gpt2", "--num-beams").starts_with("in infer_gpt2, beam"));
    CHECK(way_in_other_program("infer_gpt2", "--num-beams").empty());
    CHECK(way_here("train_gpt2", "--lr").empty());
    CHECK(way_here("train_gpt2", "").empty());
  }

  TEST_CASE("far names are not suggested, and the first word of another name is not either") {
    const std::vector<KnownName> known = {{"--quantization", "--qat"},
                                          {"--ddp-backend", "--comm"},
                                          {"--num-heads", "--heads"},
                                          {"--attention", "--attention"}};
    for (const char* typed : {"--activation", "--ddp", "--num-beams"}) {
      CAPTURE(typed);
      CHECK(nearest_answers(typed, known).empty());
    }
    CHECK(nearest_answers("--atention", known) == std::vector<std::string>{"--attention"});
    CHECK(nearest_answers("--num-haeds", known) == std::vector<std::string>{"--heads"});
  }

  TEST_CASE("a mistyped path is corrected in its first missing part if the rest exists") {
    const llmc_test::TemporaryDirectory directory;
    std::filesystem::create_directories(directory.path() / "data set/gpt2");
    write_file(directory.path() / "data set/gpt2/vocab.json", "{}");
    write_file(directory.path() / ".hidden", "");
    const auto answer = [&](const std::string& path) {
      return did_you_mean_path(directory.path() / path);
    };
    const std::string folder = directory.path().string() + "/data set";
    CHECK(answer("data sett") == "; did you mean '" + folder + "'?");
    CHECK(answer("data set/gtp2/vocab.json") == "; did you mean '" + folder + "/gpt2/vocab.json'?");
    CHECK(answer("dta set/gpt2") == "; did you mean '" + folder + "/gpt2'?");
    for (const char* path : {"data sett/gpt3", "hidden", "other", "data set", "data set/", "/a"}) {
      CAPTURE(path);
      CHECK(answer(path) == "");
    }
    CHECK(did_you_mean_path("") == "");
  }
}
