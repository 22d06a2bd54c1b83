// Labelled texts, and the division of examples by a hash of their text.
#include <algorithm>
#include <iostream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "llmc/base/hash.h"
#include "llmc/io/data/hashed_split.h"
#include "llmc/io/data/labelled_texts.h"
#include "test/compressed_samples.h"
#include "test/eval_samples.h"
#include "test/support.h"
#include "test/write_file.h"

TEST_SUITE_BEGIN("labelled_texts");

using namespace llmc;
using namespace llmc_test;

namespace {

// A directory with files, and the texts of a source in which {} stands for that directory.
struct LabelledFiles {
  TemporaryDirectory directory;
  std::string warning;

  void add(const std::string& name, const std::string& text) const {
    write(directory.file(name), text);
  }

  LabelledTexts read(std::string source, const std::vector<std::string>& known_names = {}) {
    for (std::size_t at = 0; (at = source.find("{}", at)) != source.npos;) {
      source.replace(at, 2, directory.path().string());
    }
    std::ostringstream output;
    std::streambuf* const old_buffer = std::cerr.rdbuf(output.rdbuf());
    try {
      LabelledTexts texts = read_labelled_texts(source, "--labels", known_names);
      std::cerr.rdbuf(old_buffer);
      warning = output.str();
      return texts;
    } catch (...) {
      std::cerr.rdbuf(old_buffer);
      throw;
    }
  }

  std::string error(const std::string& source, const std::vector<std::string>& known_names = {}) {
    return complaint([&] { read(source, known_names); });
  }

  // The error for a file x.jsonl with this text.
  std::string json_error(const std::string& text,
                         const std::vector<std::string>& known_names = {}) {
    add("x.jsonl", text);
    return error("{}/x.jsonl", known_names);
  }
};

using Names = std::vector<std::string>;
using Labels = std::vector<std::int32_t>;

std::string json_line(const std::string& text, const std::string& label) {
  return R"({"text": ")" + text + R"(", "label": )" + label + "}\n";
}

}  // namespace

TEST_CASE("integer labels are class numbers and get the names of transformers") {
  LabelledFiles files;
  files.add("x.jsonl", json_line("a", "1") + "\n" + json_line("b\\nc", "0") +
                           R"({"label": 2, "text": "d", "id": [1]})");
  const LabelledTexts texts = files.read("{}/x.jsonl");
  CHECK(texts.texts == Names{"a", "b\nc", "d"});
  CHECK(texts.labels == Labels{1, 0, 2});
  CHECK(texts.label_names == Names{"LABEL_0", "LABEL_1", "LABEL_2"});
  CHECK(texts.num_contradictions == 0);
  CHECK(files.warning.empty());
}

TEST_CASE("string labels are numbered in the order of their bytes") {
  LabelledFiles files;
  files.add("x.jsonl", json_line("a", "\"neg\"") + json_line("b", "\"Zeta\"") +
                           json_line("c", "\"neg\"") + json_line("d", "\"10\"") +
                           json_line("e", "\"9\""));
  const LabelledTexts texts = files.read("{}/x.jsonl");
  CHECK(texts.label_names == Names{"10", "9", "Zeta", "neg"});
  CHECK(texts.labels == Labels{3, 2, 3, 0, 1});
}

TEST_CASE("the files of a list have one text per line, and its labels keep their order") {
  LabelledFiles files;
  files.add("p.txt", "good\nvery good\r\n");
  files.add("n,1.txt", gzip("bad"));
  files.add("n,2.txt", " so bad ");
  const LabelledTexts texts = files.read("positive={}/p.txt,negative={}/n\\,*.txt");
  CHECK(texts.texts == Names{"good", "very good", "bad", " so bad "});
  CHECK(texts.labels == Labels{0, 0, 1, 1});
  CHECK(texts.label_names == Names{"positive", "negative"});
}

TEST_CASE("a pattern of JSON lines reads all files as one, and compressed files") {
  LabelledFiles files;
  files.add("b.jsonl.gz", gzip(json_line("b", "1")));
  files.add("a.jsonl.gz", gzip(json_line("a", "0")));
  CHECK(files.read("{}/*.jsonl.gz").texts == Names{"a", "b"});
}

TEST_CASE("known names are the classes, and may have no text") {
  LabelledFiles files;
  const Names names{"negative", "positive", "neutral"};
  files.add("x.jsonl", json_line("a", "\"positive\""));
  CHECK(files.read("{}/x.jsonl", names).labels == Labels{1});
  CHECK(files.read("{}/x.jsonl", names).label_names == names);
  files.add("x.jsonl", json_line("a", "2"));
  CHECK(files.read("{}/x.jsonl", names).labels == Labels{2});
  files.add("t.txt", "a\n");
  CHECK(files.read("positive={}/t.txt", names).labels == Labels{1});
  check_message(files.json_error(json_line("a", "3"), names), {"x.jsonl:1", "is 3", "0 to 2"});
  check_message(files.json_error(json_line("a", "\"positiv\""), names),
                {"x.jsonl:1", "positiv is unknown", "did you mean positive?",
                 "3 labels negative, positive, neutral"});
  check_message(files.error("good={}/t.txt", names), {"t.txt:1", "good is unknown"});
}

TEST_CASE("an error in JSON lines names the file, the line, the problem and what is allowed") {
  LabelledFiles files;
  const std::string first = json_line("a", "0");
  const char* const allowed = "integer from 0 to the number of classes - 1, or each with a name";
  check_message(files.json_error(first + "{"), {"x.jsonl:2", "not valid JSON"});
  check_message(files.json_error(first + "[1]"), {"x.jsonl:2", "not a JSON object", "one JSON"});
  check_message(files.json_error(first + json_line("caf\xe9", "1")),
                {"x.jsonl:2", "not UTF-8", "iconv"});
  check_message(files.json_error(""), {"x.jsonl", "no examples"});
  check_message(files.json_error(first + "{\"label\": 1}"),
                {"x.jsonl:2", "no \"text\"", "\"label\": ..."});
  check_message(files.json_error(first + "{\"text\": 1, \"label\": 1}"),
                {"x.jsonl:2", "\"text\"", "not a string"});
  for (const char* text : {"", " ", "\\t\\n"}) {
    check_message(files.json_error(first + json_line(text, "1")),
                  {"x.jsonl:2", "the text is empty", "remove the line"});
  }
  check_message(files.json_error(first + "{\"text\": \"b\"}"),
                {"x.jsonl:2", "no \"label\"", allowed});
  for (const char* label : {"-1", "1.0", "true", "null", "[1]", "1e30", "9223372036854775808"}) {
    check_message(files.json_error(first + json_line("b", label)),
                  {"x.jsonl:2", "\"label\"", "integer of 0 or more"});
  }
  for (const char* label : {"\"\"", "\"a\\nb\""}) {
    check_message(files.json_error(json_line("b", label)), {"x.jsonl:1", "the label", allowed});
  }
}

TEST_CASE("labels with gaps, of two kinds, or of a single class are errors") {
  LabelledFiles files;
  const std::string zero = json_line("a", "0"), name = json_line("b", "\"x\"");
  check_message(files.json_error(zero + json_line("b", "3") + json_line("c", "1")),
                {"x.jsonl:2", "label is 3", "no line has the label 2"});
  check_message(files.json_error(json_line("b", "1") + json_line("c", "2")),
                {"x.jsonl:1", "label is 1", "no line has the label 0"});
  check_message(files.json_error(zero + name),
                {"x.jsonl:2", "label x is a string", "x.jsonl:1 is an integer", "integer from 0"});
  check_message(files.json_error(name + zero),
                {"x.jsonl:2", "label 0 is an integer", "x.jsonl:1 is a string"});
  check_message(files.json_error(name + name), {"x.jsonl", "label x", "at least two classes"});
  check_message(files.json_error(zero), {"x.jsonl", "label 0", "at least two classes"});
  files.add("x.jsonl", zero);
  files.add("y.jsonl", name);
  check_message(files.error("{}/*.jsonl"), {"y.jsonl:1", "x.jsonl:1 is an integer"});
}

TEST_CASE("an error in a list names the flag or the file and the line") {
  LabelledFiles files;
  files.add("p.txt", "a\n\nb\n");
  files.add("n.txt", "caf\xe9 na\xefve\n");
  files.add("e.txt", "");
  files.add("j.jsonl", json_line("a", "0"));
  for (const char* bad :
       {"", "x", "a={}/n.txt,", "a={}/n.txt,b", "={}/n.txt,b={}/n.txt", "a=,b=x"}) {
    check_message(files.error(bad), {"--labels", "LABEL=FILE,LABEL=FILE"});
  }
  check_message(files.error("a={}/n.txt,a={}/p.txt"), {"--labels", "label a twice"});
  check_message(files.error("a={}/n.txt"), {"--labels", "only one class", "at least two"});
  check_message(files.error("a={}/p.txt,b={}/n.txt"), {"p.txt:2", "the text is empty"});
  check_message(files.error("a={}/n.txt,b={}/p.txt"), {"n.txt:1", "not UTF-8", "iconv"});
  check_message(files.error("a={}/e.txt,b={}/p.txt"), {"e.txt is empty", "one text on each line"});
  check_message(files.error("a={}/none.txt,b={}/p.txt"), {"none.txt"});
  check_message(files.error("a={}/none*,b={}/p.txt"), {"--labels", "no file matches"});
  check_message(files.error("a={}/j.jsonl,b={}/p.txt"), {"j.jsonl", "their own labels"});
  check_message(files.error("{}/none.jsonl"), {"none.jsonl"});
}

TEST_CASE("texts with several labels are counted, and the first one is reported") {
  LabelledFiles files;
  files.add("x.jsonl", json_line("b", "0") + json_line("a", "1") + json_line("a", "1") +
                           json_line("a", "0") + json_line("a", "2"));
  CHECK(files.read("{}/x.jsonl").num_contradictions == 1);
  const std::string path = files.directory.file("x.jsonl");
  CHECK(files.warning == "warning: " + path + ": 1 text has several labels: " + path +
                             ":2 (LABEL_1) and " + path + ":4 (LABEL_0)\n");
  files.add("x.jsonl",
            json_line("b", "0") + json_line("b", "1") + json_line("a", "1") + json_line("a", "0"));
  CHECK(files.read("{}/x.jsonl").num_contradictions == 2);
  CHECK(contains(files.warning, "2 texts have several labels: " + path + ":1 (LABEL_0) and " +
                                    path + ":2 (LABEL_1) are the first\n"));
}

TEST_CASE("fractions of a split are two or three integers") {
  const SplitFractions three = parse_split_fractions("80/10/5", "--split");
  CHECK(three.train == 80);
  CHECK(three.validation == 10);
  CHECK(three.test == 5);
  const SplitFractions two = parse_split_fractions("1/0", "--split");
  CHECK(two.train == 1);
  CHECK(two.validation == 0);
  CHECK(two.test == 0);
  for (const char* bad : {"", "80", "80/", "/10", "0/10/10", "80/10/10/0", "80/10/10/", "8.0/1",
                          "80/-1", "80/+1", "80 /10", "1000001/1", "99999999999999999999/1"}) {
    check_message(complaint([&] { parse_split_fractions(bad, "--split"); }),
                  {"--split '" + std::string(bad) + "'", "TRAIN/VALIDATION/TEST", "80/10/10"});
  }
}

TEST_CASE("the part of a text follows from its hash, which never changes") {
  // XXH64 of "" is ef46db3751d8e999, as xxhsum -H64 prints it.
  CHECK(split_hash("") == mix64(0xef46db3751d8e999u, 1));
  CHECK(split_hash("") == 0xeac3133e59c886d5u);
  CHECK(split_hash("a text") == 0xd3f9249d8cb02d88u);
  const std::uint64_t top = ~std::uint64_t{0};
  const auto part = [](std::uint64_t hash, const char* fractions) {
    return split_part(hash, parse_split_fractions(fractions, ""));
  };
  CHECK(part(0, "1/1/2") == SplitPart::train);
  CHECK(part(top / 4, "1/1/2") == SplitPart::train);
  CHECK(part(top / 4 + 1, "1/1/2") == SplitPart::validation);
  CHECK(part(top / 2, "1/1/2") == SplitPart::validation);
  CHECK(part(top / 2 + 1, "1/1/2") == SplitPart::test);
  CHECK(part(top, "1/1/2") == SplitPart::test);
  CHECK(part(top, "1/1") == SplitPart::validation);
  CHECK(part(top, "1/0/0") == SplitPart::train);
  CHECK(part(top, "1000000/1000000/1000000") == SplitPart::test);
}

TEST_CASE("a split contains each text in one part, in order and in proportion") {
  LabelledTexts texts{.source = "x", .texts = {}, .labels = {}, .label_names = {"a", "b"}};
  constexpr int kTexts = 10'000;
  for (int i = 0; i < kTexts; ++i) {
    texts.texts.push_back("text " + std::to_string(i % 9'000));  // 1000 texts occur twice
    texts.labels.push_back(i % 2);
  }
  const LabelledSplit split = split_labelled_texts(texts, {});
  std::set<std::string> all;
  std::size_t count = 0, different = 0;
  for (const LabelledTexts* part : {&split.train, &split.validation, &split.test}) {
    REQUIRE(part->texts.size() == part->labels.size());
    CHECK(part->label_names == texts.label_names);
    std::set<std::string> own(part->texts.begin(), part->texts.end());
    different += own.size();
    all.merge(own);
    count += part->texts.size();
    // The label of a text is still its own: that of its number.
    for (std::size_t i = 0; i < part->texts.size(); ++i) {
      CHECK(part->labels[i] == std::stoi(part->texts[i].substr(5)) % 2);
    }
    std::vector<int> numbers;
    for (const std::string& text : part->texts) numbers.push_back(std::stoi(text.substr(5)));
    CHECK(std::is_sorted_until(numbers.begin(), numbers.end()) - numbers.begin() > 850);
  }
  CHECK(count == kTexts);
  CHECK(different == 9'000);
  CHECK(all.size() == 9'000);
  // Five standard deviations of about 33.
  CHECK(std::abs(static_cast<double>(split.validation.texts.size()) - 1'000) < 165);
  CHECK(std::abs(static_cast<double>(split.test.texts.size()) - 1'000) < 165);
  CHECK(split_labelled_texts(texts, {1, 0, 0}).train.texts == texts.texts);
}

TEST_CASE("a part without a text, and a class without a text for training, are errors") {
  LabelledTexts texts{
      .source = "x", .texts = {"a", "b"}, .labels = {0, 1}, .label_names = {"n", "p"}};
  check_message(complaint([&] {
                  split_labelled_texts(texts, {1'000'000, 1, 0});
                }),
                {"x has 2 examples", "validation part", "more examples"});
  check_message(complaint([&] { split_labelled_texts(texts, {1'000'000, 0, 1}); }), {"test part"});
  check_message(complaint([&] {
                  split_labelled_texts(texts, {1, 1'000'000, 0});
                }),
                {"training part"});
  texts.label_names.push_back("none");
  check_message(complaint([&] {
                  split_labelled_texts(texts, {1, 0, 0});
                }),
                {"label none", "training part"});
}

TEST_SUITE_END();
