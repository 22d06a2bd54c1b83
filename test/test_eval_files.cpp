// Files of evaluation tasks, the token rows made from them, and the metrics computed from scores.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
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
#include "llmc/io/data/token_file.h"
#include "llmc/io/tokenizer/byte_tokenizer.h"
#include "llmc/io/tokenizer/id_tokenizer.h"
#include "llmc/io/tokenizer/word_tokenizer.h"
#include "test/compressed_samples.h"
#include "test/eval_samples.h"

using namespace llmc;
using namespace llmc_test;

namespace {

std::string lambada_error(const std::string& text) {
  const Sample file(text);
  return complaint([&] { read_lambada(file.path()); });
}

std::string hellaswag_error(const std::string& text) {
  const Sample file(text);
  return complaint([&] { read_hellaswag(file.path()); });
}

const std::string kTwoEndings = R"("endings": ["a", "bc"])";

}  // namespace

TEST_SUITE("eval_files") {
  TEST_CASE("a task of --eval is parsed, and the error for an unknown one names the tasks") {
    CHECK(parse_eval_spec("lambada:a:b.jsonl").file == "a:b.jsonl");
    for (const char* bad : {"lambda:x", "lambada", "lambada:", ":x", "", "LAMBADA:x"}) {
      check_message(complaint([&] { parse_eval_spec(bad); }), {bad, "TASK:FILE", "hellaswag"});
    }
  }

  TEST_CASE("compressed files are read like plain ones") {
    CHECK(read_lambada(Sample(gzip("{\"text\": \"a last\"}\n")).path()).at(0).word == " last");
    const Sample plain("the king"), packed(zstd("the king"));
    const PerplexityTask::Options options{.T = 8, .stride = 4};
    const PerplexityTask expected("x", plain.path(), ByteTokenizer(), options);
    const PerplexityTask task("x", packed.path(), ByteTokenizer(), options);
    CHECK(std::ranges::equal(task.tokens(), expected.tokens()));
    CHECK(contains(task.protocol(), "8 bytes"));
  }

  TEST_CASE("LAMBADA: the last word follows the last space") {
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

  TEST_CASE("LAMBADA: an error names the line and the field") {
    const std::string good = "{\"text\": \"a b\"}\n";
    check_message(lambada_error(""), {"data", "no examples"});
    check_message(lambada_error("\n \n"), {"data", "no examples"});
    check_message(lambada_error(good + "{text}"), {"data:2", "not valid JSON"});
    check_message(lambada_error(good + "[1]"), {"data:2", "not a JSON object"});
    check_message(lambada_error(good + "{\"txt\": 1}"), {"data:2", "no \"text\""});
    check_message(lambada_error("{\"text\": 5}"), {"data:1", "\"text\"", "not a string"});
    for (const char* text : {"word", " word", "", "  ", "word  "}) {
      check_message(lambada_error("{\"text\": \"" + std::string(text) + "\"}"),
                    {"data:1", "\"text\"", "no word before"});
    }
    check_message(complaint([] { read_lambada("/nowhere/x.jsonl"); }), {"/nowhere/x.jsonl"});
  }

  TEST_CASE("HellaSwag: a context is one field or two, a label is a number or a string") {
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

  TEST_CASE("HellaSwag: an error names the line and the field") {
    const auto check_members = [](const std::string& members,
                                  const std::vector<std::string>& phrases) {
      check_message(hellaswag_error("{" + members + "}"), phrases);
    };
    const std::string context = R"("ctx": "c", )", label = R"(, "label": 0)";
    check_members(kTwoEndings + label, {"data:1", "no \"ctx\""});
    check_members(R"("ctx_a": "A", )" + kTwoEndings + label, {"data:1", "no \"ctx_b\""});
    check_members(R"("ctx": "", )" + kTwoEndings + label, {"data:1", "context is empty"});
    check_members(R"("ctx": 3, )" + kTwoEndings + label, {"data:1", "\"ctx\"", "not a string"});
    check_members(context + R"("label": 0)", {"data:1", "no \"endings\""});
    check_members(context + R"("endings": "a")" + label, {"data:1", "\"endings\"", "list"});
    check_members(context + R"("endings": ["a"])" + label, {"data:1", "\"endings\"", "two"});
    check_members(context + R"("endings": ["a", 2])" + label,
                  {"data:1", "\"endings\"[1]", "not a string"});
    check_members(context + R"("endings": ["a", ""])" + label,
                  {"data:1", "\"endings\"[1]", "empty"});
    check_members(context + kTwoEndings, {"data:1", "no \"label\""});
    for (const char* bad : {"2", "-1", "0.0", "null", "\"two\"", "\"\"", "[0]"}) {
      check_members(context + kTwoEndings + ", \"label\": " + bad,
                    {"data:1", "\"label\"", "0 to 1"});
    }
    check_message(hellaswag_error(""), {"data", "no examples"});
  }

  TEST_CASE("tokenized WikiText is joined to plain text") {
    const auto check = [](const std::string& tokenized, const std::string& text) {
      CHECK(detokenize_wikitext(tokenized) == text);
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

  TEST_CASE("perplexity: every token is scored once, after a context of T - stride + 1 tokens") {
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
            CHECK(row.num_scored >= 1);
            CHECK(length - row.num_scored >= (i == 0 ? 1 : T - stride + 1));
            CHECK(row.tokens[0] == (i == 0 ? 256 : ByteTokenizer().encode(text)[i * stride - 1]));
            scored += scored_text_of(row);
          }
          CHECK(scored == text);
        }
      }
    }
  }

  TEST_CASE("perplexity is reported per token, per word and per byte") {
    const Sample file(" a @-@ b \n c \n");  // 4 words, 2 line ends, 14 bytes; "a-b\nc\n": 6 bytes
    const auto metrics = [&](bool detokenize, double nll) {
      const PerplexityTask task("x", file.path(), ByteTokenizer(),
                                {.T = 4, .stride = 4, .detokenize = detokenize});
      std::vector<RowScore> scores(static_cast<std::size_t>(task.rows()));
      scores.front().nll = nll - 1;
      scores.back().nll += 1;
      return task.metrics(scores);
    };
    const auto raw = metrics(false, 28), detokenized = metrics(true, 12);
    CHECK(metric(raw, "token_nll") == doctest::Approx(2));
    CHECK(metric(raw, "token_perplexity") == doctest::Approx(std::exp(2)));
    CHECK(metric(raw, "word_perplexity") == doctest::Approx(std::exp(7)));
    CHECK(metric(raw, "bits_per_byte") == doctest::Approx(2 / std::log(2)));
    CHECK(std::isnan(metric(raw, "word_and_line_end_perplexity")));
    CHECK(metric(detokenized, "token_perplexity") == doctest::Approx(std::exp(2)));
    CHECK(metric(detokenized, "word_perplexity") == doctest::Approx(std::exp(3)));
    CHECK(metric(detokenized, "word_and_line_end_perplexity") == doctest::Approx(std::exp(2)));
    CHECK(metric(detokenized, "bits_per_byte") == doctest::Approx(12 / std::log(2) / 14));
  }

  TEST_CASE("perplexity of an empty, short or unknown text is an error") {
    const auto error_of = [](const std::string& file, const Tokenizer& tokenizer) {
      return complaint([&] { PerplexityTask("x", file, tokenizer, {.T = 4, .stride = 2}); });
    };
    check_message(error_of(Sample("").path(), ByteTokenizer()), {"data"});
    const Sample empty(""), words("the\nking\n"), one("the"), unknown("the queen");
    check_message(error_of(empty.path(), ByteTokenizer()), {"data", "empty"});
    check_message(error_of("/nowhere.bin", ByteTokenizer()), {"nowhere.bin"});
    const WordTokenizer tokenizer(words.path());
    check_message(error_of(one.path(), tokenizer), {"data", "too few tokens"});
    check_message(error_of(unknown.path(), tokenizer), {"data", "queen"});
    CHECK(error_of(words.path(), tokenizer).empty());
  }

  TEST_CASE("the perplexity of a token file is that of its text") {
    const llmc_test::TemporaryDirectory folder;
    const std::string text = "a few words\nand more";
    write_file(folder.file("a.txt"), text);
    const ByteTokenizer bytes;
    std::vector<std::int32_t> ids = bytes.encode(text);
    const auto write_tokens = [&](const std::string& name) {
      TokenFileWriter writer(folder.file(name), bytes.vocabulary_size(), std::ssize(ids));
      writer.append(ids);
      writer.finish();
    };
    write_tokens("a.bin");
    ids.insert(ids.begin(), *bytes.end_of_text());
    write_tokens("b.bin");  // with an end-of-text, which must not be doubled
    const PerplexityTask::Options options{.T = 6, .stride = 4};
    const PerplexityTask plain("x", folder.file("a.txt"), bytes, options);
    const std::vector<RowScore> scores(static_cast<std::size_t>(plain.rows()), RowScore{.nll = 2});
    for (const char* name : {"a.bin", "b.bin"}) {
      const PerplexityTask tokens("x", folder.file(name), bytes, options);
      REQUIRE(tokens.rows() == plain.rows());
      for (std::int64_t i = 0; i < plain.rows(); ++i) {
        CHECK(tokens.row(i).tokens == plain.row(i).tokens);
        CHECK(tokens.row(i).num_scored == plain.row(i).num_scored);
      }
      CHECK(metric(tokens.metrics(scores), "bits_per_byte") ==
            metric(plain.metrics(scores), "bits_per_byte"));
      CHECK(std::isnan(metric(tokens.metrics(scores), "word_perplexity")));
    }
    const PerplexityTask ids_only("x", folder.file("b.bin"), IdTokenizer(257), options);
    CHECK(ids_only.examples() == plain.examples());
    CHECK(std::isnan(metric(ids_only.metrics(scores), "bits_per_byte")));
  }

  TEST_CASE("contexts that are too long are truncated at their beginning") {
    const Sample file("{\"text\": \"0123456789 word\"}\n{\"text\": \"0 word\"}\n");
    const LambadaTask untruncated(file.path(), ByteTokenizer(), 14, 0);
    CHECK(text_of(untruncated.row(0)) == "0123456789 word");
    CHECK(contains(untruncated.protocol(), "0 of 2 contexts"));
    const LambadaTask truncated(file.path(), ByteTokenizer(), 7, 0);
    CHECK(text_of(truncated.row(0)) == "789 word");
    CHECK(scored_text_of(truncated.row(0)) == " word");
    CHECK(text_of(truncated.row(1)) == "0 word");
    CHECK(contains(truncated.protocol(), "1 of 2 contexts"));
    const LambadaTask shortest(file.path(), ByteTokenizer(), 5, 0);
    CHECK(text_of(shortest.row(0)) == "9 word");
    const LambadaTask cut(file.path(), ByteTokenizer(), 4, 0);
    CHECK(text_of(cut.row(0)) == " word");
    CHECK(scored_text_of(cut.row(0)) == "word");
    CHECK(contains(cut.protocol(), "2 of 2 contexts cut on the left to fit 4 tokens, 2 of them"));
  }

  TEST_CASE("an ending that exceeds the context is scored by its last part") {
    const Sample file("{\"ctx\": \"c\", \"endings\": [\"abcdefgh\", \"xy\"], \"label\": 0}\n");
    const HellaSwagTask whole(file.path(), ByteTokenizer(), 9, 0);
    CHECK_FALSE(contains(whole.protocol(), "last 9 tokens"));
    const HellaSwagTask task(file.path(), ByteTokenizer(), 4, 0);
    CHECK(text_of(task.row(0)) == "defgh");
    CHECK(scored_text_of(task.row(0)) == "efgh");
    CHECK(scored_text_of(task.row(1)) == " xy");
    CHECK(contains(task.protocol(),
                   "1 of 2 contexts cut on the left to fit 4 tokens, 1 of them without context: "
                   "their longer continuations are scored by their last 4 tokens"));
    // The cut ending is compared by its 4 scored bytes: 8/4 is more than 3/2.
    const auto metrics = task.metrics(std::vector<RowScore>{{8, false}, {3, false}});
    CHECK(metric(metrics, "acc_norm") == 0);
    CHECK(metric(metrics, "acc_norm_tokens") == 0);
  }

  TEST_CASE("LAMBADA reports accuracy, its standard error and perplexity") {
    const Sample file("{\"text\": \"a b\"}\n{\"text\": \"a b\"}\n{\"text\": \"a b\"}\n");
    const LambadaTask task(file.path(), ByteTokenizer(), 8, 0);
    const auto metrics = task.metrics(std::vector<RowScore>{{1, true}, {2, false}, {6, true}});
    CHECK(metric(metrics, "accuracy") == doctest::Approx(2.0 / 3));
    CHECK(*metrics[0].standard_error == doctest::Approx(std::sqrt(2.0 / 9 / 2)));
    CHECK(metric(metrics, "perplexity") == doctest::Approx(std::exp(3)));
    const LambadaTask one(file.path(), ByteTokenizer(), 8, 1);
    CHECK(!one.metrics(std::vector<RowScore>{{1, true}})[0].standard_error);
  }

  TEST_CASE("HellaSwag reports accuracy by sums, per byte and per token") {
    // "é" is one character, two bytes, and two tokens of the byte tokenizer.
    const Sample file(
        "{\"ctx\": \"c\", \"endings\": [\"abcd\", \"\u00e9\", \"a\"], \"label\": 0}\n"
        "{\"ctx\": \"c\", \"endings\": [\"ab\", \"abcdef\"], \"label\": 1}\n");
    const HellaSwagTask task(file.path(), ByteTokenizer(), 16, 0);
    REQUIRE(task.rows() == 5);
    CHECK(task.examples() == 2);
    CHECK(text_of(task.row(1)) == "c \u00e9");
    CHECK(task.row(1).num_scored == 3);
    const auto metric_of = [&](std::vector<double> nll, const char* name) {
      std::vector<RowScore> scores;
      for (const double x : nll) scores.push_back({x, false});
      return metric(task.metrics(scores), name);
    };
    // By sums both examples are wrong. By bytes (8/4, 6/2, 7/1 and 5/2, 9/6) and by tokens (8/5,
    // 6/3, 7/2 and 5/3, 9/7) both are right.
    const std::vector<double> nll = {8, 6, 7, 5, 9};
    CHECK(metric_of(nll, "accuracy") == 0);
    CHECK(metric_of(nll, "acc_norm") == 1);
    CHECK(metric_of(nll, "acc_norm_tokens") == 1);
    // By bytes (8/4, 5/2, 9/1 and 2.9/2, 9/6) the second example is wrong.
    CHECK(metric_of({8, 5, 9, 2.9, 9}, "acc_norm") == 0.5);
    // 8/4 is less than 4.7/2, but 8/5 is not less than 4.7/3.
    CHECK(metric_of({8, 4.7, 9, 9, 1}, "acc_norm") == 1);
    CHECK(metric_of({8, 4.7, 9, 9, 1}, "acc_norm_tokens") == 0.5);
    CHECK(metric_of({1, 1, 1, 1, 1}, "accuracy") == 0.5);  // the first of equal scores wins
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(metric_of({nan, nan, nan, nan, nan}, "accuracy") == 0);
  }

  TEST_CASE("the table and the log line have the values of the results") {
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
