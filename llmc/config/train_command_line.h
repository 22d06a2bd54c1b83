// The flags of train_gpt2, from one table: what --help prints is what the parser knows.
#pragma once

#include <optional>
#include <string>

#include "llmc/config/command_line.h"
#include "llmc/config/eval_spec.h"
#include "llmc/config/train_settings.h"

namespace llmc {

namespace command_line_detail {

inline void add_data_flags(CLI::App& app, TrainSettings& s) {
  const std::string group = "Data";
  app.add_option("--train", s.train,
                 "texts, .jsonl, tokens (llm.c's .bin, Megatron's .bin with .idx) or patterns such "
                 "as 'dir/*.bin', drawn from by size or by weight (a:0.7,b:0.3) [a toy language]")
      ->type_name("NAME[:WEIGHT],...")
      ->group(group);
  app.add_option("--val", s.val,
                 "validation data, of the same kinds [the last 5% of each source of --train]")
      ->type_name("NAME,...")
      ->group(group);
  app.add_option("--text-field", s.text_field, "the key of the text in .jsonl")
      ->type_name("KEY")
      ->capture_default_str()
      ->group(group);
  auto* cache_dir =
      app.add_option("--cache-dir", s.cache_dir, "keep the tokens of texts here [beside each text]")
          ->type_name("DIR")
          ->group(group);
  app.add_flag("--no-cache", s.no_cache, "tokenize texts at each start and keep no tokens")
      ->excludes(cache_dir)
      ->group(group);
  app.add_flag(
         "--document-mask", s.document_mask,
         "attention does not reach over end-of-text, or from one of Megatron's documents into "
         "another; positions go on")
      ->group(group);
  app.add_option("--tokenizer", s.tokenizer,
                 "bytes, words:FILE, a tokenizer.json, or a directory with that, with encoder.json "
                 "and vocab.bpe, or with vocab.json and merges.txt [bytes]")
      ->type_name("NAME|DIR")
      ->group(group);
}

inline void add_model_flags(CLI::App& app, TrainSettings& s) {
  const std::string group = "Model";
  const auto size = [&](const char* flag, std::int64_t& value, const char* text) {
    app.add_option(flag, value, text)
        ->check(at_least(std::int64_t{1}))
        ->type_name("N")
        ->group(group);
  };
  app.add_option("--model", s.model,
                 "d12 (124M), d24 (350M), d36 (774M), d48 (1558M) or another depth")
      ->type_name("dN")
      ->group(group);
  size("--layers", s.layers, "transformer blocks [by --model]");
  size("--heads", s.heads, "attention heads [by --model]");
  size("--channels", s.channels, "width of the residual stream [by --model]");
  size("--context", s.context,
       "positions the model knows, in tokens [1024; small default models: 128]");
  app.add_option("--init-from", s.init_from,
                 "start from these weights: a directory saved by transformers, a checkpoint, or a "
                 "model file of llm.c (.bin)")
      ->type_name("DIR|FILE")
      ->group(group);
}

inline void add_batch_flags(CLI::App& app, TrainSettings& s) {
  const std::string group = "Batch";
  const auto size = [&](const char* flag, std::int64_t& value, const char* text) {
    return app.add_option(flag, value, text)
        ->check(at_least(std::int64_t{1}))
        ->type_name("N")
        ->group(group);
  };
  size("--batch-size", s.batch_size, "sequences in a micro-batch [8]");
  size("--seq-len", s.seq_len, "tokens in a sequence [--context]");
  auto* accum = size("--grad-accum", s.grad_accum, "micro-batches in a step [1]");
  size("--total-batch-tokens", s.total_batch_tokens,
       "tokens in a step, a multiple of batch-size x seq-len [by --grad-accum]")
      ->excludes(accum);
  app.add_option("--logits-rows", s.logits_rows,
                 "rows of logits (one per token) that exist at the same time; fewer need less "
                 "memory, more make larger matrix products; 0: all rows of a micro-batch")
      ->check(at_least(std::int64_t{0}))
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
}

inline void add_optimizer_flags(CLI::App& app, TrainSettings& s) {
  const std::string group = "Optimisation (AdamW)";
  const auto real = [&](const char* flag, double& value, const char* text,
                        const CLI::Validator& check) {
    return app.add_option(flag, value, text)->check(check)->type_name("X")->group(group);
  };
  auto* steps =
      app.add_option("--steps", s.steps, "optimizer steps; 0: only evaluate --val or --eval [1000]")
          ->check(at_least(std::int64_t{0}))
          ->type_name("N")
          ->group(group);
  real("--epochs", s.epochs,
       "instead of --steps: train until as many windows as --train has were taken this many times",
       between(1e-6, 1e6))
      ->excludes(steps);
  real("--lr", s.lr, "highest learning rate [6e-4]", at_least(0.0));
  app.add_option("--warmup", s.warmup, "steps of linear warm-up [a twentieth of --steps]")
      ->check(at_least(std::int64_t{0}))
      ->type_name("N")
      ->group(group);
  app.add_option("--schedule", s.schedule, "of the learning rate after the warm-up")
      ->check(CLI::IsMember({"cosine", "linear", "constant", "wsd"}))
      ->capture_default_str()
      ->group(group);
  real("--decay-fraction", s.decay_fraction,
       "of --schedule wsd: the rate stays until this last part of --steps, then falls in a line "
       "[0.2]",
       between(0.0, 1.0));
  real("--final-lr", s.final_lr, "learning rate at the last step, as a fraction of --lr [0.1]",
       between(0.0, 1.0));
  real("--weight-decay", s.weight_decay, "of matrices and embeddings, decoupled [0.1]",
       at_least(0.0));
  real("--beta1", s.beta1, "decay of the first moment", between(0.0, 0.999999))
      ->capture_default_str();
  real("--beta2", s.beta2, "decay of the second moment", between(0.0, 0.999999))
      ->capture_default_str();
  real("--eps", s.eps, "added to the root of the second moment", at_least(0.0))
      ->capture_default_str();
  real("--clip", s.clip, "largest norm of all gradients together; 0: none", at_least(0.0))
      ->capture_default_str();
  const auto dropout = [&](const char* flag, double& value, const char* text) {
    real(flag, value, text, between(0.0, 0.999999));
  };
  dropout("--dropout", s.dropout, "probability of the three below [0]");
  dropout("--embedding-dropout", s.embedding_dropout, "of the sum of the embeddings [--dropout]");
  dropout("--attention-dropout", s.attention_dropout, "of attention's probabilities [--dropout]");
  dropout("--residual-dropout", s.residual_dropout,
          "of what each branch adds to the residual stream [--dropout]");
  app.add_option("--max-skipped", s.max_skipped,
                 "give up after this many updates in a row had a loss or gradient that is not "
                 "finite; in fp16 "
                 "not counting those that a smaller loss scale may cure")
      ->check(at_least(std::int64_t{1}))
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
}

inline void add_number_flags(CLI::App& app, TrainSettings& s) {
  const std::string group = "Device and numbers";
  app.add_option("--device", s.device, "auto: a GPU where there is one")
      ->check(CLI::IsMember({"auto", "cuda", "host"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--dtype", s.dtype, "of weights in use and activations; masters and sums are fp32")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--loss-scale", s.loss_scale,
                 "fp16: what gradients are multiplied by at first, a power of two; halved when one "
                 "overflows, doubled after --loss-scale-window good steps [65536]")
      ->check(between(1.0, 16777216.0))
      ->type_name("X")
      ->group(group);
  app.add_option("--loss-scale-window", s.loss_scale_window, "steps [2000]")
      ->check(at_least(std::int64_t{1}))
      ->type_name("N")
      ->group(group);
  app.add_flag("--stochastic-rounding", s.stochastic_rounding,
               "bf16, fp16: round the fp32 masters to weights up or down at random, right on "
               "average, instead of to the nearest")
      ->group(group);
  app.add_option("--attention", s.attention, "standard keeps the (T, T) matrix: a baseline")
      ->check(CLI::IsMember({"flash", "standard"}))
      ->capture_default_str()
      ->group(group);
  app.add_flag("--tf32", s.tf32, "let fp32 matrix products round to TF32 on a GPU")->group(group);
  app.add_option("--peak-tflops", s.peak_tflops,
                 "TFLOP/s that MFU is measured against [the device's, else the fastest of some "
                 "matrix products]")
      ->check(at_least(0.0))
      ->type_name("X")
      ->group(group);
  app.add_option("--seed", s.seed, "of initialisation, shuffling, sampling, dropout and rounding")
      ->check(at_least(std::uint64_t{0}))
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
}

inline void add_evaluation_flags(CLI::App& app, TrainSettings& s) {
  const std::string group = "Evaluation tasks (of all weights; results to stdout and --log)";
  const auto check = [](const std::string& text) -> std::string {
    try {
      parse_eval_spec(text);
      return {};
    } catch (const Error& error) {
      return error.what();
    }
  };
  auto* eval =
      app.add_option("--eval", s.eval,
                     "perplexity (of a text), wikitext (the same, detokenized), lambada or "
                     "hellaswag (.jsonl), more after commas; with --steps 0 all that is done")
          ->check(CLI::Validator(check, ""))
          ->delimiter(',')
          ->allow_extra_args(false)
          ->type_name("TASK:FILE")
          ->group(group);
  const auto count = [&](const char* flag, std::int64_t& value, const char* text,
                         std::int64_t least) {
    app.add_option(flag, value, text)
        ->check(at_least(least))
        ->type_name("N")
        ->needs(eval)
        ->group(group);
  };
  count("--eval-task-every", s.eval_task_every, "steps between; 0: only at the end [0]", 0);
  count("--eval-limit", s.eval_limit, "so many examples of lambada and hellaswag; 0: all [0]", 0);
  count("--eval-stride", s.eval_stride,
        "tokens between the windows of a perplexity; --seq-len: no overlap [half of --seq-len]", 1);
}

inline void add_output_flags(CLI::App& app, TrainSettings& s) {
  const std::string group = "Output";
  const auto count = [&](const char* flag, std::int64_t& value, const char* text) {
    return app.add_option(flag, value, text)
        ->check(at_least(std::int64_t{0}))
        ->type_name("N")
        ->group(group);
  };
  auto* out =
      app.add_option("--out", s.out, "directory for checkpoints; without it nothing is saved")
          ->type_name("DIR")
          ->group(group);
  count("--checkpoint-every", s.checkpoint_every, "steps; 0: only at the end [0]")->needs(out);
  auto* keep = count("--keep", s.keep, "newest checkpoints that stay; 0: all [0]")->needs(out);
  count("--milestone-every", s.milestone_every,
        "steps between checkpoints that --keep never removes; 0: none [0]")
      ->needs(keep);
  app.add_flag("--resume", s.resume, "go on from the newest good checkpoint in --out")
      ->needs(out)
      ->group(group);
  count("--stop-after", s.stop_after,
        "save and end after this many steps of this run; 0: never [0]");
  app.add_option("--log", s.log, "run log, JSON lines")->type_name("FILE.jsonl")->group(group);
  auto* profile =
      count("--profile", s.profile,
            "time this many steps, from the run's second on, operation by operation [0]");
  app.add_option("--profile-out", s.profile_out, "what --profile finds goes here too, JSON lines")
      ->type_name("FILE.jsonl")
      ->needs(profile)
      ->group(group);
  count("--eval-every", s.eval_every, "steps between validation losses; 0: never [steps/10]");
  count("--eval-batches", s.eval_batches, "batches of each, while training; 0: all")
      ->capture_default_str();
  count("--sample-every", s.sample_every, "steps between samples of text; 0: never [steps/5]");
  count("--sample-tokens", s.sample_tokens, "tokens in such a sample")->capture_default_str();
  app.add_option("--prompt", s.prompt, "what samples begin with [a line break]")
      ->type_name("TEXT")
      ->group(group);
  auto* file =
      app.add_option("--samples-out", s.samples_out, "text sampled at the end goes to this file")
          ->type_name("FILE")
          ->group(group);
  count("--samples-tokens", s.samples_tokens, "tokens in that file")
      ->capture_default_str()
      ->needs(file);
}

}  // namespace command_line_detail

// Fills `settings`. A value: the program ends at once with that exit code (help was asked for, or
// the flags are wrong, which has been said on stderr).
inline std::optional<int> parse_command_line(int argc, char** argv, TrainSettings& settings) {
  using namespace command_line_detail;
  CLI::App app{
      "Trains a GPT-2 from scratch or from given weights, on a GPU or on the CPU. Without "
      "arguments: "
      "a small model on a toy language.",
      "train_gpt2"};
  add_common_flags(app);
  add_data_flags(app, settings);
  add_model_flags(app, settings);
  add_batch_flags(app, settings);
  add_optimizer_flags(app, settings);
  add_number_flags(app, settings);
  add_evaluation_flags(app, settings);
  add_output_flags(app, settings);
  return parse_flags(app, argc, argv, {"--prompt"});
}

}  // namespace llmc
