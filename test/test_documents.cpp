// Documents from files, texts cut for several threads, and tokens in files of a bounded size.
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/threads.h"
#include "llmc/io/data/documents.h"
#include "llmc/io/tokenizer/gpt2_splitter.h"
#include "llmc/io/tokenizer/text_cuts.h"
#include "llmc/io/tokenizer/tokenizer.h"
#include "llmc/tokenize/token_shards.h"
#include "test/support.h"

TEST_SUITE_BEGIN("documents");

namespace {

using llmc::Document;
using llmc::DocumentFormat;
using llmc::DocumentReader;
using llmc::Shard;
using llmc::TokenShards;
using llmc_test::complaint;
using llmc_test::contains;
using llmc_test::TemporaryDirectory;
using Ids = std::vector<std::int32_t>;
using Strings = std::vector<std::string>;

std::string write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

Strings read_all(DocumentReader& reader) {
  Strings texts;
  Document document;
  std::string storage;
  while (reader.next(document)) texts.emplace_back(reader.text_of(document, storage));
  return texts;
}

Strings texts_of(const Strings& paths, const DocumentFormat& format = {}) {
  DocumentReader reader(paths, format);
  const Strings texts = read_all(reader);
  CHECK(reader.bytes_read() == reader.total_bytes());
  return texts;
}

DocumentFormat split_on(const std::string& line) {
  DocumentFormat format;
  format.separator = line;
  return format;
}

// ---- documents -------------------------------------------------------------------------------

TEST_CASE("a text is one document with all its bytes") {
  const TemporaryDirectory folder;
  const std::string bytes("a\r\n\0b\xff\xc3\n\n", 9);
  CHECK(texts_of({write(folder.file("a.txt"), bytes), write(folder.file("b.txt"), "\n")}) ==
        Strings{bytes, "\n"});
}

TEST_CASE("a line separates the documents of a text") {
  const TemporaryDirectory folder;
  const auto split = [&](const std::string& text, const std::string& line) {
    return texts_of({write(folder.file("a.txt"), text)}, split_on(line));
  };
  CHECK(split("one\ntwo\n--\nthree", "--") == Strings{"one\ntwo\n", "three"});
  CHECK(split("--\n--\none\n--\n--\ntwo\n--\n", "--") == Strings{"one\n", "two\n"});
  CHECK(split("one\r\n--\r\ntwo\r\n", "--") == Strings{"one\r\n", "two\r\n"});
  CHECK(split("one --\n---\n --\n", "--") == Strings{"one --\n---\n --\n"});
  CHECK(split("one\n\n\ntwo\n\r\nthree", "") == Strings{"one\n", "two\n", "three"});
  CHECK(split("one\n--", "--") == Strings{"one\n"});
  CHECK(split("--\n--", "--").empty());
}

TEST_CASE("each line of JSON lines is a document, the text of one field") {
  const TemporaryDirectory folder;
  const std::string path = write(folder.file("a.jsonl"),
                                 "{\"id\": 1, \"text\": \"one\", \"body\": \"uno\"}\r\n"
                                 "\n  \t\r\n"
                                 "{\"text\": \"\", \"body\": \"\\u0000\\ud83d\\ude00\\n\"}\n"
                                 "{\"body\":\"tres\",\"text\":\"three\"}");
  CHECK(texts_of({path}) == Strings{"one", "", "three"});
  DocumentFormat format;
  format.field = "body";
  CHECK(texts_of({path}, format) == Strings{"uno", std::string("\0\xf0\x9f\x98\x80\n", 6), "tres"});
}

TEST_CASE("a place is a file name and a line number") {
  const TemporaryDirectory folder;
  const std::string path = write(folder.file("a.txt"), "one\ntwo\n--\nthree\n--\nfour");
  DocumentReader reader({path}, split_on("--"));
  Document document;
  Strings places;
  while (reader.next(document)) places.push_back(reader.place(document));
  CHECK(places == Strings{path + ":1", path + ":4", path + ":6"});
}

TEST_CASE("the file name selects the format unless the format is given") {
  const TemporaryDirectory folder;
  const std::string path = write(folder.file("a.log"), "{\"text\":\"x\"}\n");
  CHECK(contains(complaint([&] { texts_of({path}); }), "a.log is neither .txt nor .jsonl"));
  DocumentFormat format;
  format.kind = DocumentFormat::Kind::text;
  CHECK(texts_of({path}, format) == Strings{"{\"text\":\"x\"}\n"});
  format.kind = DocumentFormat::Kind::json_lines;
  CHECK(texts_of({path}, format) == Strings{"x"});
}

TEST_CASE("the error for an invalid input names file, line and field") {
  const TemporaryDirectory folder;
  const std::string good = "{\"text\":\"x\"}\n\n";
  const auto error_of_line = [&](const std::string& line) {
    const std::string path = write(folder.file("a.jsonl"), good + line + "\n" + good);
    return complaint([&] { texts_of({path}); });
  };
  for (const std::string line :
       {"x", "{\"text\":\"x\"", "{\"text\":\"\xff\"}", "{\"text\":\"\\ud800\"}",
        "{\"text\":\"\\udc00\\ud800\"}", "{\"text\":\"a\tb\"}", "{\"text\":\"x\"} {}",
        "{\"text\":\"x\",\"text\":\"y\"}"}) {
    INFO(line);
    CHECK(contains(error_of_line(line), folder.file("a.jsonl") + ":3 "));
  }
  CHECK(contains(error_of_line(std::string("{\"text\":\"\0\"}", 12)), ":3 is not valid JSON"));
  CHECK(contains(error_of_line("[\"text\"]"), ":3 is not a JSON object"));
  CHECK(contains(error_of_line("{\"body\":1}"), ":3 has no field \"text\" (it has: body)"));
  CHECK(contains(error_of_line("{}"), ":3 has no field \"text\" (it is empty)"));
  for (const std::string value : {"null", "1", "[\"x\"]", "{\"text\":\"x\"}"}) {
    CHECK(contains(error_of_line("{\"text\":" + value + "}"),
                   ":3: the field \"text\" is not a string"));
  }
  CHECK(
      contains(complaint([&] { texts_of({write(folder.file("e.txt"), "")}); }), "e.txt is empty"));
  CHECK(contains(complaint([&] { texts_of({folder.file("none.txt")}); }), "none.txt"));
  std::filesystem::create_directory(folder.file("d.txt"));
  CHECK(contains(complaint([&] { texts_of({folder.file("d.txt")}); }), "d.txt"));
}

TEST_CASE("empty inputs are skipped unless all are empty") {
  const TemporaryDirectory folder;
  const std::string empty = write(folder.file("e.txt"), ""),
                    blank = write(folder.file("b.jsonl"), "\n \t\r\n"),
                    text = write(folder.file("a.txt"), "one");
  DocumentReader reader({empty, text, blank, empty}, {});
  CHECK(reader.empty_reason(0) == empty + " is empty");
  CHECK(reader.empty_reason(1).empty());
  CHECK(reader.empty_reason(2) == blank + " has no documents");
  CHECK(read_all(reader) == Strings{"one"});
  reader.release_read();
  CHECK(contains(complaint([&] { texts_of({blank, empty}); }), "all 2 inputs are empty"));
  CHECK(contains(complaint([&] { texts_of({blank}); }), "b.jsonl has no documents"));
}

TEST_CASE("a file that changes while it is read is an error") {
  const TemporaryDirectory folder;
  const std::string path = write(folder.file("a.txt"), "one");
  DocumentReader reader({path}, {});
  reader.check_unchanged();
  std::filesystem::last_write_time(
      path, std::filesystem::file_time_type::clock::now() + std::chrono::seconds(5));
  CHECK(contains(complaint([&] { reader.check_unchanged(); }), "a.txt was changed"));
}

// ---- cuts ------------------------------------------------------------------------------------

// A random text in which all inputs that the splitting pattern distinguishes meet: letters and
// contractions, digits, white space of one, two and three bytes, other characters, bytes that are
// not UTF-8.
std::string random_text(std::mt19937_64& random, std::size_t pieces) {
  static const Strings kPieces = {"a",
                                  "Z",
                                  "s",
                                  "'s",
                                  "'",
                                  "'ve",
                                  "ll",
                                  "re",
                                  " ",
                                  " ",
                                  " ",
                                  "  ",
                                  "\n",
                                  "\t",
                                  "\r",
                                  "7",
                                  "42",
                                  ".",
                                  "!?",
                                  "-",
                                  "\xc2\xa0",
                                  "\xe3\x80\x80",
                                  "\xe2\x80\xa8",
                                  "\xc3\xa9",
                                  "\xe4\xb8\xad",
                                  "\xf0\x9f\x98\x80",
                                  "\xff",
                                  "\xc3",
                                  "\xe2\x80",
                                  std::string(1, '\0')};
  std::string text;
  for (std::size_t i = 0; i < pieces; ++i) text += kPieces[random() % kPieces.size()];
  return text;
}

std::string concatenate(const std::vector<std::string_view>& parts) {
  std::string text;
  for (const auto part : parts) text += part;
  return text;
}

TEST_CASE("a text cut into parts has the pieces of the whole text") {
  const llmc::Gpt2Splitter splitter;
  std::mt19937_64 random(1);
  std::size_t cuts = 0;
  for (int round = 0; round < (llmc_test::tiny_shapes() ? 300 : 8000); ++round) {
    const std::string text = random_text(random, 1 + random() % 60);
    const auto parts = llmc::cut_text(text, random() % 8);
    REQUIRE(concatenate(parts) == text);
    cuts += parts.size() - 1;
    std::vector<std::string_view> whole, separate;
    splitter.split(text, [&](std::string_view piece) { whole.push_back(piece); });
    for (const auto part : parts) {
      splitter.split(part, [&](std::string_view piece) { separate.push_back(piece); });
    }
    REQUIRE(separate == whole);
  }
  CHECK(cuts > 200);
}

TEST_CASE("a real text cut into parts has the tokens of the whole text") {
  const std::string data = llmc_test::data_dir();
  if (data.empty()) return llmc_test::skip("the shared texts are missing");
  const auto tokenizer = llmc::make_tokenizer(data + "/gpt2");
  CHECK(llmc::cuts_are_exact(*tokenizer));
  const std::string text = llmc::read_file(data + "/text/tinyshakespeare.txt").substr(0, 200'000);
  const Ids whole = tokenizer->encode(text);
  for (const std::size_t min_bytes : {1, 100, 5000}) {
    const auto parts = llmc::cut_text(text, min_bytes);
    CHECK(parts.size() > text.size() / (40 * min_bytes + 40));
    Ids ids;
    for (const auto part : parts) {
      const Ids tokens = tokenizer->encode(part);
      ids.insert(ids.end(), tokens.begin(), tokens.end());
    }
    CHECK(ids == whole);
  }
}

TEST_CASE("a text is cut only at a space between two letters, and not before the minimum size") {
  using Views = std::vector<std::string_view>;
  CHECK(llmc::cut_text("", 4) == Views{""});
  CHECK(llmc::cut_text("ab cd ef", 0) == Views{"ab", " cd", " ef"});
  CHECK(llmc::cut_text("ab cd ef", 3) == Views{"ab cd", " ef"});
  CHECK(llmc::cut_text("ab cd ef", 100) == Views{"ab cd ef"});
  CHECK(llmc::cut_text(" ab. c 1 d  e \nf ", 0) == Views{" ab. c 1 d  e \nf "});
}

// ---- threads ---------------------------------------------------------------------------------

TEST_CASE("each index is processed once for any number of threads") {
  for (const std::int64_t threads : {1, 2, 7}) {
    for (const std::size_t count : {0, 1, 5, 1000}) {
      std::vector<std::atomic<int>> num_calls(count);
      llmc::for_each_parallel(count, threads, [&](std::size_t i) { ++num_calls[i]; });
      for (const auto& calls : num_calls) REQUIRE(calls == 1);
    }
  }
}

TEST_CASE("if several indices fail, the first error in order is reported") {
  for (int round = 0; round < 200; ++round) {
    const std::string message = complaint([] {
      llmc::for_each_parallel(64, 4, [](std::size_t i) {
        if (i % 7 == 3) llmc::fail("number " + std::to_string(i));
      });
    });
    REQUIRE(message == "number 3");
  }
}

// ---- shards ----------------------------------------------------------------------------------

Ids tokens_in(const std::string& path) {
  const llmc::TokenData data = llmc::read_token_file(path);
  Ids ids(static_cast<std::size_t>(data.size()));
  data.copy(0, data.size(), ids.data());
  return ids;
}

// Document n has 3 + n tokens; each token is n.
Ids sample_document(std::int64_t number) {
  return Ids(static_cast<std::size_t>(3 + number), static_cast<std::int32_t>(number));
}

// Writes the documents that the shards still need, two tokens at a time; returns finished shards.
std::vector<Shard> write_documents(const std::string& out, std::int64_t documents,
                                   std::int64_t max_tokens, std::vector<Shard> finished = {},
                                   bool is_complete = true) {
  TokenShards shards(out, 100, max_tokens, std::move(finished), [](const Shard&) {});
  for (std::int64_t number = 0; number < documents; ++number) {
    if (!shards.needs(number)) continue;
    const Ids ids = sample_document(number);
    for (std::size_t at = 0; at < ids.size(); at += 2) {
      shards.append(number, std::span(ids).subspan(at, std::min<std::size_t>(2, ids.size() - at)));
    }
  }
  if (is_complete) shards.finish(documents);
  return shards.shards();
}

TEST_CASE("tokens that fit are in one file, others in shards of one size") {
  const TemporaryDirectory folder;
  for (const std::int64_t max_tokens : {25, 26}) {  // 3 + 4 + 5 + 6 + 7 tokens fit
    CHECK(write_documents(folder.file("a.bin"), 5, max_tokens).size() == 1);
    CHECK(std::filesystem::exists(folder.file("a.bin")));
    CHECK(llmc::existing_shards(folder.file("a.bin")).size() == 1);
  }
  const auto shards = write_documents(folder.file("b.bin"), 5, 8);
  REQUIRE(shards.size() == 4);
  CHECK(!std::filesystem::exists(folder.file("b.bin")));
  CHECK(llmc::existing_shards(folder.file("b.bin")).size() == 4);
  Ids all;
  for (const Shard& shard : shards) {
    const Ids ids = tokens_in(folder.file(shard.file));
    CHECK(std::ssize(ids) == shard.tokens);
    CHECK(shard.tokens == (&shard == &shards.back() ? 1 : 8));
    CHECK(shard.checksum == llmc::checksum_text(llmc::checksum_of_file(folder.file(shard.file))));
    all.insert(all.end(), ids.begin(), ids.end());
  }
  CHECK(all == tokens_in(folder.file("a.bin")));
  CHECK(shards[0].file == "b_000000.bin");
  CHECK(shards[0].document == 2);  // documents have 3, 4, 5 tokens: the 8th is in the third
  CHECK(shards[0].document_tokens == 1);
}

TEST_CASE("writing resumes after any number of finished shards") {
  for (const std::int64_t max_tokens : {1, 2, 3, 7, 8, 12, 24}) {
    const TemporaryDirectory whole, part;
    const auto expected = write_documents(whole.file("a.bin"), 5, max_tokens);
    for (std::size_t stop = 1; stop <= expected.size(); ++stop) {
      const std::vector<Shard> first(expected.begin(),
                                     expected.begin() + static_cast<std::ptrdiff_t>(stop));
      for (const Shard& shard : first) {
        std::filesystem::copy(whole.file(shard.file), part.file(shard.file));
      }
      const auto actual = write_documents(part.file("a.bin"), 5, max_tokens, first);
      REQUIRE(actual.size() == expected.size());
      for (std::size_t i = 0; i < actual.size(); ++i) {
        CHECK(actual[i].file == expected[i].file);
        CHECK(actual[i].checksum == expected[i].checksum);
        CHECK(llmc::checksum_text(llmc::checksum_of_file(part.file(actual[i].file))) ==
              expected[i].checksum);
        std::filesystem::remove(part.file(actual[i].file));
      }
    }
  }
}

TEST_CASE("an unfinished shard has no final name") {
  const TemporaryDirectory folder;
  write_documents(folder.file("a.bin"), 5, 8, {}, false);
  CHECK(llmc::existing_shards(folder.file("a.bin")).size() == 3);
}

TEST_CASE("names of shards are distinguished from other names") {
  for (const char* name : {"a.bin", "a_000000.bin", "a_123456.bin", "a_1234567.bin"}) {
    CHECK(llmc::is_shard_of("x/a.bin", name));
  }
  for (const char* name : {"b.bin", "a_00000.bin", "a_00000x.bin", "a_000000.txt", "aa_000000.bin",
                           "a.json", "a_000000.bin.tmp-01234567", "_000000.bin"}) {
    INFO(name);
    CHECK(!llmc::is_shard_of("x/a.bin", name));
  }
}

}  // namespace
TEST_SUITE_END();
