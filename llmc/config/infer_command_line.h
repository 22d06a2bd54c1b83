// The flags of infer_gpt2, from one table: what --help prints is what the parser knows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "llmc/config/command_line.h"
#include "llmc/config/infer_settings.h"

namespace llmc {

namespace command_line_detail {

inline void add_text_flags(CLI::App& app, InferSettings& s) {
  const std::string group = "Model and text";
  app.add_option(
         "-m,--model", s.model,
         "a directory that transformers saved, a checkpoint of train_gpt2, or a model file of "
         "llm.c (.bin)")
      ->type_name("DIR|FILE")
      ->required()
      ->group(group);
  app.add_option("--tokenizer", s.tokenizer,
                 "bytes, words:FILE, a tokenizer.json, or a directory with that, with encoder.json "
                 "and vocab.bpe, or with vocab.json and merges.txt [the files in "
                 "--model; without any, bytes where the model has 257 tokens]")
      ->type_name("NAME|DIR")
      ->group(group);
  app.add_option("-p,--prompt", s.prompt,
                 "text to continue; - reads it from stdin, to the last byte [<|endoftext|>]")
      ->type_name("TEXT")
      ->group(group);
}

inline void add_sampling_flags(CLI::App& app, InferSettings& s) {
  const std::string group = "Generation";
  app.add_option("-n,--tokens", s.tokens,
                 "tokens to generate; fewer where <|endoftext|> or the end of the context comes "
                 "first")
      ->check(at_least(std::int64_t{1}))
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  app.add_flag("--ignore-eos", s.ignore_eos, "go on after <|endoftext|>")->group(group);
  app.add_option("--temp,--temperature", s.temperature,
                 "logits are divided by it; 0: always the likeliest token")
      ->check(at_least(0.0))
      ->type_name("X")
      ->capture_default_str()
      ->group(group);
  app.add_option("--top-k", s.top_k, "draw among the K likeliest tokens; 0: among all")
      ->check(at_least(std::int64_t{0}))
      ->type_name("K")
      ->capture_default_str()
      ->group(group);
  app.add_option("--seed", s.seed, "the same seed draws the same tokens")
      ->check(at_least(std::uint64_t{0}))
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
}

inline void add_run_flags(CLI::App& app, InferSettings& s) {
  const std::string group = "Device and output";
  app.add_option("--device", s.device, "auto: a GPU where there is one")
      ->check(CLI::IsMember({"auto", "cuda", "host"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--dtype", s.dtype, "of weights, activations and cache; sums are fp32")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->capture_default_str()
      ->group(group);
  app.add_flag("--json", s.json,
               "one JSON object at the end instead of text as it comes: prompt_tokens, tokens, "
               "text, finish_reason (length, stop, context), seed, ids")
      ->group(group);
}

}  // namespace command_line_detail

// Fills `settings`. A value: the program ends at once with that exit code (help was asked for, or
// the flags are wrong, which has been said on stderr).
inline std::optional<int> parse_command_line(int argc, char** argv, InferSettings& settings) {
  using namespace command_line_detail;
  CLI::App app{
      "Continues a text with a GPT-2. The text goes to stdout as it is generated, without "
      "the prompt; all else goes to stderr.",
      "infer_gpt2"};
  add_common_flags(app);
  add_text_flags(app, settings);
  add_sampling_flags(app, settings);
  add_run_flags(app, settings);
  return parse_flags(app, argc, argv, {"--prompt"});
}

}  // namespace llmc
