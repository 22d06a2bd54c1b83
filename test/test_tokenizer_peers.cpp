// Compares tokens with those of tiktoken and Hugging Face's transformers and tokenizers, if these
// are installed: texts, thousands of generated strings, every character of Unicode, special and
// added tokens, broken bytes.
//
// Only code points that both this machine's PCRE2 and its Python know are compared. PCRE2 10.42 and
// Python 3.11 have Unicode 14; a character added later may be a letter for the peer and not here.
#include <array>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "llmc/base/file.h"
#include "llmc/io/tokenizer/bpe_vocabulary.h"
#include "llmc/io/tokenizer/byte_names.h"
#include "llmc/io/tokenizer/byte_tokenizer.h"
#include "llmc/io/tokenizer/gpt2_splitter.h"  // PCRE2
#include "llmc/io/tokenizer/tokenizer.h"
#include "llmc/io/tokenizer/tokenizer_files.h"
#include "llmc/io/tokenizer/word_tokenizer.h"
#include "test/oracle/transformers.h"
#include "test/python.h"
#include "test/small_vocabulary.h"
#include "test/support.h"

TEST_SUITE_BEGIN("tokenizer_peers");

namespace {

using llmc_test::TemporaryDirectory;
using Ids = std::vector<std::int32_t>;

std::string utf8_of(std::uint32_t code) {
  std::string out;
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) {
    out += static_cast<char>(0xc0 | code >> 6);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | code >> 12);
    tail(6);
  } else {
    out += static_cast<char>(0xf0 | code >> 18);
    tail(12);
    tail(6);
  }
  tail(0);
  return out;
}

// The code points that PCRE2 knows, except surrogates: one range "first last" per line.
std::string assigned_ranges() {
  int error = 0;
  PCRE2_SIZE at = 0;
  const auto pattern = reinterpret_cast<PCRE2_SPTR>("[^\\p{Cn}]");
  pcre2_code* code = pcre2_compile(pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_ANCHORED,
                                   &error, &at, nullptr);
  REQUIRE(code != nullptr);
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  std::string ranges;
  std::uint32_t first = 0;
  bool inside = false;
  for (std::uint32_t point = 0; point <= 0x110000; ++point) {
    const bool surrogate = point >= 0xd800 && point < 0xe000;
    bool known = point < 0x110000 && !surrogate;
    if (known) {
      const std::string text = utf8_of(point);
      known = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                          PCRE2_NO_UTF_CHECK, match, nullptr) > 0;
    }
    if (known && !inside) first = point;
    if (!known && inside) {
      ranges += std::to_string(first) + " " + std::to_string(point - 1) + "\n";
    }
    inside = known;
  }
  pcre2_match_data_free(match);
  pcre2_code_free(code);
  return ranges;
}

struct Case {
  std::string text;
  Ids ids;
};

// Reads a file that tokenizer_peers.py wrote.
std::vector<Case> read_cases(const std::string& path) {
  const std::string file = llmc::read_file(path);
  std::vector<Case> cases;
  std::size_t at = 0;
  const auto take = [&](void* to, std::size_t bytes) {
    REQUIRE(file.size() - at >= bytes);
    std::memcpy(to, file.data() + at, bytes);
    at += bytes;
  };
  const auto count = [&] {
    std::uint32_t n = 0;
    take(&n, sizeof n);
    return n;
  };
  while (at < file.size()) {
    Case one;
    one.text.resize(count());
    take(one.text.data(), one.text.size());
    one.ids.resize(count());
    take(one.ids.data(), one.ids.size() * sizeof(std::int32_t));
    cases.push_back(std::move(one));
  }
  return cases;
}

enum class Special { text, token };

// Checks one set of strings; reports the first string that differs.
void compare(const llmc::Tokenizer& tokenizer, const TemporaryDirectory& at,
             const std::string& name, std::size_t min_cases, Special special = Special::text) {
  CAPTURE(name);
  const std::vector<Case> cases = read_cases(at.file(name + ".bin"));
  CHECK(cases.size() >= min_cases);
  int num_different = 0;
  std::string first;
  for (const auto& [text, ids] : cases) {
    const bool same = ids == (special == Special::token ? tokenizer.encode_with_special(text)
                                                        : tokenizer.encode(text));
    if (!same && num_different++ == 0) first = llmc::json_quoted(text).substr(0, 2000);
    CHECK_MESSAGE(tokenizer.decode(ids) == text, "decoding does not return the text");
  }
  CAPTURE(first);
  CHECK(num_different == 0);
}

void save(const std::vector<llmc::TextFile>& files, const std::filesystem::path& to) {
  std::filesystem::create_directories(to);
  for (const auto& [name, text] : files) llmc_test::write((to / name).string(), text);
}

// GPT-2's tokenizer with two more special tokens (SPECIAL in tokenizer_peers.py). Writes it to
// at/tokenizer, and writes the other files that the script reads.
std::unique_ptr<llmc::Tokenizer> prepare(const TemporaryDirectory& at, const std::string& gpt2) {
  std::vector<llmc::TextFile> files = llmc::make_tokenizer(gpt2)->files();
  llmc::Json json = llmc::parse_json(files.front().text, files.front().name);
  for (const auto& [text, id] : {std::pair("<|pad|>", 50257), std::pair(" <x> ", 50258)}) {
    json["added_tokens"].push_back({{"id", id}, {"content", text}, {"special", true}});
  }
  llmc_test::write(at.file("with_special.json"), json.dump());
  auto tokenizer = llmc::make_tokenizer(at.file("with_special.json"));
  save(tokenizer->files(), at.path() / "tokenizer");
  llmc_test::write(at.file("assigned.txt"), assigned_ranges());
  return tokenizer;
}

// The paths of the texts in `folder`; each is encoded whole.
std::vector<std::string> texts_in(const std::string& folder) {
  std::vector<std::string> texts;
  if (!std::filesystem::exists(folder)) return texts;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".txt") texts.push_back(entry.path().string());
  }
  return texts;
}

void run_peer(const std::string& peer, const TemporaryDirectory& at,
              const std::vector<std::string>& arguments) {
  using llmc::oracle::shell_quoted;
  std::string command = shell_quoted(llmc_test::python()) + " " +
                        shell_quoted(llmc_test::root_dir() + "/test/oracle/tokenizer_peers.py") +
                        " " + peer + " " + shell_quoted(at.path().string());
  for (const std::string& argument : arguments) command += " " + shell_quoted(argument);
  command += " >" + shell_quoted(at.file("output")) + " 2>&1";
  const bool success = std::system(command.c_str()) == 0;
  CAPTURE(llmc::read_file(at.file("output")));
  REQUIRE(success);
}

void run_peer(const std::string& peer, const TemporaryDirectory& at, const std::string& data) {
  std::vector<std::string> arguments = texts_in(data + "/text");
  arguments.insert(arguments.begin(), data + "/gpt2");
  run_peer(peer, at, arguments);
}

// The data directory if everything that the comparison needs is available; else skips the test and
// returns an empty string.
std::string data_for(const std::string& modules) {
  const std::string data = llmc_test::data_dir();
  if (data.empty() || !std::filesystem::exists(data + "/gpt2/encoder.json")) {
    llmc_test::skip("GPT-2's vocabulary is missing");
  } else if (llmc_test::tiny_shapes()) {
    llmc_test::skip("too slow in this build, and the libraries are not under test");
  } else if (!llmc_test::python_has(modules)) {
    llmc_test::skip("no Python with " + modules + " (set PYTHON)");
  } else {
    return data;
  }
  return "";
}

}  // namespace

TEST_CASE("tokens match those of tiktoken") {
  const std::string data = data_for("tiktoken, regex");
  if (data.empty()) return;
  const TemporaryDirectory at;
  const auto tokenizer = prepare(at, data + "/gpt2");
  run_peer("tiktoken", at, data);
  compare(*tokenizer, at, "texts", texts_in(data + "/text").size());
  compare(*tokenizer, at, "generated", 20'000);
  compare(*tokenizer, at, "every_character", 1'000);
  compare(*tokenizer, at, "special", 2'000, Special::token);
  compare(*tokenizer, at, "broken", 20'000);
}

TEST_CASE("tokens match those of transformers' AutoTokenizer created from our files") {
  const std::string data = data_for("transformers");
  if (data.empty()) return;
  const TemporaryDirectory at;
  const auto tokenizer = prepare(at, data + "/gpt2");
  llmc::BpeVocabulary plain{.bytes = {}, .merges = {}, .added = {}, .byte_ids = {}};
  for (const std::uint8_t byte : llmc::kByteOrder)
    plain.bytes.emplace_back(1, static_cast<char>(byte));
  save(llmc::bpe_files(plain), at.path() / "plain");
  save(llmc::ByteTokenizer().files(), at.path() / "bytes");
  const llmc::WordTokenizer words({"the", "<unk>", "na\xc3\xafve", "\"", "<|endoftext|>"}, "words");
  save(words.files(), at.path() / "words");

  run_peer("transformers", at, data);
  compare(*tokenizer, at, "texts", texts_in(data + "/text").size());
  compare(*tokenizer, at, "generated", 20'000);
  compare(*tokenizer, at, "special", 2'000, Special::token);
  compare(llmc::ByteTokenizer(), at, "bytes", 4'000, Special::token);
  const auto without_special = llmc::make_tokenizer(at.file("plain"));
  CHECK(without_special->vocabulary_size() == 256);
  compare(*without_special, at, "plain", 4'000, Special::token);
  for (const auto& [text, ids] : read_cases(at.file("words.bin"))) CHECK(words.encode(text) == ids);
  compare(words, at, "words_decoded", 1'000);
  // The files that transformers saves are read again.
  for (const std::string kind : {"bytes", "plain", "words"}) {
    const auto second = llmc::make_tokenizer(at.file(kind + "_resaved"));
    const auto first = llmc::make_tokenizer(at.file(kind));
    const std::string text = kind == "words" ? "the na\xc3\xafve <unk>" : "a<|endoftext|>\xff b";
    CHECK(second->encode_with_special(text) == first->encode_with_special(text));
    CHECK(second->vocabulary_size() == first->vocabulary_size());
  }
}

TEST_CASE("random added tokens are found as by the tokenizers library") {
  if (llmc_test::tiny_shapes()) return llmc_test::skip("too slow in this build");
  if (!llmc_test::python_has("tokenizers")) {
    return llmc_test::skip("no Python with tokenizers (set PYTHON)");
  }
  const TemporaryDirectory at, vocabulary;
  llmc_test::SmallVocabulary(llmc_test::kFewMerges).save(vocabulary);
  save(llmc::make_tokenizer(vocabulary.path().string())->files(), at.path());
  run_peer("added_tokens", at, std::vector<std::string>());
  int num_tokenizers = 0;
  for (; std::filesystem::exists(at.file(std::to_string(num_tokenizers) + ".json"));
       ++num_tokenizers) {
    const std::string name = std::to_string(num_tokenizers);
    const auto tokenizer = llmc::make_tokenizer(at.file(name + ".json"));
    // The files that this tokenizer writes have the same added tokens.
    const std::filesystem::path copy = at.path() / name;
    save(tokenizer->files(), copy);
    const auto second = llmc::make_tokenizer(copy.string());
    for (const std::string kind : {"plain", "special"}) {
      const std::vector<Case> cases = read_cases(at.file(name + "_" + kind + ".bin"));
      CHECK(cases.size() >= 150);
      for (const auto& [text, ids] : cases) {
        CAPTURE(name);
        CAPTURE(kind);
        CAPTURE(llmc::json_quoted(text));
        const auto tokens_of = [&, &text = text](const llmc::Tokenizer& t) {
          return kind == "plain" ? t.encode(text) : t.encode_with_special(text);
        };
        REQUIRE(tokens_of(*tokenizer) == ids);
        REQUIRE(tokens_of(*second) == ids);
      }
    }
  }
  CHECK(num_tokenizers >= 60);
}

TEST_SUITE_END();
