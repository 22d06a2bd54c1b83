// Files of prompts, the JSON of completions, and the order in which completions are printed.
#include <doctest/doctest.h>

#include <cmath>
#include <iostream>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/infer/completion.h"
#include "llmc/infer/prompt_list.h"
#include "test/compressed_samples.h"
#include "test/support.h"

TEST_SUITE_BEGIN("prompt_list");

namespace {

using llmc::Completion;
using llmc::CompletionOrder;
using llmc::PromptEntry;
using llmc_test::complaint;
using llmc_test::contains;
using Texts = std::vector<std::string>;

// The entries of a file with this name and content, and the warnings about it.
struct Listed {
  std::vector<PromptEntry> entries;
  std::string path, warnings;
};
Listed listed(const std::string& name, const std::string& content) {
  const llmc_test::TemporaryDirectory folder;
  Listed result;
  result.path = folder.file(name);
  llmc::write_file(result.path, content);
  std::ostringstream err;
  std::streambuf* old = std::cerr.rdbuf(err.rdbuf());
  try {
    result.entries = llmc::read_prompt_list(result.path);
  } catch (...) {
    std::cerr.rdbuf(old);
    throw;
  }
  std::cerr.rdbuf(old);
  result.warnings = err.str();
  return result;
}

// The only entry of a .jsonl file with this line.
PromptEntry entry_of(const std::string& line) {
  const auto entries = listed("a.jsonl", line).entries;
  REQUIRE(entries.size() == 1);
  return entries[0];
}

Texts keys_of(const std::string& json) {
  Texts keys;
  const auto object = llmc::parse_json(json, "the output", llmc::KeyOrder::as_written);
  for (const auto& member : object.items()) keys.push_back(member.key);
  return keys;
}

Completion sample_completion() {
  return {.id = "7",
          .prompt = "The \xFFking",
          .sample = 2,
          .prompt_tokens = 3,
          .ids = {5, 6},
          .logprobs = {-1.2f, -0.1f},
          .text = "a \"text\"\n",
          .finish = llmc::Finish::stop,
          .seed = 9007199254740993u,
          .prompt_ms = 2.5,
          .generate_ms = 4,
          .error = ""};
}

// The prompts of released completions with their samples, such as "a0 a1 b0 ".
std::string names(const std::vector<Completion>& released) {
  std::string text;
  for (const Completion& c : released) text += c.prompt + std::to_string(c.sample) + " ";
  return text;
}

}  // namespace

TEST_CASE("each line of a text file is a prompt, also one that begins with a brace") {
  const Listed file = listed("a.txt", "one\r\n{\"prompt\": \"two\"}\n\n  three");
  REQUIRE(file.entries.size() == 4);
  const Texts prompts = {"one", "{\"prompt\": \"two\"}", "", "  three"};
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    CAPTURE(i);
    const PromptEntry& entry = file.entries[i];
    CHECK(entry.prompt == prompts[i]);
    CHECK(entry.id == std::to_string(i + 1));
    CHECK(entry.location == file.path + ":" + std::to_string(i + 1));
    CHECK(entry.error == (i == 2 ? entry.location + " is empty" : ""));
    CHECK(!entry.tokens);
    CHECK(!entry.seed);
    CHECK(entry.stop.empty());
  }
  CHECK(listed("b", "a\n").entries.size() == 1);
  CHECK(listed("b", "\r\n").entries[0].error != "");
  CHECK(listed("b",
               "\xEF\xBB\xBF"
               "a\n")
            .entries[0]
            .prompt == "a");
}

TEST_CASE("each line of a .jsonl file is an object with a prompt") {
  const Listed file =
      listed("a.jsonl",
             "{\"prompt\": \"a\\nb\"}\r\n"
             "\n"
             "{\"id\": \"x\", \"prompt\": \"\", \"tokens\": 5, \"seed\": 6, \"stop\": \"s\"}\n"
             "{\"stop\": [\"a,b\", \"\\n\"], \"prompt\": \"c\", \"id\": 12}");
  REQUIRE(file.entries.size() == 3);
  const PromptEntry &first = file.entries[0], &second = file.entries[1], &third = file.entries[2];
  for (const PromptEntry& entry : file.entries) CHECK(entry.error == "");
  CHECK(first.prompt == "a\nb");
  CHECK(first.id == "1");
  CHECK(second.id == "x");
  CHECK(second.prompt == "");
  CHECK(second.tokens == 5);
  CHECK(second.seed == 6);
  CHECK(second.stop == Texts{"s"});
  CHECK(second.location == file.path + ":3");
  CHECK(third.id == "12");
  CHECK(third.stop == Texts{"a,b", "\n"});
  const auto drawn = entry_of("{\"prompt\": \"a\", \"seed\": -1}").seed;
  REQUIRE(drawn);
  CHECK(*drawn >= 0);
  CHECK(*drawn < std::int64_t{1} << 53);
}

TEST_CASE("a line that is no prompt has an error with file, line and key; other lines are read") {
  const Texts lines = {"{\"prompt\": \"a\"",
                       "[1]",
                       "{\"id\": \"x\"}",
                       "{\"prompt\": 1}",
                       "{\"prompt\": \"a\", \"tokens\": 0}",
                       "{\"prompt\": \"a\", \"tokens\": 1.5}",
                       "{\"prompt\": \"a\", \"tokens\": \"5\"}",
                       "{\"prompt\": \"a\", \"seed\": -2}",
                       "{\"prompt\": \"a\", \"stop\": 1}",
                       "{\"prompt\": \"a\", \"stop\": [1]}",
                       "{\"prompt\": \"a\", \"stop\": \"\"}",
                       "{\"prompt\": \"a\", \"id\": null}",
                       "{\"prompt\": \"a\", \"max_tokens\": 3}",
                       "{\"prompt\": \"a\", \"prompt\": \"b\"}",
                       "{\"prompt\": \"\xC3(\"}"};
  const Texts phrases = {
      "is not valid JSON",
      "is not a JSON object",
      "the key \"prompt\" is missing",
      "\"prompt\" is not a string",
      "\"tokens\" is 0",
      "\"tokens\" is 1.5",
      "\"tokens\" is \"5\"",
      "\"seed\" is -2",
      "\"stop\" is not a text or a list of texts",
      "\"stop\" is not a string",
      "\"stop\" is an empty text",
      "\"id\" is not a string or a whole number",
      "\"max_tokens\" is not one of the keys prompt, id, tokens, seed, stop; did "
      "you mean tokens?",
      "holds the key \"prompt\" twice",
      "is not valid JSON"};
  REQUIRE(lines.size() == phrases.size());
  std::string content;
  for (const std::string& line : lines) content += line + "\n";
  const Listed file = listed("a.jsonl", content + "{\"prompt\": \"good\"}\n");
  REQUIRE(file.entries.size() == lines.size() + 1);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    CAPTURE(lines[i]);
    const PromptEntry& entry = file.entries[i];
    CHECK(contains(entry.error, phrases[i]));
    CHECK(contains(entry.error, file.path + ":" + std::to_string(i + 1)));
  }
  CHECK(file.entries[2].id == "x");
  CHECK(file.entries[4].prompt == "a");
  CHECK(file.entries.back().error == "");
  CHECK(file.entries.back().prompt == "good");
}

TEST_CASE("a missing or empty file is one error, and other encodings are warned about") {
  CHECK(contains(complaint([] { llmc::read_prompt_list("/nowhere/a.txt"); }), "/nowhere/a.txt"));
  CHECK(contains(complaint([] { llmc::read_prompt_list("/"); }), "/"));
  for (const char* name : {"a.txt", "a.jsonl"}) {
    CHECK(contains(complaint([&] { listed(name, ""); }), "is empty"));
  }
  CHECK(contains(complaint([] { listed("a.jsonl", "\n \n"); }), "is empty"));
  std::string latin;
  for (int i = 0; i < 40; ++i) latin += "Un caf\xe9 na\xefve.\n";
  const Listed file = listed("a.txt", latin);
  CHECK(contains(file.warnings, "a.txt looks like Latin-1"));
  CHECK(file.entries.size() == 40);
  CHECK(listed("a.txt", "caf\u00e9\n").warnings == "");
}

TEST_CASE("compressed prompts are read like plain ones") {
  CHECK(listed("a.txt.gz", llmc_test::gzip("one\ntwo\n")).entries.at(1).prompt == "two");
  CHECK(listed("a.jsonl.zst", llmc_test::zstd("{\"prompt\": \"x\"}")).entries.at(0).prompt == "x");
}

TEST_CASE("--json keeps its keys and their order, --jsonl has its own") {
  const std::string json = llmc::completion_json(sample_completion());
  const std::string jsonl = llmc::completion_jsonl(sample_completion());
  CHECK(keys_of(json) == Texts{"prompt_tokens", "tokens", "text", "finish_reason", "seed", "ids",
                               "id", "prompt", "sample", "logprobs", "timings"});
  CHECK(jsonl ==
        "{\"id\":\"7\",\"prompt\":\"The \ufffdking\",\"sample\":2,\"prompt_tokens\":3,"
        "\"tokens\":2,\"text\":\"a \\\"text\\\"\\n\",\"ids\":[5,6],\"logprobs\":[-1.2,-0.1],"
        "\"finish_reason\":\"stop\",\"seed\":9007199254740993,\"timings\":{\"prompt_ms\":2.5,"
        "\"generate_ms\":4.0,\"tokens_per_second\":250.0}}");
  CHECK(llmc::parse_json(json, "json") == llmc::parse_json(jsonl, "jsonl"));
}

TEST_CASE("numbers that are not finite are null, and others keep every bit of fp32") {
  Completion completion = sample_completion();
  const float inf = std::numeric_limits<float>::infinity();
  completion.logprobs = {NAN, -inf, -0.0f, -1.17549435e-38f, -3.4e38f, -0.333333343f, -1e-45f};
  completion.generate_ms = NAN;
  for (const std::string& line :
       {llmc::completion_json(completion), llmc::completion_jsonl(completion)}) {
    const auto object = llmc::parse_json(line, "the output");
    const auto& logprobs = object["logprobs"];
    CHECK(logprobs[0].is_null());
    CHECK(logprobs[1].is_null());
    for (std::size_t i = 2; i < completion.logprobs.size(); ++i) {
      CHECK(static_cast<float>(logprobs[i].number()) == completion.logprobs[i]);
    }
    CHECK(object["timings"]["generate_ms"].is_null());
    CHECK(object["timings"]["tokens_per_second"] == 0);
  }
}

TEST_CASE("a completion with an error has only id, prompt and error") {
  Completion completion = sample_completion();
  completion.error = "a.txt:7 is empty";
  const std::string expected =
      "{\"id\":\"7\",\"prompt\":\"The \ufffdking\",\"error\":\"a.txt:7 is empty\"}";
  CHECK(llmc::completion_json(completion) == expected);
  CHECK(llmc::completion_jsonl(completion) == expected);
}

TEST_CASE("completions are released in the order of prompts, then samples") {
  CompletionOrder order({2, 1, 0, 2});
  const auto add = [&](std::int64_t prompt, std::int64_t sample) {
    Completion completion;
    completion.prompt = "abcd"[prompt];
    completion.sample = sample;
    return names(order.add(prompt, std::move(completion)));
  };
  CHECK(add(1, 0) == "");
  CHECK(add(0, 1) == "");
  CHECK(add(0, 0) == "a0 a1 b0 ");
  CHECK(!order.done());
  CHECK(add(3, 1) == "");
  CHECK_THROWS_AS(add(3, 1), llmc::Error);
  CHECK_THROWS_AS(add(2, 0), llmc::Error);
  CHECK_THROWS_AS(add(3, 2), llmc::Error);
  CHECK_THROWS_AS(add(3, -1), llmc::Error);
  CHECK_THROWS_AS(order.add(4, {}), llmc::Error);
  CHECK_THROWS_AS(order.add(-1, {}), llmc::Error);
  CHECK(add(3, 0) == "d0 d1 ");
  CHECK(order.done());
  CHECK_THROWS_AS(add(0, 0), llmc::Error);
  CHECK(CompletionOrder({}).done());
}

TEST_SUITE_END();
