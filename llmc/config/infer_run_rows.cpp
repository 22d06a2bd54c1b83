#include <string>
#include <vector>

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

// The commands that compute in --dtype and --quant: merge writes fp32.
std::vector<std::string> computing_commands() {
  return {"", "bench", "perplexity", "score", "quantize", "classify"};
}
// Those that read a calibration text.
std::vector<std::string> calibrating_commands() {
  return {"", "bench", "perplexity", "score", "quantize"};
}

}  // namespace

Settings<InferProgram> device_rows() {
  return {
      {.flag = "--device",
       .field = [](auto& s) -> decltype(auto) { return (s.device); },
       .help = "device to run on; auto selects a GPU if there is one",
       .fallback = SettingValue("auto"),
       .quantity = "device"},
      {.flag = "--dtype",
       .field = [](auto& s) -> decltype(auto) { return (s.dtype); },
       .help = "dtype of weights, activations and key-value cache; sums are fp32",
       .fallback = SettingValue("fp32"),
       .quantity = "dtype",
       .commands = computing_commands()},
      {.flag = "--kv-dtype",
       .field = [](auto& s) -> decltype(auto) { return (s.kv_dtype); },
       .help = "dtype of the key-value cache: that of --dtype; bf16 or fp16 with --dtype fp32; or "
               "int8, with a scale per token and head",
       .fallback = {"--dtype",
                    [](const Resolution<InferProgram>& r) {
                      return setting_detail::to_value(r.config.dtype);
                    }},
       .commands = {"", "bench", "perplexity", "score"}},
      {.flag = "--quant",
       .field = [](auto& s) -> decltype(auto) { return (s.quant); },
       .help =
           "INT8: w8 stores weights as INT8, w8a8 also multiplies INT8 activations, with a "
           "scale per token; w8a8-static has fixed scales from --calibrate and is experimental; "
           "none computes in --dtype. INT8 weights in files have w8 and the mode that they were "
           "written for",
       .fallback = {"none, or the mode of a quantized model",
                    [](const Resolution<InferProgram>&) -> SettingValue {
                      return std::string("none");
                    }},
       .commands = computing_commands()},
      {.flag = "--zero-points",
       .field = [](auto& s) -> decltype(auto) { return (s.zero_points); },
       .help = "zero points of INT8 activations; off: codes are symmetric around 0",
       .fallback = {"auto, or that of a quantized model",
                    [](const Resolution<InferProgram>&) -> SettingValue {
                      return std::string("auto");
                    }},
       .commands = computing_commands()},
      {.flag = "--calibrate",
       .field = [](auto& s) -> decltype(auto) { return (s.calibrate); },
       .unit = "FILE",
       .help = "text (.txt) or tokens (.bin) on which the inputs of the layers are measured, for "
               "--smoothing and for the scales of w8a8-static",
       .commands = calibrating_commands()},
      {.flag = "--bin-format",
       .field = [](auto& s) -> decltype(auto) { return (s.bin_format); },
       .help = "format of .bin files without an .idx: llmc has a header; nanogpt has none, only "
               "16-bit tokens",
       .fallback = SettingValue("llmc"),
       .quantity = "format of token files",
       .commands = calibrating_commands()},
      {.flag = "--smoothing",
       .field = [](auto& s) -> decltype(auto) { return (s.smoothing); },
       .help = "with --calibrate, move large values of activations into the weights of the layers "
               "in which this reduces the error; off: never",
       .fallback = SettingValue("auto"),
       .commands = calibrating_commands()},
  };
}

Settings<InferProgram> output_rows() {
  return {
      {.flag = "--json",
       .field = [](auto& s) -> decltype(auto) { return (s.json); },
       .help = "print one JSON object at the end instead of the text as it is generated; its keys "
               "are prompt_tokens, tokens, text, finish_reason (length, stop, context, cancelled), "
               "seed, ids, id, prompt, sample, logprobs, timings",
       .excluded_flags = {"--jsonl", "--prompts"},
       .commands = {""}},
      {.flag = "--jsonl",
       .field = [](auto& s) -> decltype(auto) { return (s.jsonl); },
       .help = "print one JSON object per line and completion, with the keys and finish reasons "
               "(length, stop, context, cancelled) of --json; the object of a completion that "
               "failed has the keys id, prompt, error",
       .excluded_flags = {"--json"},
       .commands = {""}},
      {.flag = "--stream",
       .field = [](auto& s) -> decltype(auto) { return (s.stream); },
       .help = "print the text as it is generated, not when it is complete",
       .fallback = {"on for one completion as text",
                    [](const Resolution<InferProgram>& r) -> SettingValue {
                      const InferConfig& s = r.config;
                      return s.samples == 1 && s.prompts.empty() && !s.json && !s.jsonl;
                    }},
       .excluded_flags = {"--json", "--jsonl"},
       .special = {.negated = "--no-stream"},
       .commands = {""}},
      {.flag = "--display-prompt",
       .field = [](auto& s) -> decltype(auto) { return (s.display_prompt); },
       .help = "print the prompt before the text",
       .excluded_flags = {"--json", "--jsonl"},
       .special = {.negated = "--no-display-prompt"},
       .commands = {""}},
      {.flag = "--interactive",
       .field = [](auto& s) -> decltype(auto) { return (s.interactive); },
       .help = "read prompts from the terminal, one after another; each continues the text so far",
       .excluded_flags = {"--prompts", "--json", "--jsonl"},
       .special = {.synonym = "-i"},
       .commands = {""}},
      {.flag = "--quiet",
       .field = [](auto& s) -> decltype(auto) { return (s.quiet); },
       .help = "print only results, warnings and errors"},
  };
}

Settings<InferProgram> evaluation_rows() {
  return {
      {.flag = "--seq-len",
       .field = [](auto& s) -> decltype(auto) { return (s.seq_len); },
       .unit = "TOKENS",
       .help = "tokens per window",
       .fallback = "the context of the model",
       .range = at_least(1),
       .commands = {"perplexity", "score"}},
      {.flag = "--limit",
       .field = [](auto& s) -> decltype(auto) { return (s.limit); },
       .unit = "N",
       .help = "maximum number of windows or examples per file; 0 uses all",
       .fallback = 0,
       .range = at_least(0),
       .commands = {"perplexity", "score"}},
      {.flag = "--stride",
       .field = [](auto& s) -> decltype(auto) { return (s.stride); },
       .unit = "TOKENS",
       .help = "tokens between the starts of the windows of perplexity; --seq-len: no overlap",
       .fallback = "half of --seq-len",
       .range = at_least(1),
       .commands = {"perplexity"}},
      {.flag = "--base",
       .field = [](auto& s) -> decltype(auto) { return (s.base); },
       .unit = "DIR|FILE",
       .help = "model to compare with token by token: differences of the loss, KL divergence, "
               "agreement",
       .excluded_flags = {"--base-log"},
       .commands = {"perplexity"}},
      {.flag = "--base-log",
       .field = [](auto& s) -> decltype(auto) { return (s.base_log); },
       .unit = "FILE",
       .help = "compare with the log of a model that --save-log wrote",
       .excluded_flags = {"--base"},
       .commands = {"perplexity"}},
      {.flag = "--save-log",
       .field = [](auto& s) -> decltype(auto) { return (s.save_log); },
       .unit = "FILE",
       .help = "write the log-probabilities of the vocabulary at every scored token for --base-log",
       .commands = {"perplexity"}},
  };
}

Settings<InferProgram> bench_rows() {
  return {
      {.flag = "--prompt-tokens",
       .field = [](auto& s) -> decltype(auto) { return (s.prompt_tokens); },
       .unit = "LIST",
       .help = "lengths of the prompts whose reading is timed; 0: none",
       .fallback = {"512",
                    [](const auto&) -> SettingValue { return std::vector<std::string>{"512"}; }},
       .check = infer_detail::whole_number_error<0>,
       .commands = {"bench"}},
      {.flag = "--gen-tokens",
       .field = [](auto& s) -> decltype(auto) { return (s.gen_tokens); },
       .unit = "LIST",
       .help = "numbers of tokens whose generation is timed; 0: none",
       .fallback = {"128",
                    [](const auto&) -> SettingValue { return std::vector<std::string>{"128"}; }},
       .check = infer_detail::whole_number_error<0>,
       .commands = {"bench"}},
      {.flag = "--batches",
       .field = [](auto& s) -> decltype(auto) { return (s.batches); },
       .unit = "LIST",
       .help = "numbers of sequences that are decoded together",
       .fallback = {"1,8",
                    [](const auto&) -> SettingValue {
                      return std::vector<std::string>{"1", "8"};
                    }},
       .check = infer_detail::whole_number_error<1>,
       .commands = {"bench"}},
      {.flag = "--positions",
       .field = [](auto& s) -> decltype(auto) { return (s.positions); },
       .unit = "LIST",
       .help = "positions at which one decode step is timed",
       .fallback = {"1,128,512,1023",
                    [](const auto&) -> SettingValue {
                      return std::vector<std::string>{"1", "128", "512", "1023"};
                    }},
       .check = infer_detail::whole_number_error<0>,
       .commands = {"bench"}},
      {.flag = "--repetitions",
       .field = [](auto& s) -> decltype(auto) { return (s.repetitions); },
       .unit = "N",
       .help = "repetitions of each measurement",
       .fallback = 5,
       .range = at_least(1),
       .commands = {"bench"}},
      {.flag = "--format",
       .field = [](auto& s) -> decltype(auto) { return (s.format); },
       .help = "format of the table",
       .fallback = SettingValue("md"),
       .commands = {"bench"}},
  };
}

}  // namespace llmc::infer_detail
