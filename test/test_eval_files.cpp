// Files of evaluation tasks, the token rows made from them, and the metrics computed from scores.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "llmc/config/eval_spec.h"
#include "llmc/eval/eval_files.h"
#include "llmc/eval/multiple_choice.h"
#include "llmc/eval/perplexity.h"
#include "llmc/eval/report.h"
#include "llmc/eval/wikitext.h"
#include "llmc/io/tokenizer/byte_tokenizer.h"
#include "llmc/io/tokenizer/word_tokenizer.h"
#include "test/support.h"

using namespace llmc;
using namespace llmc_test;

namespace {

// A file with the given text in its own directory.
class Sample {
 public:
  explicit Sample(const std::string& text) { write_file(folder_.path() / "data", text); }
  std::string path() const { return folder_.file("data"); }

 private:
  TemporaryDirectory folder_;
};

std::string text_of(const EvalRow& row) {
  return ByteTokenizer().decode(row.tokens);
}

std::string scored_text_of(const EvalRow& row) {
  return ByteTokenizer().decode(std::span(row.tokens).last(row.scored));
}

double metric(const std::vector<EvalMetric>& metrics, const std::string& name) {
  for (const EvalMetric& metric : metrics) {
    if (metric.name == name) return metric.value;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

std::string lambada_complaint(const std::string& text) {
  const Sample file(text);
  return complaint([&] { read_lambada(file.path()); });
}

std::string hellaswag_complaint(const std::string& text) {
  const Sample file(text);
  return complaint([&] { read_hellaswag(file.path()); });
}

void check_says(const std::string& complaint, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) CHECK_MESSAGE(contains(complaint, part), complaint);
}

const std::string kTwoEndings = R"("endings": ["a", "bc"])";

}  // namespace

TEST_SUITE("eval_files") {
  TEST_CASE("the tasks of --eval are read, and others named") {
    CHECK(parse_eval_spec("lambada:a:b.jsonl").file == "a:b.jsonl");
    for (const char* bad : {"lambda:x", "lambada", "lambada:", ":x", "", "LAMBADA:x"}) {
      check_says(complaint([&] { parse_eval_spec(bad); }), {bad, "TASK:FILE", "hellaswag"});
    }
  }

  TEST_CASE("LAMBADA: the last word is what follows the last space") {
    const Sample file("{\"text\": \"a b  last\"}\n\n{\"text\": \"one two \\n\", \"more\": [1]}");
    const auto examples = read_lambada(file.path());
    REQUIRE(examples.size() == 2);
    CHECK(examples[0].context == "a b ");
    CHECK(examples[0].word == " last");
    CHECK(examples[1].context == "one");
    CHECK(examples[1].word == " two");
    CHECK(examples[1].line == 3);
    CHECK(read_lambada(file.path(), 1).size() == 1);
    CHECK(read_lambada(file.path(), 9).size() == 2);
  }

  TEST_CASE("LAMBADA: what is wrong is named with its line and field") {
    const std::string good = "{\"text\": \"a b\"}\n";
    check_says(lambada_complaint(""), {"data", "no examples"});
    check_says(lambada_complaint("\n \n"), {"data", "no examples"});
    check_says(lambada_complaint(good + "{text}"), {"data:2", "not valid JSON"});
    check_says(lambada_complaint(good + "[1]"), {"data:2", "not a JSON object"});
    check_says(lambada_complaint(good + "{\"txt\": 1}"), {"data:2", "no \"text\""});
    check_says(lambada_complaint("{\"text\": 5}"), {"data:1", "\"text\"", "not a string"});
    for (const char* text : {"word", " word", "", "  ", "word  "}) {
      check_says(lambada_complaint("{\"text\": \"" + std::string(text) + "\"}"),
                 {"data:1", "\"text\"", "no word before"});
    }
    check_says(complaint([] { read_lambada("/nowhere/x.jsonl"); }), {"/nowhere/x.jsonl"});
  }

  TEST_CASE("HellaSwag: contexts whole or in two parts, labels as numbers or texts") {
    const Sample file("{\"ctx\": \"c d\", \"ctx_a\": \"x\", " + kTwoEndings + ", \"label\": 1}\n" +
                      "{\"ctx_a\": \"A.\", \"ctx_b\": \"he\", " + kTwoEndings +
                      ", \"label\": \"0\"}\n" + "{\"ctx_a\": \"A.\", \"ctx_b\": \"\", " +
                      kTwoEndings + ", \"label\": 0}\n");
    const auto examples = read_hellaswag(file.path());
    REQUIRE(examples.size() == 3);
    CHECK(examples[0].context == "c d");
    CHECK(examples[0].endings == std::vector<std::string>{"a", "bc"});
    CHECK(examples[0].label == 1);
    CHECK(examples[1].context == "A. he");
    CHECK(examples[1].label == 0);
    CHECK(examples[2].context == "A.");
  }

  TEST_CASE("HellaSwag: what is wrong is named with its line and field") {
    const auto says = [](const std::string& members, const std::vector<std::string>& parts) {
      check_says(hellaswag_complaint("{" + members + "}"), parts);
    };
    const std::string context = R"("ctx": "c", )", label = R"(, "label": 0)";
    says(kTwoEndings + label, {"data:1", "no \"ctx\""});
    says(R"("ctx_a": "A", )" + kTwoEndings + label, {"data:1", "no \"ctx_b\""});
    says(R"("ctx": "", )" + kTwoEndings + label, {"data:1", "context is empty"});
    says(R"("ctx": 3, )" + kTwoEndings + label, {"data:1", "\"ctx\"", "not a string"});
    says(context + R"("label": 0)", {"data:1", "no \"endings\""});
    says(context + R"("endings": "a")" + label, {"data:1", "\"endings\"", "list"});
    says(context + R"("endings": ["a"])" + label, {"data:1", "\"endings\"", "two"});
    says(context + R"("endings": ["a", 2])" + label, {"data:1", "\"endings\"[1]", "not a string"});
    says(context + R"("endings": ["a", ""])" + label, {"data:1", "\"endings\"[1]", "empty"});
    says(context + kTwoEndings, {"data:1", "no \"label\""});
    for (const char* bad : {"2", "-1", "0.0", "null", "\"two\"", "\"\"", "[0]"}) {
      says(context + kTwoEndings + ", \"label\": " + bad, {"data:1", "\"label\"", "0 to 1"});
    }
    check_says(hellaswag_complaint(""), {"data", "no examples"});
  }

  TEST_CASE("WikiText is put together again") {
    const auto check = [](const std::string& cut, const std::string& whole) {
      CHECK(detokenize_wikitext(cut) == whole);
    };
    check(" = = Career = = \n", "== Career ==\n");
    check(" \n = Robert <unk> = \n", "\n= Robert <unk> =\n");
    check(" a co @-@ star , 1 @,@ 000 @.@ 5 ; it 's ( not ) 5 % . \n",
          "a co-star, 1,000.5; it's (not) 5%.\n");
    check("he said : \" I didn 't , \" and left", "he said: \"I didn't,\" and left");
    check("the boys ' house ' s ' [ 1 ] $ 5", "the boys' house 's' [1] $5");
    check("\" open \n new \" line \"", "\"open\nnew \"line\"");  // quotes do not cross lines
    check("", "");
    check("a @+@ @-@", "a @+@-");
    CHECK(count_words(" = A = \n\n b\tc \r\n") == 5);
    CHECK(count_words("") == 0);
  }

  TEST_CASE("perplexity: every token is scored once, after enough others") {
    for (const std::int64_t size : {1, 2, 5, 8, 9, 16, 17, 40}) {
      std::string text;
      for (std::int64_t i = 0; i < size; ++i) text += static_cast<char>('A' + i);
      const Sample file(text);
      for (const std::int64_t T : {1, 2, 7, 8}) {
        for (std::int64_t stride = 1; stride <= T; ++stride) {
          CAPTURE(size);
          CAPTURE(T);
          CAPTURE(stride);
          const PerplexityTask task("perplexity", file.path(), ByteTokenizer(),
                                    {.T = T, .stride = stride});
          CHECK(task.examples() == size);
          std::string scored;
          for (std::int64_t i = 0; i < task.rows(); ++i) {
            const EvalRow row = task.row(i);
            const auto length = static_cast<std::int64_t>(row.tokens.size());
            CHECK(length == task.row_length(i));
            CHECK(length <= T + 1);
            CHECK(row.scored >= 1);
            CHECK(length - row.scored >= (i == 0 ? 1 : T - stride + 1));
            CHECK(row.tokens[0] == (i == 0 ? 256 : ByteTokenizer().encode(text)[i * stride - 1]));
            scored += scored_text_of(row);
          }
          CHECK(scored == text);
        }
      }
    }
  }

  TEST_CASE("perplexity by token, by word and by byte") {
    const Sample file(" a @-@ b \n c \n");  // 4 words, 2 line ends, 14 bytes; "a-b\nc\n": 6 bytes
    const auto metrics = [&](bool detokenize, double nll) {
      const PerplexityTask task("x", file.path(), ByteTokenizer(),
                                {.T = 4, .stride = 4, .detokenize = detokenize});
      std::vector<RowScore> scores(static_cast<std::size_t>(task.rows()));
      scores.front().nll = nll - 1;
      scores.back().nll += 1;
      return task.metrics(scores);
    };
    const auto raw = metrics(false, 28), whole = metrics(true, 12);
    CHECK(metric(raw, "token_nll") == doctest::Approx(2));
    CHECK(metric(raw, "token_perplexity") == doctest::Approx(std::exp(2)));
    CHECK(metric(raw, "word_perplexity") == doctest::Approx(std::exp(7)));
    CHECK(metric(raw, "bits_per_byte") == doctest::Approx(2 / std::log(2)));
    CHECK(std::isnan(metric(raw, "word_and_line_end_perplexity")));
    CHECK(metric(whole, "token_perplexity") == doctest::Approx(std::exp(2)));
    CHECK(metric(whole, "word_perplexity") == doctest::Approx(std::exp(3)));
    CHECK(metric(whole, "word_and_line_end_perplexity") == doctest::Approx(std::exp(2)));
    CHECK(metric(whole, "bits_per_byte") == doctest::Approx(12 / std::log(2) / 14));
  }

  TEST_CASE("perplexity of what cannot be scored") {
    const auto complaint_of = [](const std::string& file, const Tokenizer& tokenizer) {
      return complaint([&] { PerplexityTask("x", file, tokenizer, {.T = 4, .stride = 2}); });
    };
    check_says(complaint_of(Sample("").path(), ByteTokenizer()), {"data"});
    const Sample empty(""), words("the\nking\n"), one("the"), unknown("the queen");
    check_says(complaint_of(empty.path(), ByteTokenizer()), {"data", "empty"});
    check_says(complaint_of("/nowhere.bin", ByteTokenizer()), {"nowhere.bin", "token file"});
    const WordTokenizer tokenizer(words.path());
    check_says(complaint_of(one.path(), tokenizer), {"data", "too few tokens"});
    check_says(complaint_of(unknown.path(), tokenizer), {"data", "queen"});
    CHECK(complaint_of(words.path(), tokenizer).empty());
  }

  TEST_CASE("contexts that are too long lose their beginning") {
    const Sample file("{\"text\": \"0123456789 word\"}\n{\"text\": \"0 word\"}\n");
    const LambadaTask whole(file.path(), ByteTokenizer(), 14, 0);
    CHECK(text_of(whole.row(0)) == "0123456789 word");
    CHECK(contains(whole.protocol(), "0 of 2 contexts"));
    const LambadaTask cut(file.path(), ByteTokenizer(), 7, 0);
    CHECK(text_of(cut.row(0)) == "789 word");
    CHECK(scored_text_of(cut.row(0)) == " word");
    CHECK(text_of(cut.row(1)) == "0 word");
    CHECK(contains(cut.protocol(), "1 of 2 contexts"));
    const LambadaTask shortest(file.path(), ByteTokenizer(), 5, 0);
    CHECK(text_of(shortest.row(0)) == "9 word");
    check_says(complaint([&] { LambadaTask(file.path(), ByteTokenizer(), 4, 0); }),
               {"data:1", "' word' has 5 tokens", "sequence length = 4"});
  }

  TEST_CASE("LAMBADA's numbers") {
    const Sample file("{\"text\": \"a b\"}\n{\"text\": \"a b\"}\n{\"text\": \"a b\"}\n");
    const LambadaTask task(file.path(), ByteTokenizer(), 8, 0);
    const auto metrics = task.metrics(std::vector<RowScore>{{1, true}, {2, false}, {6, true}});
    CHECK(metric(metrics, "accuracy") == doctest::Approx(2.0 / 3));
    CHECK(*metrics[0].standard_error == doctest::Approx(std::sqrt(2.0 / 9 / 2)));
    CHECK(metric(metrics, "perplexity") == doctest::Approx(std::exp(3)));
    const LambadaTask one(file.path(), ByteTokenizer(), 8, 1);
    CHECK(!one.metrics(std::vector<RowScore>{{1, true}})[0].standard_error);
  }

  TEST_CASE("HellaSwag's numbers") {
    // "é" is one character, two bytes, and two tokens of the byte tokenizer.
    const Sample file(
        "{\"ctx\": \"c\", \"endings\": [\"abcd\", \"\u00e9\", \"a\"], \"label\": 0}\n"
        "{\"ctx\": \"c\", \"endings\": [\"ab\", \"abcdef\"], \"label\": 1}\n");
    const HellaSwagTask task(file.path(), ByteTokenizer(), 16, 0);
    REQUIRE(task.rows() == 5);
    CHECK(task.examples() == 2);
    CHECK(text_of(task.row(1)) == "c \u00e9");
    CHECK(task.row(1).scored == 3);
    const auto of = [&](std::vector<double> nll, const char* name) {
      std::vector<RowScore> scores;
      for (const double x : nll) scores.push_back({x, false});
      return metric(task.metrics(scores), name);
    };
    // By sums both examples are wrong. By bytes (8/4, 6/2, 7/1 and 5/2, 9/6) and by tokens (8/5,
    // 6/3, 7/2 and 5/3, 9/7) both are right.
    const std::vector<double> nll = {8, 6, 7, 5, 9};
    CHECK(of(nll, "accuracy") == 0);
    CHECK(of(nll, "acc_norm") == 1);
    CHECK(of(nll, "acc_norm_tokens") == 1);
    // By bytes (8/4, 5/2, 9/1 and 2.9/2, 9/6) the second example is wrong.
    CHECK(of({8, 5, 9, 2.9, 9}, "acc_norm") == 0.5);
    // 8/4 is less than 4.7/2, but 8/5 is not less than 4.7/3.
    CHECK(of({8, 4.7, 9, 9, 1}, "acc_norm") == 1);
    CHECK(of({8, 4.7, 9, 9, 1}, "acc_norm_tokens") == 0.5);
    CHECK(of({1, 1, 1, 1, 1}, "accuracy") == 0.5);  // the first of equal scores wins
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(of({nan, nan, nan, nan, nan}, "accuracy") == 0);
  }

  TEST_CASE("the table and the line of the log") {
    const EvalResult result{"lambada", "a file", "how", 8, {{"accuracy", 0.25, 0.125}, {"p", 2.5}}};
    CHECK(eval_table({result}) ==
          "# lambada a file: how\n"
          "task     metric    value  std_err  examples  file\n"
          "lambada  accuracy  0.25   0.125    8         a file\n"
          "lambada  p         2.5    -        8         a file\n");
    CHECK(log_line(log_record(result, 3)) ==
          R"({"step":3,"eval":"lambada","file":"a file","examples":8,"accuracy":0.25,"p":2.5})");
  }
}
