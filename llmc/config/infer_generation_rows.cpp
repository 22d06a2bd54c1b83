#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/config/bare_words.h"
#include "llmc/config/infer_rows.h"
#include "llmc/config/infer_settings.h"
#include "llmc/config/infer_table.h"
#include "llmc/config/infer_values.h"
#include "llmc/config/setting.h"

// A row names only the columns it needs, which causes this warning. (Default member initializers
// would prevent it, but they crash g++ 12.)
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace llmc::infer_detail {

namespace {

// Names of commands, with those that users of other tools may try.
std::vector<KnownName> command_names() {
  return {{"bench", "bench"},         {"perplexity", "perplexity"},
          {"score", "score"},         {"quantize", "quantize"},
          {"merge", "merge"},         {"classify", "classify"},
          {"benchmark", "bench"},     {"evaluate", "score"},
          {"quantise", "quantize"},   {"convert", "quantize"},
          {"merge_adapter", "merge"}, {"merge_and_unload", "merge"},
          {"export", "merge"},        {"classification", "classify"},
          {"predict", "classify"}};
}

}  // namespace

Settings<InferProgram> text_rows() {
  return {
      {.flag = "command",
       .field = [](auto& s) -> decltype(auto) { return (s.command); },
       .unit = "COMMAND",
       .help =
           "instead of generating text: bench measures the speed; perplexity FILE measures the "
           "loss on a text or token file; score TASK:FILE... runs evaluation tasks, which are "
           "those of train_gpt2 --eval; quantize IN OUT writes the model IN with the INT8 "
           "weights of --quant into the new directory OUT; merge BASE ADAPTER OUT writes the model "
           "BASE with the adapter merged, in fp32; classify FILE prints the label of each text of "
           "a "
           "file, one per line or in the field text of a .jsonl, and the probabilities of all "
           "labels",
       .fallback = "generate text",
       .special = {.first_words = command_names()}},
      {.flag = "--model",
       .field = [](auto& s) -> decltype(auto) { return (s.model); },
       .unit = "DIR|FILE",
       .help = "model: a directory that transformers saved, a checkpoint of train_gpt2, its --out "
               "(the newest valid checkpoint there), a directory that quantize wrote, or a model "
               "file of llm.c (.bin)",
       .special = {.synonym = "-m",
                   .required = true,
                   .required_unless = "--adapter",
                   .accepts_bare_word = is_model_word},
       .commands = {"", "bench", "perplexity", "score", "classify"}},
      {.flag = "--adapter",
       .field = [](auto& s) -> decltype(auto) { return (s.adapter); },
       .unit = "DIR",
       .help = "LoRA or IA3 adapter that is merged into the model when it is loaded: a directory "
               "of PEFT, a checkpoint with an adapter, or the --out of its run. Without --model, "
               "the base model is the directory that the adapter names",
       .commands = {"", "bench", "perplexity", "score", "quantize", "classify"}},
      {.flag = "--tokenizer",
       .field = [](auto& s) -> decltype(auto) { return (s.tokenizer); },
       .unit = "NAME|DIR",
       .help =
           "bytes, gpt2 (an installed vocabulary of GPT-2), words:FILE, a tokenizer.json, or a "
           "directory that contains tokenizer.json, or encoder.json and vocab.bpe, or vocab.json "
           "and merges.txt",
       .fallback = "the tokenizer files in --model, else bytes if the model has 257 tokens",
       .quantity = "tokenizer",
       .commands = {"", "perplexity", "score", "classify"}},
      {.flag = "--prompt",
       .field = [](auto& s) -> decltype(auto) { return (s.prompt); },
       .unit = "TEXT",
       .help = "text to continue; - reads all of stdin",
       .fallback = "<|endoftext|>",
       .excluded_flags = {"--file", "--prompts"},
       .special = {.synonym = "-p",
                   .empty_is_default = true,
                   .accepts_bare_word =
                       [](const std::string& word) { return !is_model_word(word); },
                   .word_separator = " "},
       .commands = {""}},
      {.flag = "--file",
       .field = [](auto& s) -> decltype(auto) { return (s.file); },
       .unit = "FILE",
       .help = "file with the text to continue",
       .excluded_flags = {"--prompt", "--prompts"},
       .special = {.synonym = "-f"},
       .commands = {""}},
      {.flag = "--prompts",
       .field = [](auto& s) -> decltype(auto) { return (s.prompts); },
       .unit = "FILE",
       .help = "file with one prompt per line; in a .jsonl file each line is an object with the "
               "keys prompt and, optionally, id, tokens, seed and stop",
       .excluded_flags = {"--prompt", "--file"},
       .commands = {""}},
  };
}

Settings<InferProgram> generation_rows() {
  return {
      {.flag = "--tokens",
       .field = [](auto& s) -> decltype(auto) { return (s.tokens); },
       .unit = "TOKENS",
       .help = "maximum number of tokens to generate per completion; generation also stops at "
               "<|endoftext|> and at the end of the context",
       .fallback = 128,
       .range = at_least(1),
       .special = {.synonym = "-n"},
       .commands = {""}},
      {.flag = "--samples",
       .field = [](auto& s) -> decltype(auto) { return (s.samples); },
       .unit = "N",
       .help =
           "completions per prompt; each ends in a line break. If stdout and stderr are the same, "
           "a line on stderr precedes each; --jsonl has one line per completion",
       .fallback = 1,
       .range = at_least(1),
       .commands = {""}},
      {.flag = "--batch",
       .field = [](auto& s) -> decltype(auto) { return (s.batch); },
       .unit = "N",
       .help = "maximum number of sequences that are decoded, or classified, together; does not "
               "change the results",
       .fallback = {"8, or the number of completions if that is smaller",
                    [](const Resolution<InferProgram>& r) -> SettingValue {
                      const std::int64_t max_batch = 8;
                      const bool is_one_prompt =
                          r.config.command.empty() && r.config.prompts.empty();
                      return is_one_prompt ? std::min(max_batch, r.config.samples) : max_batch;
                    }},
       .range = between(1, 65535),
       .commands = {"", "classify"}},
      {.flag = "--chunk",
       .field = [](auto& s) -> decltype(auto) { return (s.chunk); },
       .unit = "TOKENS",
       .help = "maximum number of tokens of prompts, or of texts to classify, per pass; does not "
               "change the results",
       .fallback = 512,
       .range = at_least(1),
       .commands = {"", "bench", "classify"}},
      {.flag = "--stop",
       .field = [](auto& s) -> decltype(auto) { return (s.stop); },
       .unit = "TEXT",
       .help = "text that ends a completion and is not part of it; may be given several times",
       .special = {.keeps_commas = true},
       .check = infer_detail::utf8_error,
       .commands = {""}},
      {.flag = "--ignore-eos",
       .field = [](auto& s) -> decltype(auto) { return (s.ignore_eos); },
       .help = "continue after <|endoftext|>",
       .commands = {""}},
      {.flag = "--slide",
       .field = [](auto& s) -> decltype(auto) { return (s.slide); },
       .help = "at the end of the context, drop the oldest tokens and continue; a longer prompt "
               "loses its oldest tokens too",
       .commands = {""}},
  };
}

Settings<InferProgram> sampling_rows() {
  return {
      {.flag = "--temperature",
       .field = [](auto& s) -> decltype(auto) { return (s.temperature); },
       .unit = "X",
       .help = "divide the logits by this value; 0 always selects the most likely token",
       .fallback = 1.0,
       .range = between(0, 1e30),
       .special = {.synonym = "--temp"},
       .commands = {""}},
      {.flag = "--top-k",
       .field = [](auto& s) -> decltype(auto) { return (s.top_k); },
       .unit = "TOKENS",
       .help = "sample from this many of the most likely tokens; 0 samples from all",
       .fallback = 0,
       .range = at_least(0),
       .commands = {""}},
      {.flag = "--top-p",
       .field = [](auto& s) -> decltype(auto) { return (s.top_p); },
       .unit = "P",
       .help = "sample from the smallest set of most likely tokens whose probability reaches this "
               "value; 1 disables it, 0 always selects the most likely token",
       .fallback = 1.0,
       .range = between(0, 1),
       .commands = {""}},
      {.flag = "--min-p",
       .field = [](auto& s) -> decltype(auto) { return (s.min_p); },
       .unit = "P",
       .help = "sample from the tokens with at least this fraction of the highest probability; 0 "
               "disables it",
       .fallback = 0.0,
       .range = between(0, 1),
       .commands = {""}},
      {.flag = "--typical",
       .field = [](auto& s) -> decltype(auto) { return (s.typical); },
       .unit = "P",
       .help = "locally typical sampling with this probability mass; 1 disables it, 0 always "
               "selects the most likely token",
       .fallback = 1.0,
       .range = between(0, 1),
       .commands = {""}},
  };
}

Settings<InferProgram> penalty_rows() {
  return {
      {.flag = "--repeat-penalty",
       .field = [](auto& s) -> decltype(auto) { return (s.repeat_penalty); },
       .unit = "X",
       .help = "divide positive logits of repeated tokens by this value and multiply negative ones "
               "by it; 1 disables it",
       .fallback = 1.0,
       .range = between(1e-6, 1e6),
       .commands = {""}},
      {.flag = "--repeat-last-n",
       .field = [](auto& s) -> decltype(auto) { return (s.repeat_last_n); },
       .unit = "TOKENS",
       .help = "number of last tokens, of prompt and text, in which penalties count repeats; 0: "
               "none, -1: all",
       .fallback = 64,
       .range = at_least(-1),
       .commands = {""}},
      {.flag = "--presence-penalty",
       .field = [](auto& s) -> decltype(auto) { return (s.presence_penalty); },
       .unit = "X",
       .help = "subtract this value from the logits of repeated tokens",
       .fallback = 0.0,
       .range = between(-1e6, 1e6),
       .commands = {""}},
      {.flag = "--frequency-penalty",
       .field = [](auto& s) -> decltype(auto) { return (s.frequency_penalty); },
       .unit = "X",
       .help = "subtract this value from the logit of a token once per repeat",
       .fallback = 0.0,
       .range = between(-1e6, 1e6),
       .commands = {""}},
      {.flag = "--logit-bias",
       .field = [](auto& s) -> decltype(auto) { return (s.logit_bias); },
       .unit = "ID=VALUE,...",
       .help =
           "add a number from -1e30 to 1e30 to the logit of a token id; -inf bans the token, as in "
           "50256=-inf; "
           "several are separated by commas",
       .check = infer_detail::parse_error<parse_logit_bias>,
       .commands = {""}},
      {.flag = "--seed",
       .field = [](auto& s) -> decltype(auto) { return (s.seed); },
       .unit = "N",
       .help = "seed of sampling; the same seed generates the same tokens; -1 draws a seed",
       .fallback = 1337,
       .range = at_least(-1),
       .commands = {""}},
  };
}

}  // namespace llmc::infer_detail
