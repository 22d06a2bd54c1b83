"""The runs that are compared.

A run has a name, a description and commands, which are executed in order in a folder of their own. All files
in this folder are compared, and the exit code, standard output and standard error of every command.

A command is a program with its arguments; in/ has the files of inputs.py. The prefix "exit N: " sets the
expected exit code, which is 0 without it. The prefix "error N: " does the same and marks standard error as an
error message, whose wording may differ. "< FILE" at the end sets standard input. "remove FILE ..." removes
files.
"""
from dataclasses import dataclass

TINY = "--layers 1 --heads 1 --channels 8 --context 8 --batch-size 1"
SMALL = "--layers 2 --heads 2 --channels 16 --context 16 --batch-size 2"
# Without --peak-tflops, every run first measures the speed of matrix products, which takes about a second.
PEAK = "--peak-tflops 1"
QUIET = f"--eval-every 0 --sample-every 0 {PEAK}"


@dataclass
class Run:
    name: str
    about: str
    commands: list


def train(out, flags, data="--train in/text.txt", shape=SMALL, quiet=QUIET):
    """A training command that writes checkpoints to OUT and the log to OUT.jsonl."""
    return f"train_gpt2 {data} {shape} {quiet} --out {out} --log {out}.jsonl {flags}"


def all_programs(dtype):
    """Training, evaluation and generation in one dtype."""
    return [train("run", f"--dtype {dtype} --steps 6 --checkpoint-every 3 --eval-every 3 --eval-batches 2 --sample-every 0",
                  quiet=PEAK),
            f"train_gpt2 --init-from run/step_000006 --val in/val.txt --steps 0 --batch-size 3 --dtype {dtype} {PEAK}",
            f"infer_gpt2 -m run/step_000006 -p the -n 12 --temp 0 --json --dtype {dtype}"]


def interrupted_run(dtype, flags=""):
    """A run that is stopped and resumed twice."""
    flags = f"--steps 7 --dtype {dtype} --checkpoint-every 2 {flags}"
    return [train("run", f"{flags} --stop-after 2"), train("run", f"{flags} --stop-after 3 --resume"),
            train("run", f"{flags} --resume")]


TRAINING = [
    Run("fp32", "training, evaluation, generation in fp32", all_programs("fp32")),
    Run("bf16", "training, evaluation, generation in bf16", all_programs("bf16")),
    Run("fp16", "training, evaluation, generation in fp16", all_programs("fp16")),
    Run("accumulation", "gradient accumulation", [
        train("fp32", "--steps 4 --grad-accum 3"), train("bf16", "--steps 3 --total-batch-tokens 96 --dtype bf16"),
        train("fp16", "--steps 3 --grad-accum 2 --dtype fp16 --logits-rows 5")]),
    Run("dropout", "each kind of dropout, and all of them", [
        train("embedding", "--steps 3 --embedding-dropout 0.25"), train("attention", "--steps 3 --attention-dropout 0.25"),
        train("residual", "--steps 3 --residual-dropout 0.25"), train("all", "--steps 3 --dropout 0.2 --grad-accum 2"),
        train("bf16", "--steps 3 --dropout 0.2 --attention-dropout 0.1 --dtype bf16"),
        train("fp16", "--steps 3 --dropout 0.3 --dtype fp16"),
        train("standard", "--steps 3 --dropout 0.2 --attention standard")]),
    Run("document-mask", "--document-mask with .jsonl and Megatron files, in every dtype", [
        train(name, f"--steps 3 --document-mask {flags}", data=f"--train {data}") for name, flags, data in (
            ("flash", "", "in/docs.jsonl"), ("standard", "--attention standard", "in/docs.jsonl"),
            ("megatron", "--tokenizer bytes", "in/megatron"), ("bf16", "--dtype bf16 --dropout 0.1", "in/docs.jsonl"),
            ("fp16", "--dtype fp16", "in/docs.jsonl,in/megatron"))]),
    Run("loss-scale", "fp16: dynamic loss scaling, with overflows", [
        train("high", "--steps 9 --dtype fp16 --loss-scale 16777216 --loss-scale-window 2"),
        train("low", "--steps 6 --dtype fp16 --loss-scale 2 --loss-scale-window 1"),
        train("resumed", "--steps 6 --dtype fp16 --loss-scale 16777216 --stop-after 2"),
        train("resumed", "--steps 6 --dtype fp16 --loss-scale 2 --resume")]),
    Run("stochastic-rounding", "stochastic rounding of the weights", [
        train(dtype, f"--steps 4 --dtype {dtype} --stochastic-rounding") for dtype in ("bf16", "fp16")]),
    Run("head-sizes", "heads of 8, 24, 40, 64, 72 and 128 channels", [
        train(f"{dtype}-{size}", f"--steps 2 --dtype {dtype}",
              shape=f"--layers 1 --heads {heads} --channels {heads * size} --context 19 --batch-size 3")
        for size, heads in ((8, 3), (24, 2), (40, 1), (64, 2), (72, 1), (128, 1)) for dtype in ("fp32", "bf16", "fp16")]),
    Run("odd-shapes", "one token, odd numbers of rows, sequences shorter than the context, a seed", [
        train("one-token", "--steps 3 --seq-len 1", shape=TINY), train("one-row", "--steps 3 --seq-len 7", shape=TINY),
        train("odd", "--steps 3 --dtype bf16", shape="--layers 3 --heads 3 --channels 24 --context 13 --batch-size 5"),
        train("shorter", "--steps 3 --seq-len 11 --batch-size 3", shape=SMALL.replace("--batch-size 2", "")),
        train("seed", "--steps 2 --seed 7", shape=TINY)]),
    Run("long-sequences", "several tiles of attention, of the classifier and of matrix products", [
        train(name, f"--steps 2 {flags}", shape="--layers 2 --heads 2 --channels 128 --context 150 --batch-size 2")
        for name, flags in (("fp32", ""), ("bf16", "--dtype bf16"), ("fp16", "--dtype fp16"),
                            ("dropout", "--dropout 0.1 --dtype bf16"), ("standard", "--attention standard"))]),
    Run("standard-attention", "standard attention, which stores the (T, T) matrix", [
        train(dtype, f"--steps 3 --attention standard --dtype {dtype}") for dtype in ("fp32", "bf16", "fp16")]),
    Run("logits-rows", "logits computed in chunks of rows", [
        train(f"rows-{rows}", f"--steps 3 --logits-rows {rows}") for rows in (1, 7, 32, 0)]
        + [train("bf16", "--steps 3 --logits-rows 7 --dtype bf16 --grad-accum 2")]),
    Run("tf32", "--tf32 on the host", [train("run", "--steps 3 --tf32")]),
]

OPTIMIZATION = [
    Run("schedules", "learning rates of each schedule", [
        train(name, f"--steps 11 --schedule {flags}", shape=TINY) for name, flags in (
            ("cosine", "cosine --warmup 3 --final-lr 0.2"), ("linear", "linear --warmup 2"),
            ("constant", "constant --warmup 4"), ("wsd", "wsd --decay-fraction 0.4 --warmup 1 --final-lr 0"),
            ("default", "wsd --lr 1e-2"))]),
    Run("optimizer", "AdamW's parameters and gradient clipping", [
        train("other", "--steps 4 --lr 3e-3 --beta1 0.8 --beta2 0.99 --eps 1e-6 --weight-decay 0.3 --clip 0.5"),
        train("unclipped", "--steps 4 --clip 0 --weight-decay 0"), train("bf16", "--steps 4 --clip 0.1 --dtype bf16")]),
    Run("skipped-updates", "updates that are not finite are skipped until the run stops with an error", [
        "exit 1: " + train("run", "--steps 60 --lr 1e30 --warmup 0 --clip 0 --max-skipped 3")]),
    Run("epochs", "a number of epochs instead of steps", [
        train("two", "--epochs 2 --val in/val.txt", data="--train in/shard_0.bin"),
        train("part", "--epochs 0.3 --val in/val.txt", data="--train in/tokens.bin,in/docs.jsonl")]),
]

CHECKPOINTS = [
    Run("resume-fp32", "a run that is stopped and resumed twice, with dropout", interrupted_run("fp32", "--dropout 0.2")),
    Run("resume-bf16", "a resumed run in bf16, with stochastic rounding", interrupted_run("bf16", "--stochastic-rounding")),
    Run("resume-fp16", "a resumed run in fp16, while the loss scale changes",
        interrupted_run("fp16", "--dropout 0.2 --loss-scale 16777216 --loss-scale-window 2")),
    Run("resume-weights", "a resumed run with weighted sources and a document mask", [
        train("run", f"--steps 7 --document-mask {flags}", data="--train in/docs.jsonl:0.7,in/megatron:0.3")
        for flags in ("--stop-after 3", "--resume --stop-after 2", "--resume")]),
    Run("resume-other-flags", "notes on flags that differ from the checkpoint's", [
        train("run", "--steps 40 --dtype bf16 --stop-after 2", shape=TINY),
        train("run", "--steps 50 --dtype bf16 --stop-after 2 --resume --batch-size 2 --grad-accum 3 --logits-rows 7 --lr 0.25 "
              "--warmup 9 --schedule wsd --decay-fraction 0.3 --final-lr 0.5 --weight-decay 0.25 --beta1 0.5 --beta2 0.75 "
              "--eps 1e-7 --clip 2 --dropout 0.125 --attention standard --stochastic-rounding --tf32",
              shape=TINY.replace("--batch-size 1", "")),
        train("run", "--steps 50 --dtype bf16 --stop-after 1 --resume --seq-len 5 --grad-accum 1", shape=TINY)]),
    Run("resume-other-data", "notes on data that differ from the checkpoint's", [
        train("run", f"--steps 9 --stop-after 1 --resume {flags}", data=f"--train {data}", shape=TINY)
        for flags, data in (("", "in/text.txt:0.7,in/other.txt:0.3"), ("", "in/text.txt:0.6,in/other.txt:0.4"),
                            ("", "in/other.txt"), ("", "in/docs.jsonl"), ("--document-mask", "in/docs.jsonl"))]),
    Run("resume-damaged", "resuming if the newest checkpoints are incomplete", [
        train("run", "--steps 6 --checkpoint-every 2 --stop-after 4"), "remove run/step_000004/manifest.json",
        train("run", "--steps 6 --checkpoint-every 2 --resume"),
        "remove run/step_000002/config.json run/step_000004/vocab.json run/step_000006/model.safetensors",
        train("run", "--steps 1 --resume")]),
    Run("retention", "--keep and --milestone-every", [
        train("run", "--steps 8 --checkpoint-every 1 --keep 2 --milestone-every 3", shape=TINY),
        train("run", "--steps 10 --checkpoint-every 1 --keep 1 --milestone-every 4 --resume", shape=TINY)]),
    Run("init-from-checkpoint", "weights of another run, in every dtype", [
        train("first", "--steps 3"),
        *(train(dtype, f"--init-from first/step_000003 --steps 2 --dtype {dtype}", shape="--batch-size 2")
          for dtype in ("fp32", "bf16", "fp16"))]),
    Run("init-from-hf", "weights that transformers saved, with both styles of tensor names", [
        train(name, f"--init-from in/{name} --tokenizer words:in/words61.txt --steps 2 {flags}",
              data="--train in/small_ids.bin", shape="--batch-size 3")
        for name, flags in (("hf_tiny", ""), ("hf_tiny_openai", "--dtype bf16"))]),
    Run("init-from-llmc", "weights of llm.c's model files", [
        train("whole", "--init-from in/llmc.bin --steps 2", shape="--batch-size 1"),
        train("half", "--init-from in/llmc_half.bin --steps 2 --dtype bf16", shape="--batch-size 1"),
        "infer_gpt2 -m in/llmc_half.bin -p old -n 8 --seed 3"]),
]

DATA = [
    Run("sources", "source lists with weights, patterns, all kinds of files, --text-field, tokenizers", [
        train("weights", "--steps 5 --val in/val.txt",
              data="--train in/text.txt:0.4,in/docs.jsonl:0.3,in/tokens.bin:0.2,in/megatron:0.1"),
        train("pattern", "--steps 3", data="--train in/shard_*.bin,in/part_*.txt"),
        train("key", "--steps 2 --text-field body --document-mask", data="--train in/body.jsonl"),
        train("words", "--steps 3 --tokenizer words:in/words.txt"), train("bpe", "--steps 3 --tokenizer in/bpe"),
        "infer_gpt2 -m bpe/step_000003 -p 'the king' -n 10 --json", "infer_gpt2 -m words/step_000003 -p 'the king' -n 10"]),
    Run("token-cache", "the token cache: written, read, in another folder, disabled", [
        *(train(name, f"--steps 2 {flags}", shape=TINY)
          for name, flags in (("write", ""), ("read", ""), ("folder", "--cache-dir ."), ("disabled", "--no-cache")))]),
    Run("validation", "validation on separate data, during training and alone", [
        train("run", "--steps 4 --val in/val.txt,in/docs.jsonl --eval-every 2 --eval-batches 0 --sample-every 0", quiet=PEAK),
        *(f"train_gpt2 --init-from run/step_000004 --val in/val.txt --steps 0 {flags} {PEAK}" for flags in (
            "", "--batch-size 3 --seq-len 7", "--dtype bf16", "--dtype fp16", "--attention standard --logits-rows 3"))]),
    Run("tasks", "evaluation tasks alone", [
        "train_gpt2 --steps 0 --init-from in/model --val in/val.txt --eval perplexity:in/wiki.txt,wikitext:in/wiki.tokens "
        f"--eval lambada:in/lambada.jsonl,hellaswag:in/hellaswag.jsonl --log {name}.jsonl {flags} {PEAK}"
        for name, flags in (("default", ""), ("strides", "--seq-len 33 --eval-stride 7 --batch-size 3"),
                            ("limit", "--eval-limit 5 --dtype bf16"), ("fp16", "--dtype fp16 --eval-stride 40"))]),
    Run("tasks-while-training", "evaluation tasks during training", [
        train("run", "--steps 5 --eval lambada:in/lambada.jsonl,perplexity:in/wiki.txt --eval-task-every 2 --eval-limit 6")]),
    Run("samples", "generated text during training and at the end", [
        train("words", "--steps 4 --tokenizer words:in/words.txt --sample-every 2 --sample-tokens 9 --prompt 'the king' "
              "--eval-every 0 --samples-out words.samples --samples-tokens 60", quiet=PEAK),
        train("bytes", "--steps 2 --samples-out bytes.samples --samples-tokens 100 --prompt of --seed 5"),
        train("bf16", "--steps 2 --samples-out bf16.samples --samples-tokens 40 --dtype bf16")]),
    Run("toy-run", "the built-in toy language", [
        f"train_gpt2 --steps 6 --layers 1 --heads 2 --channels 16 --context 16 --batch-size 4 {PEAK} --out run --log run.jsonl "
        "--eval-every 3 --eval-batches 2 --sample-every 3 --sample-tokens 12 --samples-out samples.txt --samples-tokens 80",
        f"train_gpt2 --steps 1 {QUIET} --out default --log default.jsonl"]),
    Run("config-file", "flags from a file", [
        f"train_gpt2 --config in/run.toml --steps 3 {QUIET} --out run --log run.jsonl"]),
    Run("profile", "the operations of a step and their number of calls", [
        train("fp32", "--steps 3 --profile 2 --profile-out fp32.profile.jsonl --grad-accum 2"),
        train("bf16", "--steps 3 --profile 1 --profile-out bf16.profile.jsonl --dropout 0.1 --document-mask --dtype bf16",
              data="--train in/docs.jsonl")]),
]

INFERENCE = [
    Run("infer-greedy", "greedy generation with several models, in every dtype", [
        f"infer_gpt2 -m in/{model} -p 'The king' -n {count} --temp 0 --ignore-eos --json --dtype {dtype}"
        for model, count in (("model", 30), ("narrow", 80), ("wide", 15), ("llmc.bin", 20))
        for dtype in ("fp32", "bf16", "fp16")]),
    Run("infer-sampling", "temperature, top-k, seeds; text and JSON", [
        f"infer_gpt2 -m in/narrow -p x -n 40 {flags}" for flags in (
            "", "--temp 0.7", "--temp 3 --ignore-eos", "--top-k 5 --seed 2", "--temp 0.5 --top-k 40 --json",
            "--seed 9 --json --dtype bf16", "--top-k 3 --dtype fp16")]),
    Run("infer-prompts", "no prompt, standard input, a full context", [
        "infer_gpt2 -m in/model -n 5 --json", "infer_gpt2 -m in/model -p - -n 7 --json < in/prompt.txt",
        "infer_gpt2 -m in/model -p 12345678 -n 1000 --ignore-eos --json"]),
    Run("infer-tokenizers", "words and byte pair encoding", [
        "infer_gpt2 -m in/hf_tiny --tokenizer words:in/words61.txt -p 'w1 w2 w3' -n 9",
        "infer_gpt2 -m in/hf_tiny_openai --tokenizer words:in/words61.txt -p 'w5' -n 9 --json --dtype bf16",
        train("bpe", "--steps 2 --tokenizer in/bpe"), "infer_gpt2 -m bpe/step_000002 -p 'of small boats' -n 9 --json",
        "infer_gpt2 -m bpe/step_000002 --tokenizer in/bpe -p 'of small boats' -n 9"]),
]

TOKENS = [
    Run("tokenize-text", "texts to tokens and back", [
        "tokenize --tokenizer bytes in/text.txt in/blocks.txt -o a.bin", "tokenize --tokenizer bytes --decode a.bin -o a.txt",
        "tokenize --tokenizer bytes in/blocks.txt -o empty-line.bin --split-on ''",
        "tokenize --tokenizer bytes in/blocks.txt -o dashes.bin --split-on -- --no-end-of-text",
        "tokenize --tokenizer bytes in/blocks.txt -o dashes.bin --split-on -- --force",
        "tokenize --tokenizer bytes --decode dashes.bin -o dashes.jsonl", "tokenize --tokenizer bytes --decode dashes.bin"]),
    Run("tokenize-json", "JSON lines to tokens and back", [
        "tokenize --tokenizer bytes in/docs.jsonl in/invented.jsonl -o a.bin --threads 2",
        "tokenize --tokenizer bytes in/body.jsonl -o body.bin --field body",
        "tokenize --tokenizer bytes --decode a.bin -o a.jsonl"]),
    Run("tokenize-dedup", "duplicates, exact and near", [
        f"tokenize --tokenizer bytes in/invented.jsonl in/docs.jsonl -o {name}.bin --dedup {flags}" for name, flags in (
            ("exact", "exact"), ("near", "near"), ("nearest", "near --dedup-threshold 0.99"))]),
    Run("tokenize-shards", "shards and held-out documents, then training on them", [
        "tokenize --tokenizer bytes in/invented.jsonl -o a.bin --shard-tokens 20000 --val v.bin --val-fraction 0.2",
        train("run", "--steps 2 --val v.bin", data="--train a_*.bin --tokenizer bytes")]),
    Run("tokenize-bpe", "byte pair encoding and words", [
        "tokenize --tokenizer in/bpe in/text.txt in/docs.jsonl -o bpe.bin",
        "tokenize --tokenizer in/bpe --decode bpe.bin -o bpe.txt",
        "tokenize --tokenizer words:in/words.txt in/text.txt -o words.bin",
        "tokenize --tokenizer words:in/words.txt --decode words.bin"]),
    Run("toy-language", "files of the toy language", [
        "toy_language --out toy --tokens 3000 --val-tokens 500 --seed 3",
        "toy_language --parse toy/train.txt --sentences 20",
        "exit 1: toy_language --parse in/text.txt --at-least 0.5"]),
]

ERRORS = [
    Run("errors-flags", "invalid flags", [f"error {code}: train_gpt2 {flags}" for code, flags in (
        (2, "--trian x"), (2, "--dtype fp64"), (2, "--lr -1"), (2, "--resume"), (2, "--config in/bad.toml"),
        (2, "--train in/text.txt --heads 5 --channels 64"), (2, "--train in/text.txt --loss-scale 2 --steps 1"),
        (2, f"--train in/text.txt {SMALL} --seq-len 17"),
        (1, f"--train in/text.txt --model d48 --batch-size 60000 --steps 1 {PEAK}"))]),
    Run("errors-data", "missing, empty and malformed data", [
        f"error {code}: train_gpt2 --train {data} {SMALL} --steps 1" for code, data in (
            (1, "nowhere.txt"), (1, "in/empty.txt"), (1, "in/short.txt"), (1, "in/torn.jsonl"), (2, "in/text.txt:x"),
            (2, "in/text.txt --document-mask"))]),
    Run("errors-files", "existing files, and checkpoints of another model", [
        train("run", "--steps 1", shape=TINY), "error 1: " + train("run", "--steps 1", shape=TINY),
        "error 2: " + train("run", "--steps 2 --resume", shape=TINY.replace("--layers 1", "--layers 2")),
        "error 2: " + train("run", "--steps 2 --resume --seed 4", shape=TINY),
        "error 1: tokenize --tokenizer bytes in/text.txt -o in/tokens.bin"]),
    Run("errors-tools", "errors of infer_gpt2, tokenize and toy_language", [
        "error 1: infer_gpt2 -m nowhere", "error 2: infer_gpt2 -m in/model --temp hot",
        "error 2: infer_gpt2 -m in/model -p 1234567890123456789012345678901234567890",
        "error 1: infer_gpt2 -m in/hf_tiny -p x",
        "error 1: tokenize --tokenizer bytes in/torn.jsonl -o a.bin", "error 2: tokenize --tokenizer bytes in/text.txt",
        "error 1: tokenize --tokenizer bytes --decode in/text.txt", "error 2: toy_language"]),
]

RUNS = [*TRAINING, *OPTIMIZATION, *CHECKPOINTS, *DATA, *INFERENCE, *TOKENS, *ERRORS]
