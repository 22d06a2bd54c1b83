#include "llmc/config/train_input_settings.h"

#include <cstdint>
#include <string>
#include <vector>

#include "llmc/config/bare_words.h"
#include "llmc/config/eval_spec.h"
#include "llmc/config/model_config.h"
#include "llmc/config/relocation.h"
#include "llmc/config/setting.h"
#include "llmc/config/train_rules.h"
#include "llmc/config/train_settings.h"

// Each group is a struct with the values and a list of rows. Rules and checks that the rows call
// are in model_rules.h and train_rules.h.
//
// A row names only the columns it needs, which causes this warning. (Default member initializers
// would prevent it, but they crash g++ 12.)
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

namespace llmc {

Settings<TrainProgram> data_rows() {
  return {
      {.flag = "--train",
       .field = [](auto& s) -> decltype(auto) { return (s.data.train); },
       .unit = "NAME[:WEIGHT],...",
       .help = "training data: texts, .jsonl (both also as .gz or .zst), tokens (.bin of llm.c or "
               "nanoGPT, Megatron's .bin with .idx) or patterns such as 'dir/*.bin'; sampled in "
               "proportion to size, or to weights "
               "(a:0.7,b:0.3)",
       .fallback = "a toy language",
       .changes_results = true,
       .on_resume = OnResume::adapted,
       .special = {.resume_text = "file names, weights, numbers and hashes of tokens are compared; "
                                  "directories are not",
                   .relocate = relocate_sources,
                   .accepts_bare_word = is_data_word,
                   .word_separator = ","}},
      {.flag = "--val",
       .field = [](auto& s) -> decltype(auto) { return (s.data.val); },
       .unit = "NAME,...",
       .help = "validation data, in the same formats as --train; the tokens at the end of a source "
               "that "
               "fill no window of --seq-len are left out",
       .fallback = "the last 5% of each source of --train",
       .quantity = "validation text",
       .special = {.relocate = relocate_sources,
                   .accepts_bare_word = is_data_word,
                   .word_separator = ","}},
      {.flag = "--bin-format",
       .field = [](auto& s) -> decltype(auto) { return (s.data.bin_format); },
       .help = "format of .bin files without an .idx: llmc has a header; nanogpt has none, only "
               "16-bit tokens",
       .fallback = SettingValue("llmc"),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .quantity = "format of token files"},
      {.flag = "--document-mask",
       .field = [](auto& s) -> decltype(auto) { return (s.data.document_mask); },
       .help = "mask attention between documents, which end at end-of-text or at the end of a "
               "Megatron document; positions are not reset",
       .changes_results = true,
       .on_resume = OnResume::noted},
      {.flag = "--tokenizer",
       .field = [](auto& s) -> decltype(auto) { return (s.data.tokenizer); },
       .unit = "NAME|DIR",
       .help =
           "bytes, gpt2 (an installed vocabulary of GPT-2), words:FILE, a tokenizer.json, or a "
           "directory that contains tokenizer.json, or encoder.json and vocab.bpe, or vocab.json "
           "and merges.txt",
       .fallback = {"the files next to --init-from, none for token files alone, else bytes",
                    [](const Resolution<TrainProgram>& r) { return r.facts.tokenizer; }},
       .changes_results = true,
       .on_resume = OnResume::fixed,
       .quantity = "tokenizer",
       .special = {.resume_text = "every token must stand for the same text; the files may differ",
                   .relocate = relocate_tokenizer}},
      {.flag = "--vocab-size",
       .field = [](auto& s) -> decltype(auto) { return (s.data.vocab_size); },
       .unit = "TOKENS",
       .help = "number of different tokens in token files that are used without a tokenizer",
       .fallback = {"that of --init-from, else 50257 (GPT-2)",
                    [](const Resolution<TrainProgram>& r) {
                      return r.facts.weights.value_or(r.facts.default_shape).vocabulary;
                    }},
       .range = at_least(1),
       .excluded_flags = {"--tokenizer"},
       .changes_results = true,
       .on_resume = OnResume::fixed,
       .quantity = "vocabulary size"},
  };
}

// How the texts of --train and --val are read.
Settings<TrainProgram> text_rows() {
  return {
      {.flag = "--text-format",
       .field = [](auto& s) -> decltype(auto) { return (s.data.text_format); },
       .help = "format of the texts of --train and --val: JSON lines or plain texts; auto selects "
               "it by file name",
       .fallback = SettingValue("auto"),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .quantity = "document format"},
      {.flag = "--text-field",
       .field = [](auto& s) -> decltype(auto) { return (s.data.text_field); },
       .unit = "KEY",
       .help = "key of the text in each object of a .jsonl file",
       .fallback = SettingValue("text"),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .quantity = "text field"},
      {.flag = "--split-on",
       .field = [](auto& s) -> decltype(auto) { return (s.data.split_on); },
       .unit = "LINE",
       .help = "line that separates the documents of a text, such as '<|endoftext|>'; each "
               "document then follows an end-of-text token",
       .fallback = "each text is one document",
       .changes_results = true,
       .on_resume = OnResume::noted,
       .check =
           [](const std::string& line) {
             const bool is_one_line = line.find('\n') == line.npos;
             return std::string(is_one_line ? "" : "must be one line, without a line break");
           }},
      {.flag = "--skip-bad-lines",
       .field = [](auto& s) -> decltype(auto) { return (s.data.skip_bad_lines); },
       .help = "skip and count lines of JSON that are invalid or have no text in --text-field; "
               "without this flag they are errors",
       .changes_results = true,
       .on_resume = OnResume::noted,
       .quantity = "skipping bad lines"},
      {.flag = "--cache-dir",
       .field = [](auto& s) -> decltype(auto) { return (s.data.cache_dir); },
       .unit = "DIR",
       .help = "directory for the cached tokens of texts",
       .fallback = "next to each text",
       .excluded_flags = {"--no-cache"},
       .special = {.may_differ = "machines have different local disks; the tokens are compared",
                   .relocate = relocate_path}},
      {.flag = "--no-cache",
       .field = [](auto& s) -> decltype(auto) { return (s.data.no_cache); },
       .help = "tokenize texts at every start, without a cache"},
  };
}

Settings<TrainProgram> model_rows() {
  const auto from_model = [](std::int64_t ModelConfig::*size) {
    return [size](const Resolution<TrainProgram>& r) { return implied_size(r, size); };
  };
  const auto default_size = [](const char* text, std::int64_t ModelConfig::*size) {
    return Default<TrainProgram>(
        text, [size](const Resolution<TrainProgram>& r) { return r.facts.default_shape.*size; });
  };
  return {
      {.flag = "--model",
       .field = [](auto& s) -> decltype(auto) { return (s.model.name); },
       .unit = "dN|megatron-SIZE|FILE.json",
       .help = "shape of the model: d12 (124M), d24 (350M), d36 (774M), d48 (1558M) or another "
               "depth; megatron-1.2b, 2.5b, 4.2b or 8.3b; or a config.json of transformers, whose "
               "vocab_size is not used",
       .changes_results = true,
       .on_resume = OnResume::fixed,
       .special = {.accepts_bare_word = is_size_name}},
      {.flag = "--init-from",
       .field = [](auto& s) -> decltype(auto) { return (s.model.init_from); },
       .unit = "DIR|FILE",
       .help = "initial weights, which also set the model's sizes: a directory that transformers "
               "saved, a checkpoint, the --out of another run (its newest valid checkpoint), or a "
               "model file of llm.c (.bin)",
       .changes_results = true,
       .on_resume = OnResume::ignored,
       .special = {.accepts_bare_word = is_model_directory}},
      {.flag = "--layers",
       .field = [](auto& s) -> decltype(auto) { return (s.model.layers); },
       .unit = "N",
       .help = "number of transformer blocks",
       .fallback = default_size("from --model or --init-from, else 12 on a GPU, 4 on a CPU",
                                &ModelConfig::layers),
       .range = at_least(1),
       .changes_results = true,
       .on_resume = OnResume::fixed,
       .implied_value = from_model(&ModelConfig::layers)},
      {.flag = "--heads",
       .field = [](auto& s) -> decltype(auto) { return (s.model.heads); },
       .unit = "N",
       .help = "attention heads per block",
       .fallback = default_size("from --model or --init-from, else 12 on a GPU, 4 on a CPU",
                                &ModelConfig::heads),
       .range = at_least(1),
       .changes_results = true,
       .on_resume = OnResume::fixed,
       .implied_value = from_model(&ModelConfig::heads)},
      {.flag = "--channels",
       .field = [](auto& s) -> decltype(auto) { return (s.model.channels); },
       .unit = "N",
       .help = "width of the residual stream",
       .fallback = default_size("from --model or --init-from, else 768 on a GPU, 128 on a CPU",
                                &ModelConfig::channels),
       .range = at_least(1),
       .changes_results = true,
       .on_resume = OnResume::fixed,
       .implied_value = from_model(&ModelConfig::channels)},
      {.flag = "--context",
       .field = [](auto& s) -> decltype(auto) { return (s.model.context); },
       .unit = "TOKENS",
       .help = "number of position embeddings, which is the maximum sequence length",
       .fallback = default_size("from --model or --init-from, else 1024 on a GPU, 128 on a CPU",
                                &ModelConfig::context),
       .range = at_least(1),
       .changes_results = true,
       .on_resume = OnResume::fixed,
       .quantity = "context",
       .implied_value = from_model(&ModelConfig::context),
       .verify = [](const Resolution<TrainProgram>& r) { return check_model(r); }},
  };
}

Settings<TrainProgram> batch_rows() {
  return {
      {.flag = "--batch-size",
       .field = [](auto& s) -> decltype(auto) { return (s.batch.batch_size); },
       .unit = "SEQUENCES",
       .help = "sequences per micro-batch of each rank; the ranks of a tensor group (--tp) and of "
               "a pipeline (--pp) share them",
       .fallback = {"8 on a CPU; on a GPU the largest power of two up to 64 that fits into its "
                    "memory minus 2 GiB",
                    [](const Resolution<TrainProgram>& r) { return r.facts.default_batch_size; }},
       .range = at_least(1),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .special =
           {.resume_text =
                "the position in the data counts sequences, so none is skipped or repeated"}},
      {.flag = "--seq-len",
       .field = [](auto& s) -> decltype(auto) { return (s.batch.seq_len); },
       .unit = "TOKENS",
       .help = "tokens per sequence",
       .fallback = {"--context",
                    [](const Resolution<TrainProgram>& r) { return r.config.model.context; }},
       .range = at_least(1),
       .changes_results = true,
       .on_resume = OnResume::adapted,
       .quantity = "sequence length",
       .special = {.resume_text =
                       "the position becomes the number of new sequences that contain the tokens "
                       "read so far; windows and their order change"},
       .verify = [](const Resolution<TrainProgram>& r) { return check_sequences(r); }},
      {.flag = "--grad-accum",
       .field = [](auto& s) -> decltype(auto) { return (s.batch.grad_accum); },
       .unit = "MICRO-BATCHES",
       .help = "micro-batches per step of each rank",
       .fallback =
           {"1 on a CPU; on a GPU as many as come closest to 524288 tokens per step; rounded up "
            "to a multiple of --pp",
            [](const Resolution<TrainProgram>& r) { return default_grad_accum(r); }},
       .range = at_least(1),
       .excluded_flags = {"--total-batch-tokens"},
       .changes_results = true,
       .on_resume = OnResume::noted,
       .implied_value = [](const Resolution<TrainProgram>& r) { return implied_grad_accum(r); },
       .verify = [](const Resolution<TrainProgram>& r) { return check_step_tokens(r); }},
      {.flag = "--total-batch-tokens",
       .field = [](auto& s) -> decltype(auto) { return (s.batch.total_batch_tokens); },
       .unit = "TOKENS",
       .help = "tokens per step of all ranks, a multiple of --batch-size x --seq-len x ranks / "
               "(--tp x --pp); sets --grad-accum",
       .fallback = "--batch-size x --seq-len x --grad-accum x ranks / (--tp x --pp)",
       .range = at_least(1),
       .changes_results = true,
       .on_resume = OnResume::noted,
       .special =
           {.resume_text =
                "once it was typed, steps keep their tokens: --grad-accum changes, or the run "
                "is refused. A typed --grad-accum ends this",
            .recorded_if_given = true},
       .implied_value = [](const Resolution<TrainProgram>& r) { return implied_total_tokens(r); }},
      {.flag = "--logits-rows",
       .field = [](auto& s) -> decltype(auto) { return (s.batch.logits_rows); },
       .unit = "ROWS",
       .help = "rows of logits (one per token) that exist at the same time; fewer need less "
               "memory, more make larger matrix products; 0 keeps all rows of a micro-batch",
       .fallback = 4096,
       .range = at_least(0),
       .changes_results = true,
       .on_resume = OnResume::noted},
  };
}

Settings<TrainProgram> evaluation_rows() {
  return {
      {.flag = "--eval",
       .field = [](auto& s) -> decltype(auto) { return (s.evaluation.tasks); },
       .unit = "TASK:FILE,...",
       .help = "evaluation tasks, separated by commas: perplexity (a text or token file), wikitext "
               "(a text, detokenized), lambada, hellaswag or race (.jsonl); --steps 0 evaluates "
               "without training",
       .special = {.relocate = relocate_after_colon},
       .check = eval_spec_error},
      {.flag = "--eval-task-every",
       .field = [](auto& s) -> decltype(auto) { return (s.evaluation.every); },
       .unit = "STEPS",
       .help = "steps between runs of the tasks; 0 runs them only at the end",
       .fallback = 0,
       .range = at_least(0),
       .required_flags = {"--eval"}},
      {.flag = "--eval-limit",
       .field = [](auto& s) -> decltype(auto) { return (s.evaluation.limit); },
       .unit = "EXAMPLES",
       .help = "maximum number of examples per file of lambada, hellaswag and race, and of windows "
               "per file of perplexity and wikitext; 0 uses all",
       .fallback = 0,
       .range = at_least(0),
       .required_flags = {"--eval"}},
      {.flag = "--eval-stride",
       .field = [](auto& s) -> decltype(auto) { return (s.evaluation.stride); },
       .unit = "TOKENS",
       .help = "tokens between the starts of the windows of perplexity and wikitext; --seq-len: no "
               "overlap",
       .fallback = {"half of --seq-len",
                    [](const Resolution<TrainProgram>& r) {
                      return (r.config.batch.seq_len + 1) / 2;
                    }},
       .range = at_least(1),
       .required_flags = {"--eval"},
       .implied_value = [](const Resolution<TrainProgram>& r) { return implied_stride(r); }},
  };
}

}  // namespace llmc
