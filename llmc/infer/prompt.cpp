#include "llmc/infer/prompt.h"

#include <iterator>

#include "llmc/base/error.h"
#include "llmc/io/tokenizer/byte_tokenizer.h"
#include "llmc/io/tokenizer/tokenizer.h"
#include "llmc/models/merged_config.h"
#include "llmc/models/pretrained.h"

namespace llmc {

namespace {

// The tokenizer of --tokenizer. Without that flag, the one whose files are next to the weights.
// Without such files, bytes if the model has that many tokens.
std::unique_ptr<Tokenizer> choose_tokenizer(const InferConfig& settings, std::int64_t vocabulary) {
  if (!settings.tokenizer.empty()) return make_tokenizer(settings.tokenizer);
  if (has_tokenizer_files(settings.model)) return make_tokenizer(settings.model);
  auto bytes = std::make_unique<ByteTokenizer>();
  if (bytes->vocabulary_size() == vocabulary) return bytes;
  fail("--model " + settings.model + " has a vocabulary of " + std::to_string(vocabulary) +
           " tokens and no tokenizer files",
       "use --tokenizer DIR for a directory that contains tokenizer.json, or "
       "encoder.json and vocab.bpe, or vocab.json and merges.txt; for a model of words, use "
       "--tokenizer words:FILE");
}

}  // namespace

ModelFiles read_model_files(const InferConfig& settings) {
  const HuggingFaceConfig config = read_merged_config(settings.model, settings.adapter);
  ModelFiles files{.config = pretrained_shape(settings.model, config)};
  files.tokenizer = choose_tokenizer(settings, files.config.vocabulary);
  check_vocabulary("--model " + settings.model, files.config.vocabulary, *files.tokenizer);
  files.end_tokens = read_end_tokens(settings.model, config, files.tokenizer->vocabulary_size());
  const std::optional<std::int32_t> end = files.tokenizer->end_of_text();
  if (files.end_tokens.empty() && end) files.end_tokens = {*end};
  return files;
}

std::string prompt_text(const InferConfig& settings, std::istream& input) {
  if (settings.prompt != "-") return settings.prompt;
  std::string text{std::istreambuf_iterator<char>(input), std::istreambuf_iterator<char>()};
  require(!input.bad(), "--prompt -: stdin cannot be read");
  return text;
}

std::vector<std::int32_t> prompt_tokens(const std::string& text, const Tokenizer& tokenizer,
                                        std::optional<std::int32_t> end_of_text,
                                        std::int64_t context, const std::string& source) {
  std::vector<std::int32_t> tokens = tokenizer.encode(text);
  if (tokens.empty() && end_of_text) tokens.push_back(*end_of_text);
  const auto refuse = [&](const std::string& problem, const std::string& hint) {
    if (source == "--prompt") fail_usage(problem, hint);
    fail(problem, hint);
  };
  if (tokens.empty()) {
    refuse(source + " is empty, and this model has no <|endoftext|> to start from",
           "give a text with at least one token");
  }
  if (std::ssize(tokens) >= context) {
    refuse(source + " has " + std::to_string(tokens.size()) + " tokens, the model's context is " +
               std::to_string(context),
           "use at most " + std::to_string(context - 1) +
               ", so that at least one token can follow, or drop the oldest tokens with --slide");
  }
  return tokens;
}

std::int64_t drop_oldest_tokens(std::vector<std::int32_t>& tokens, std::int64_t context) {
  const std::int64_t surplus = std::ssize(tokens) - (context - 1);
  if (surplus <= 0) return 0;
  tokens.erase(tokens.begin(), tokens.begin() + surplus);
  return surplus;
}

}  // namespace llmc
