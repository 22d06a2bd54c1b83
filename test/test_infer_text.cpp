// From logits to text: sampling of tokens, and streaming of whole characters that tokens may split.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "llmc/device/philox.h"
#include "llmc/infer/generate.h"
#include "llmc/infer/prompt.h"
#include "llmc/infer/text_stream.h"
#include "llmc/io/tokenizer/byte_tokenizer.h"
#include "llmc/io/tokenizer/tokenizer.h"
#include "llmc/models/pretrained.h"
#include "llmc/ops/sampling/host_sampling.h"
#include "test/python.h"
#include "test/support.h"

TEST_SUITE_BEGIN("infer_text");

namespace {

using llmc::sampling_uniform;
using llmc::SamplingOptions;
using llmc::Utf8Stream;
using Ids = std::vector<std::int32_t>;

// ---- sampling ----

// Pearson's statistic of kDraws ids from softmax(logits / temperature) against the probabilities of
// softmax(expected_logits / temperature) over `allowed`.
double chi_square(const std::vector<float>& logits, const std::vector<float>& expected_logits,
                  const SamplingOptions& options, const Ids& allowed, std::uint64_t seed) {
  constexpr std::int64_t kDraws = 20000;
  const auto weight = [&](std::int32_t id) {
    return std::exp(expected_logits[id] / options.temperature);
  };
  double total = 0;
  for (const auto id : allowed) total += weight(id);
  std::map<std::int32_t, double> counts;
  for (std::int64_t t = 0; t < kDraws; ++t) {
    counts[llmc::sample_token(logits, options, sampling_uniform(seed, 0, 0, t))] += 1;
  }
  double statistic = 0;
  for (const auto id : allowed) {
    const double expected = kDraws * weight(id) / total;
    statistic += (counts[id] - expected) * (counts[id] - expected) / expected;
    counts.erase(id);
  }
  return counts.empty() ? statistic : INFINITY;  // an id that must not be drawn
}

const std::vector<float> kLogits = {0.5f, -1.0f, 2.0f, 0.0f, 1.25f, -0.25f};

// ---- text ----

// Streams `bytes` in pieces, cut after byte i if bit i of `cuts` is set; returns the joined output.
std::string stream_text(const std::string& bytes, unsigned cuts) {
  Utf8Stream stream;
  std::string text, piece;
  const auto take = [&](const std::string& out) {
    // Each output piece is valid UTF-8: a second pass does not change it.
    Utf8Stream second;
    CHECK(second.push(out) + second.finish() == out);
    text += out;
  };
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    piece += bytes[i];
    if ((cuts >> i & 1) == 0) continue;
    take(stream.push(piece));
    piece.clear();
  }
  take(stream.push(piece));
  take(stream.finish());
  return text;
}

const std::string kBad = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

TEST_CASE("sampled tokens follow the softmax distribution") {
  // The 99.9% points of chi-square with 5 and 2 degrees of freedom; the seeds are fixed.
  const Ids all = {0, 1, 2, 3, 4, 5};
  CHECK(chi_square(kLogits, kLogits, {}, all, 1) < 20.52);
  CHECK(chi_square(kLogits, kLogits, {.temperature = 0.6}, all, 2) < 20.52);
  CHECK(chi_square(kLogits, kLogits, {.temperature = 1.7, .top_k = 3}, {0, 2, 4}, 3) < 13.82);
  // The statistic is sensitive enough: it detects a temperature of 1.1.
  std::vector<float> warmer = kLogits;
  for (float& x : warmer) x /= 1.1f;
  CHECK(chi_square(warmer, kLogits, {}, all, 1) > 20.52);
}

TEST_CASE("temperature 0 and top-k 1 are greedy, and ties go to the lowest id") {
  const std::vector<float> tied_logits = {1, 3, -2, 3, 3};
  for (const double uniform : {0.01, 0.5, 0.99}) {
    CHECK(llmc::sample_token(kLogits, {.temperature = 0}, uniform) == 2);
    CHECK(llmc::sample_token(kLogits, {.top_k = 1}, uniform) == 2);
    CHECK(llmc::sample_token(kLogits, {.temperature = 1e-300}, uniform) == 2);
    CHECK(llmc::sample_token(tied_logits, {.temperature = 0}, uniform) == 1);
    CHECK(llmc::sample_token(tied_logits, {.top_k = 1}, uniform) == 1);
  }
  CHECK(llmc::sample_token(tied_logits, {.top_k = 2}, 0.99) == 3);
  CHECK(llmc::sample_token(tied_logits, {.top_k = 3}, 0.99) == 4);
}

TEST_CASE("every random number in the range selects a token") {
  for (const double uniform : {0x1p-24, 1 - 0x1p-24}) {
    for (const std::int64_t k : {0, 1, 3, 6, 100}) {
      const auto id = llmc::sample_token(kLogits, {.top_k = k}, uniform);
      CHECK((id >= 0 && id < 6));
    }
  }
  CHECK(llmc::sample_token(std::vector<float>{7}, {}, 0.5) == 0);
  const std::vector<float> wide = {-3e38f, 3e38f, 0};
  CHECK(llmc::sample_token(wide, {}, 0.999) == 1);
}

TEST_CASE("random numbers depend only on seed, sequence and position") {
  CHECK(sampling_uniform(1, 0, 0, 5) == sampling_uniform(1, 0, 0, 5));
  CHECK(sampling_uniform(1, 0, 0, 5) != sampling_uniform(2, 0, 0, 5));
  CHECK(sampling_uniform(1, 0, 0, 5) != sampling_uniform(1, 0, 1, 5));
  CHECK(sampling_uniform(1, 0, 0, 5) != sampling_uniform(1, 0, 0, 6));
}

TEST_CASE("logits that are not finite are rejected") {
  CHECK_NOTHROW(llmc::require_finite(kLogits));
  CHECK_THROWS_WITH_AS(llmc::require_finite(std::vector<float>{0, NAN}),
                       doctest::Contains("not finite"), llmc::Error);
  CHECK_THROWS_AS(llmc::require_finite(std::vector<float>{INFINITY}), llmc::Error);
}

TEST_CASE("characters that are split anywhere are joined again") {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z";  // a e-acute euro emoji z
  for (unsigned cuts = 0; cuts < 1u << (text.size() - 1); ++cuts) {
    CHECK(stream_text(text, cuts) == text);
  }
  Utf8Stream stream;
  CHECK(stream.push("\xF0\x9F\x98").empty());
  CHECK(stream.push("\x80!") == "\xF0\x9F\x98\x80!");
  CHECK(stream.finish().empty());
}

TEST_CASE("invalid UTF-8 becomes U+FFFD as in Python") {
  const std::map<std::string, std::string> examples = {
      {"\x80", kBad},
      {"\xC3", kBad},
      {"\xC3(", kBad + "("},
      {"\xE2\x82", kBad},
      {"\xE2\x82z", kBad + "z"},
      {"\xE2\x82\xE2\x82\xAC", kBad + "\xE2\x82\xAC"},
      {"\xF0\x9F\x98", kBad},
      {"\xF0\x9F\x98\xC3\xA9", kBad + "\xC3\xA9"},
      {"\xE0\x80", kBad + kBad},                        // overlong form
      {"\xC0\xAF", kBad + kBad},                        // overlong form
      {"\xED\xA0\x80", kBad + kBad + kBad},             // a surrogate
      {"\xF4\x90\x80\x80", kBad + kBad + kBad + kBad},  // beyond U+10FFFF
      {"\xFF\xFE", kBad + kBad},
  };
  for (const auto& [bytes, expected] : examples) {
    for (unsigned cuts = 0; cuts < 1u << (bytes.size() - 1); ++cuts) {
      CHECK(stream_text(bytes, cuts) == expected);
    }
  }
}

TEST_CASE("all ways to cut characters of one to four bytes next to invalid bytes give one text") {
  const std::vector<std::string> parts = {"a",    "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80",
                                          "\xFF", "\xE2\x82", "\xF0\x9F",     "\xED\xA0"};
  const llmc::ByteTokenizer tokenizer;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (std::size_t j = 0; j < parts.size(); ++j) {
      const std::string bytes = parts[i] + parts[j] + parts[(i + 3 * j) % parts.size()];
      Utf8Stream whole;
      std::string expected = whole.push(bytes);
      expected += whole.finish();
      CHECK(expected == llmc::valid_utf8(bytes));
      for (unsigned cuts = 0; cuts < 1u << (bytes.size() - 1); ++cuts) {
        CHECK(stream_text(bytes, cuts) == expected);
      }
      // A byte per token.
      const Ids ids = tokenizer.encode(bytes);
      REQUIRE(ids.size() == bytes.size());
      llmc::TextStream stream(tokenizer, ids[0]);
      std::string text;
      for (const auto id : ids) text += stream.push(id);
      CHECK(text + stream.finish() == expected);
    }
  }
}

TEST_CASE("random bytes are decoded as by Python with errors='replace'") {
  if (!llmc_test::python_has("codecs")) return llmc_test::skip("no Python");
  const llmc_test::TemporaryDirectory folder;
  // Bytes from the edges of the encoding's classes, so that all kinds of damage occur.
  const std::string edge_bytes(
      "\x41\x7F\x80\x8F\x90\x9F\xA0\xBF\xC0\xC1\xC2\xDF\xE0\xE1\xEC\xED\xEE\xEF\xF0\xF1\xF3\xF4\xF5"
      "\xFF",
      24);
  std::string bytes;
  for (const auto i : llmc_test::random_ints(60000, 8, 24)) bytes += edge_bytes[i];
  std::ofstream(folder.file("bytes"), std::ios::binary) << bytes;
  llmc_test::run_python(
      "data = open('bytes', 'rb').read()\n"
      "open('text', 'wb').write(data.decode('utf-8', errors='replace').encode())\n",
      folder.path());
  const std::string expected = llmc::read_file(folder.path() / "text");
  Utf8Stream stream;
  std::string actual;
  const auto lengths = llmc_test::random_ints(60000, 9, 4);
  for (std::size_t at = 0, i = 0; at < bytes.size(); ++i) {
    const std::size_t n = static_cast<std::size_t>(lengths[i % lengths.size()]) + 1;
    actual += stream.push(bytes.substr(at, n));
    at += n;
  }
  actual += stream.finish();
  CHECK(actual == expected);
}

TEST_CASE("streaming tokens produces the same text as decoding all of them") {
  const llmc_test::TemporaryDirectory folder;
  std::ofstream(folder.file("words")) << "the\nking\nis\n.\n";
  for (const std::string& spec : {std::string("bytes"), "words:" + folder.file("words")}) {
    const auto tokenizer = llmc::make_tokenizer(spec);
    const Ids prompt = tokenizer->encode("the king");
    const Ids next_tokens =
        spec == "bytes" ? tokenizer->encode(" \xF0\x9F\x98\x80\xE2\x82\xAC is") : Ids{2, 3, 0};
    llmc::TextStream stream(*tokenizer, prompt.back());
    std::string text = tokenizer->decode(prompt);
    for (const auto token : next_tokens) text += stream.push(token);
    text += stream.finish();
    Ids all = prompt;
    all.insert(all.end(), next_tokens.begin(), next_tokens.end());
    CHECK(text == tokenizer->decode(all));
  }
}

TEST_CASE("a prompt comes from its flag or from stdin; an empty one is end-of-text") {
  const llmc::ByteTokenizer bytes;
  std::istringstream input("from\nstdin\n");
  llmc::InferConfig settings;
  settings.prompt = "-";
  CHECK(llmc::prompt_text(settings, input) == "from\nstdin\n");
  settings.prompt = "text";
  CHECK(llmc::prompt_text(settings, input) == "text");
  CHECK(llmc::prompt_tokens("", bytes, 256, 8) == Ids{256});
  CHECK(llmc::prompt_tokens("!!", bytes, 256, 8) == Ids{0, 0});
  CHECK_THROWS_WITH_AS(llmc::prompt_tokens("", bytes, std::nullopt, 8), doctest::Contains("empty"),
                       llmc::Error);
  CHECK(llmc::prompt_tokens("1234567", bytes, 256, 8).size() == 7);
  CHECK_THROWS_WITH_AS(llmc::prompt_tokens("12345678", bytes, 256, 8),
                       doctest::Contains("8 tokens, the model's context is 8"), llmc::Error);
  Ids tokens = {1, 2, 3, 4, 5};
  CHECK(llmc::drop_oldest_tokens(tokens, 6) == 0);
  CHECK(llmc::drop_oldest_tokens(tokens, 4) == 2);
  CHECK(tokens == Ids{3, 4, 5});
}

TEST_CASE("end tokens come from the generation config, then from the config, each once") {
  const llmc_test::TemporaryDirectory folder;
  const auto tokens = [&](const std::string& generation, const std::string& config) {
    const std::string shape =
        R"({"model_type": "gpt2", "vocab_size": 257, "n_positions": 8, "n_layer": 1, "n_head": 1,
            "n_embd": 8)";
    std::ofstream(folder.file("config.json")) << shape << config << "}";
    std::filesystem::remove(folder.file("generation_config.json"));
    if (!generation.empty()) std::ofstream(folder.file("generation_config.json")) << generation;
    return llmc::read_end_tokens(folder.path(), llmc::read_pretrained_config(folder.path()), 257);
  };
  CHECK(tokens("", R"(, "eos_token_id": 9)") == Ids{9});
  CHECK(tokens("", R"(, "eos_token_id": [9, 4, 9])") == Ids{9, 4});
  CHECK(tokens(R"({"eos_token_id": [256, 64]})", R"(, "eos_token_id": 64)") == Ids{256, 64});
  CHECK(tokens(R"({"eos_token_id": 7})", R"(, "eos_token_id": [5, 7])") == Ids{7, 5});
  CHECK(tokens(R"({"eos_token_id": null})", "").empty());
  CHECK(tokens("{}", R"(, "eos_token_id": 50256)").empty());     // the default of transformers
  CHECK(tokens("", R"(, "eos_token_id": [300, 9])") == Ids{9});  // ids without a token
  CHECK(llmc_test::contains(llmc_test::complaint([&] { tokens(R"({"eos_token_id": "x"})", ""); }),
                            "generation_config.json: eos_token_id"));
  CHECK(llmc_test::contains(llmc_test::complaint([&] { tokens("[]", ""); }),
                            "generation_config.json is not a JSON object"));
}

TEST_SUITE_END();
