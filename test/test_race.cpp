// Files of RACE, the token rows made from them, and the metrics computed from scores.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "llmc/eval/eval_files.h"
#include "llmc/eval/multiple_choice.h"
#include "test/eval_samples.h"

using namespace llmc;
using namespace llmc_test;

namespace {

std::string race_error(const std::string& text) {
  const Sample file(text);
  return complaint([&] { read_race(file.path()); });
}

const std::string kFourOptions = R"(["a", "bc", "d", "e"])";

}  // namespace

TEST_SUITE("race") {
  TEST_CASE("RACE: a line is a question, or an article with lists of questions") {
    const std::string question =
        R"({"article": "A.", "question": "Why?", "options": )" + kFourOptions;
    const Sample file(
        question + R"(, "answer": "C"})" + "\n\n" + question + R"(, "answer": 1})" + "\n" +
        question + R"(, "answer": "3"})" + "\n" +
        R"({"id": "high1.txt", "article": "B.", "questions": ["x", "y _ ."], "options": [)" +
        kFourOptions + R"(, ["1", "2", "3", "4"]], "answers": ["A", "D"]})");
    const auto examples = read_race(file.path());
    REQUIRE(examples.size() == 5);
    CHECK(examples[0].article == "A.");
    CHECK(examples[0].question == "Why?");
    CHECK(examples[0].options == std::vector<std::string>{"a", "bc", "d", "e"});
    const std::size_t answers[] = {2, 1, 3, 0, 3};
    for (std::size_t i = 0; i < 5; ++i) CHECK(examples[i].answer == answers[i]);
    CHECK(examples[1].line == 3);
    CHECK(examples[3].article == "B.");
    CHECK(examples[4].question == "y _ .");
    CHECK(examples[4].options[1] == "2");
    CHECK(examples[4].line == 5);
    CHECK(read_race(file.path(), 1).size() == 1);
    CHECK(read_race(file.path(), 4).size() == 4);
    CHECK(read_race(file.path(), 9).size() == 5);
  }

  TEST_CASE("RACE: an error names the line and the field") {
    const auto check_members = [](const std::string& members,
                                  const std::vector<std::string>& phrases) {
      check_message(race_error("{" + members + "}"), phrases);
    };
    const std::string article = R"("article": "c", )", question = R"("question": "q", )",
                      options = R"("options": )" + kFourOptions, answer = R"(, "answer": 0)";
    check_members(question + options + answer, {"data:1", "no \"article\""});
    check_members(R"("article": "", )" + question + options + answer,
                  {"data:1", "\"article\"", "empty"});
    check_members(article + options + answer, {"data:1", "no \"question\""});
    check_members(article + R"("question": 1, )" + options + answer,
                  {"data:1", "\"question\"", "not a string"});
    check_members(article + question + R"("answer": 0)", {"data:1", "no \"options\""});
    check_members(article + question + options, {"data:1", "no \"answer\""});
    check_members(article + question + R"("options": "a")" + answer,
                  {"data:1", "\"options\"", "four"});
    check_members(article + question + R"("options": ["a", "b", "c"])" + answer,
                  {"data:1", "\"options\"", "four"});
    check_members(article + question + R"("options": ["a", "b", "c", 4])" + answer,
                  {"data:1", "\"options\"[3]", "not a string"});
    check_members(article + question + R"("options": ["a", "", "c", "d"])" + answer,
                  {"data:1", "\"options\"[1]", "empty"});
    for (const char* bad : {"4", "-1", "0.0", "null", "\"E\"", "\"a\"", "\"\"", "[0]"}) {
      check_members(article + question + options + ", \"answer\": " + bad,
                    {"data:1", "\"answer\"", "\"A\" to \"D\""});
    }
    const std::string questions = R"("questions": ["q", "r"], )",
                      answers = R"(, "answers": [0, "E"])";
    const std::string lists = R"("options": [)" + kFourOptions + ", " + kFourOptions + "]";
    check_members(article + questions + lists, {"data:1", "no \"answers\""});
    check_members(article + questions + R"("answers": [0, 1])", {"data:1", "no \"options\""});
    check_members(article + questions + lists + answers, {"data:1", "\"answers\"[1] is E"});
    check_members(article + questions + lists + R"(, "answers": [0])",
                  {"data:1", "\"answers\" has 1 entries for 2 questions"});
    check_members(article + questions + options + R"(, "answers": [0, 1])",
                  {"data:1", "\"options\" has 4"});
    check_members(article + R"("questions": ["q", 2], )" + lists + R"(, "answers": [0, 1])",
                  {"data:1", "\"questions\"[1]", "not a string"});
    check_members(article + R"("questions": "q", )" + lists + answers,
                  {"data:1", "\"questions\"", "list"});
    check_members(article + R"("questions": [], )" + lists + answers,
                  {"data:1", "\"questions\"", "empty"});
    check_message(race_error(""), {"data", "no examples"});
  }

  TEST_CASE("RACE: an option follows the question, or replaces its gap") {
    const auto line = [](const std::string& question) {
      return R"({"article": "Art. \n", "question": ")" + question + R"(", "options": )" +
             kFourOptions + R"(, "answer": 1})" + "\n";
    };
    const Sample file(line("Why?") + line("It is  _  .") + line("__ is the title."));
    const RaceTask task(file.path(), ByteTokenizer(), 40, 0);
    REQUIRE(task.rows() == 12);
    CHECK(task.examples() == 3);
    CHECK(text_of(task.row(1)) == "Art.\nWhy? bc");
    CHECK(scored_text_of(task.row(1)) == " bc");
    CHECK(text_of(task.row(5)) == "Art.\nIt is bc.");
    CHECK(scored_text_of(task.row(5)) == " bc.");
    CHECK(text_of(task.row(9)) == "Art.\n bc is the title.");
    CHECK(scored_text_of(task.row(9)) == " bc is the title.");
    const std::vector<double> nll = {3, 2, 3, 3, 1, 2, 3, 3, 3, 2, 3, 3};
    std::vector<RowScore> scores;
    for (const double x : nll) scores.push_back({x, false});
    CHECK(metric(task.metrics(scores), "accuracy") == doctest::Approx(2.0 / 3));
    scores[4].nll = 1.5;  // 1.5/2 bytes against 2/3: with the point, which is scored too
    CHECK(metric(task.metrics(scores), "acc_norm") == 1);
    CHECK(contains(task.protocol(), "0 of 12 contexts"));
    const RaceTask truncated(file.path(), ByteTokenizer(), 19, 1);
    CHECK(contains(truncated.protocol(), "0 of 4 contexts"));
    const RaceTask shorter(file.path(), ByteTokenizer(), 10, 1);
    CHECK(text_of(shorter.row(1)) == "rt.\nWhy? bc");
    CHECK(contains(shorter.protocol(), "1 of 4 contexts"));
  }
}
