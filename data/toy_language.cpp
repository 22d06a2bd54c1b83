// Writes the toy language to files with its statistics, and counts the sentences of a text that
// parse.
//
//   toy_language --out DIR [--tokens N --val-tokens N --seed S]
//       writes a text, and reports its entropy and the losses of n-gram models
//   toy_language --parse FILE [--sentences N --at-least FRACTION]
//       counts the sentences that parse; exits with code 1 if the fraction is below --at-least
#include "data/toy_language.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <exception>
#include <iostream>
#include <iterator>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "data/ngram.h"
#include "llmc/base/file.h"
#include "llmc/base/json.h"
#include "llmc/base/number_text.h"
#include "llmc/base/signal_request.h"
#include "llmc/base/standard_output.h"
#include "llmc/io/data/token_file.h"

namespace llmc::toy {

struct Settings {
  std::int64_t tokens = 1'000'000, val_tokens = 100'000;
  std::uint64_t seed = 1;
  std::string out;
  std::string parse;
  std::int64_t sentences = 0;  // 0: all
  double min_fraction = 0;
  bool help = false;
};

std::string to_text(const Language& language, std::span<const std::int32_t> tokens) {
  std::string text;
  for (const std::int32_t token : tokens) {
    text += language.words()[token];
    text += language.ends_sentence(token) ? '\n' : ' ';
  }
  return text;
}

// The entropy, and the losses of n-gram models trained on one text and measured on the other, in
// nats per token.
Json statistics(const Language& language, std::span<const std::int32_t> train,
                std::span<const std::int32_t> validation) {
  const auto vocabulary = static_cast<std::int64_t>(language.words().size());
  const auto ngram_loss = [&](int order) {
    return NgramModel(order, vocabulary, train).loss(validation);
  };
  const double entropy = language.entropy_per_token();
  const double bigram = ngram_loss(2), trigram = ngram_loss(3);
  return {{"vocabulary", vocabulary},
          {"entropy", entropy},
          {"bigram_loss", bigram},
          {"trigram_loss", trigram},
          {"bigram_ratio", bigram / entropy},
          {"trigram_ratio", trigram / entropy}};
}

void write_language(const Settings& settings) {
  const Language language;
  const auto train = language.generate(2 * settings.seed, settings.tokens);
  const auto validation = language.generate(2 * settings.seed + 1, settings.val_tokens);
  const auto vocabulary = static_cast<std::int64_t>(language.words().size());
  const std::filesystem::path out = settings.out;
  make_directory(out);
  write_token_file(out / "train.bin", train, vocabulary);
  write_token_file(out / "val.bin", validation, vocabulary);
  write_file(out / "train.txt", to_text(language, train));
  std::string words;
  for (const std::string& word : language.words()) words += word + "\n";
  write_file(out / "words.txt", words);
  const auto json = statistics(language, train, validation);
  write_file(out / "language.json", json.dump(2) + "\n");
  const auto number = [&](const char* format, const char* key) {
    return number_text(format, json[key].number());
  };
  print_text(std::to_string(vocabulary) + number(" words; entropy %.4f nats per token", "entropy") +
             number("; bigram model %.4f", "bigram_loss") + number(" (%.3f x)", "bigram_ratio") +
             number(", trigram model %.4f", "trigram_loss") +
             number(" (%.3f x)\n", "trigram_ratio"));
}

// The complete sentences of each line of a text. Skips an incomplete sentence at the end of a line
// and a "." at its beginning, with which samples start.
std::vector<std::string> complete_sentences(const std::string& text) {
  std::vector<std::string> sentences;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string sentence;
    for (std::string word; words >> word;) {
      const bool ends = word == ".";
      if (ends && sentence.empty()) continue;
      sentence += (sentence.empty() ? "" : " ") + word;
      if (!ends) continue;
      sentences.push_back(sentence);
      sentence.clear();
    }
  }
  return sentences;
}

int parse_file(const Settings& settings) {
  const Language language;
  std::vector<std::string> sentences = complete_sentences(
      settings.parse == "-" ? std::string(std::istreambuf_iterator<char>(std::cin), {})
                            : read_file(settings.parse));
  if (settings.sentences > 0 && static_cast<std::int64_t>(sentences.size()) > settings.sentences) {
    sentences.resize(static_cast<std::size_t>(settings.sentences));
  }
  if (sentences.empty()) fail(settings.parse + " contains no complete sentence");
  std::size_t num_parsed = 0;
  for (const std::string& sentence : sentences) {
    if (language.parse(sentence)) {
      ++num_parsed;
    } else {
      std::cerr << "does not parse: " << sentence << "\n";
    }
  }
  print_text(std::to_string(num_parsed) + " of " + std::to_string(sentences.size()) +
             " sentences parse\n");
  const double fraction = static_cast<double>(num_parsed) / static_cast<double>(sentences.size());
  return fraction >= settings.min_fraction ? 0 : 1;
}

}  // namespace llmc::toy

int main(int argc, char** argv) {
  using namespace llmc;
  SignalRequest::start_thread("toy_language");
  reserve_standard_output();
  toy::Settings settings;
  CLI::App app{"The toy language: English-like sentences from a grammar whose entropy is known.",
               "toy_language"};
  app.add_option("--out", settings.out,
                 "directory for train.bin, val.bin, train.txt, words.txt and language.json")
      ->type_name("DIR");
  app.add_option("--tokens", settings.tokens, "number of tokens of the training text")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--val-tokens", settings.val_tokens, "number of tokens of the validation text")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--seed", settings.seed, "seed of the texts")->capture_default_str();
  app.add_option("--parse", settings.parse,
                 "count how many complete sentences of this text parse; - reads stdin")
      ->type_name("FILE")
      ->excludes("--out");
  app.add_option("--sentences", settings.sentences,
                 "maximum number of sentences to parse; 0 parses all")
      ->capture_default_str();
  app.add_option("--at-least", settings.min_fraction,
                 "minimum fraction of sentences that parse; exit with code 1 below it")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
    if (settings.out.empty() && settings.parse.empty()) {
      throw CLI::RequiredError("--out or --parse");
    }
  } catch (const CLI::Success&) {
    settings.help = true;
  } catch (const CLI::ParseError& error) {
    std::cerr << "toy_language: " << error.what()
              << "\n  hint: toy_language --help lists all flags\n";
    return 2;
  }
  try {
    if (settings.help) {
      print_text(app.help());
      return 0;
    }
    if (!settings.parse.empty()) return toy::parse_file(settings);
    toy::write_language(settings);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "toy_language: " << error.what() << "\n";
    return 1;
  }
}
