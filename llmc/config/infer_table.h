// The table of all settings of infer_gpt2, in the order of --help.
#pragma once

#include <string>

#include "llmc/config/bare_words.h"
#include "llmc/config/fill_settings.h"
#include "llmc/config/infer_settings.h"
#include "llmc/config/setting.h"

// A row names only the columns it needs, which causes this warning. (Default member initializers
// would prevent it, but they crash g++ 12.)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace llmc {

struct InferProgram {
  using Request = InferRequest;
  using Config = InferConfig;
  struct Facts {};

  static constexpr const char* kName = "infer_gpt2";
  static constexpr const char* kDescription =
      "Continues a text with a GPT-2 model. Prints the generated text, without the prompt, to "
      "stdout as it is generated; everything else goes to stderr.";
  static constexpr const char* kExamples[] = {
      "./infer_gpt2 -m run -p 'Once upon a time'",
      "./infer_gpt2 -m run -p - -n 30 --top-k 40 < text.txt",
      "./infer_gpt2 -m gpt2 --temperature 0 --dtype bf16 --json"};
  static const Settings<InferProgram>& settings();
  static std::string contradiction(const InferRequest&) { return {}; }
  static bool comes_later(const Setting<InferProgram>&, const InferRequest&) { return false; }
};

namespace infer_detail {

inline Settings<InferProgram> text_rows() {
  return {
      {.flag = "--model",
       .field = [](auto& s) -> decltype(auto) { return (s.model); },
       .unit = "DIR|FILE",
       .help = "model: a directory that transformers saved, a checkpoint of train_gpt2, its --out "
               "(the newest valid checkpoint there), or a model file of llm.c (.bin)",
       .synonym = "-m",
       .also_called = {"--checkpoint", "--model-path", "--init-from", "--load",
                       "--model-name-or-path", "--weights"},
       .required = true,
       .accepts_bare_word = is_model_word},
      {.flag = "--tokenizer",
       .field = [](auto& s) -> decltype(auto) { return (s.tokenizer); },
       .unit = "NAME|DIR",
       .help = "bytes, words:FILE, a tokenizer.json, or a directory that contains tokenizer.json, "
               "or encoder.json and vocab.bpe, or vocab.json and merges.txt",
       .fallback = "the tokenizer files in --model, else bytes if the model has 257 tokens",
       .quantity = "tokenizer",
       .also_called = {"--tokenizer-name", "--vocab"}},
      {.flag = "--prompt",
       .field = [](auto& s) -> decltype(auto) { return (s.prompt); },
       .unit = "TEXT",
       .help = "text to continue; - reads all of stdin",
       .fallback = "<|endoftext|>",
       .synonym = "-p",
       .also_called = {"--text", "--input", "--start"},
       .empty_is_default = true,
       .accepts_bare_word = [](const std::string& word) { return !is_model_word(word); },
       .word_separator = " "},
  };
}

inline Settings<InferProgram> sampling_rows() {
  return {
      {.flag = "--tokens",
       .field = [](auto& s) -> decltype(auto) { return (s.tokens); },
       .unit = "TOKENS",
       .help =
           "maximum number of tokens to generate; generation also stops at <|endoftext|> and at "
           "the end of the context",
       .fallback = 128,
       .range = at_least(1),
       .synonym = "-n",
       .also_called = {"--max-new-tokens", "--n-predict", "--max-tokens", "--num-tokens",
                       "--length", "--max-length"}},
      {.flag = "--ignore-eos",
       .field = [](auto& s) -> decltype(auto) { return (s.ignore_eos); },
       .help = "continue after <|endoftext|>",
       .also_called = {"--no-stop"}},
      {.flag = "--temperature",
       .field = [](auto& s) -> decltype(auto) { return (s.temperature); },
       .unit = "X",
       .help = "divide the logits by this value; 0 always selects the most likely token",
       .fallback = 1.0,
       .range = at_least(0),
       .synonym = "--temp",
       .also_called = {"-t"}},
      {.flag = "--top-k",
       .field = [](auto& s) -> decltype(auto) { return (s.top_k); },
       .unit = "TOKENS",
       .help = "sample from this many of the most likely tokens; 0 samples from all",
       .fallback = 0,
       .range = at_least(0),
       .also_called = {"-k"}},
      {.flag = "--seed",
       .field = [](auto& s) -> decltype(auto) { return (s.seed); },
       .unit = "N",
       .help = "seed of sampling; the same seed generates the same tokens",
       .fallback = 1337,
       .range = at_least(0),
       .also_called = {"--random-seed"}},
  };
}

inline Settings<InferProgram> run_rows() {
  return {
      {.flag = "--device",
       .field = [](auto& s) -> decltype(auto) { return (s.device); },
       .help = "device to run on; auto selects a GPU if there is one",
       .fallback = SettingValue("auto"),
       .quantity = "device",
       .also_called = {"--gpu", "--cpu", "--cuda", "--backend"}},
      {.flag = "--dtype",
       .field = [](auto& s) -> decltype(auto) { return (s.dtype); },
       .help = "dtype of weights, activations and key-value cache; sums are fp32",
       .fallback = SettingValue("fp32"),
       .quantity = "dtype",
       .also_called = {"--precision", "--bf16", "--fp16"}},
      {.flag = "--json",
       .field = [](auto& s) -> decltype(auto) { return (s.json); },
       .help = "print one JSON object at the end instead of the text as it is generated; its keys "
               "are prompt_tokens, tokens, text, finish_reason (length, stop, context), seed, ids",
       .also_called = {"--output-json", "--print-json"}},
      {.flag = "--quiet",
       .field = [](auto& s) -> decltype(auto) { return (s.quiet); },
       .help = "print only results, warnings and errors"},
  };
}

}  // namespace infer_detail

inline const Settings<InferProgram>& InferProgram::settings() {
  static const Settings<InferProgram> table = [] {
    Settings<InferProgram> all;
    add_group(all, "Model and text", infer_detail::text_rows());
    add_group(all, "Generation", infer_detail::sampling_rows());
    add_group(all, "Device and output", infer_detail::run_rows());
    return all;
  }();
  return table;
}

inline InferConfig resolve(const InferRequest& request) {
  return fill_settings<InferProgram>(InferProgram::settings(), request, {});
}

}  // namespace llmc

#pragma GCC diagnostic pop
