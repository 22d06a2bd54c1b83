"""The cases of the table in llmc/train/RESUMING.md: what a run takes from its checkpoint or from weights, and
what it reports. test_memory_programs.py runs them.

Each case starts from a copy of a folder with a stopped run in `run/` (and `total/`, `toy/`, `ids/`, `words/`, `tensor/`, weights).
"""
from dataclasses import dataclass, field
from typing import Callable

LEAVE = None  # for `prepare`: the folder stays as it is


@dataclass
class Case:
    name: str
    command: str  # the flags that are typed
    changed: set = field(default_factory=set)  # recorded flags that differ from the run so far; all others must not
    reported: list = field(default_factory=list)  # phrases of the lines that begin with "resume:", in order
    error: str = ""  # a phrase of the error, if the command must fail
    code: int = 1  # the exit code in that case
    prepare: Callable = LEAVE  # called with the folder; may return another one in which to run
    run: str = "run"  # the run so far, whose settings are compared; empty: a run with --init-from
    folder: str = "."  # where the command runs
    takes: str = ""  # for the table: what is taken from where, if that is not "everything from the checkpoint"


def move(old, new):
    def prepare(folder):
        (folder / old).rename(folder / new)
    return prepare


def change_text(folder):
    text = (folder / "text.txt").read_text()
    (folder / "text.txt").write_text("X" + text[1:])


def move_everything(folder):
    return folder.rename(folder.with_name("renamed"))


def damage(folder):
    (folder / "run/step_000003/model.safetensors").write_bytes(b"torn")


NOTHING = "everything from the checkpoint"
CASES = [
    Case("nothing typed", "--out run --resume"),
    Case("learning rate", "--out run --resume --lr 0.001", {"--lr"}, ["--lr was 0.01, it is 0.001 now"]),
    Case("schedule", "--out run --resume --schedule linear --final-lr-fraction 0", {"--schedule", "--final-lr-fraction"},
         ['--final-lr-fraction was 0.1, it is 0.0 now', '--schedule was "cosine", it is "linear" now']),
    Case("more steps", "--out run --resume --steps 9", {"--steps"}, ["--steps was 6, it is 9 now"]),
    Case("fewer steps than are done", "--out run --resume --steps 2", None,
         ["the run has done 3 steps, and --steps is 2: no step is left", "--steps was 6, it is 2 now"],
         takes="the rest from the checkpoint; no step is left"),
    Case("batch", "--out run --resume --batch-size 1", {"--batch-size"},
         ["steps had 32 tokens and now have 16", "--batch-size was 2, it is 1 now"]),
    Case("tokens per step", "--out run --resume --total-batch-tokens 64", {"--grad-accum", "--total-batch-tokens"},
         ["steps had 32 tokens and now have 64", "--grad-accum was 1, it is 2 now"],
         takes="--grad-accum follows from the flag, the rest from the checkpoint"),
    Case("batch, after --total-batch-tokens 64", "--out total --resume --batch-size 1", {"--batch-size", "--grad-accum"},
         ["--batch-size was 2, it is 1 now", "--grad-accum was 2, it is 4 now"], run="total",
         takes="the tokens per step from the checkpoint, so --grad-accum follows; the rest from the checkpoint"),
    Case("a batch that does not divide --total-batch-tokens 64", "--out total --resume --batch-size 3", run="total", code=2,
         error="the run has --total-batch-tokens 64, which is not a multiple of --batch-size x --seq-len x ranks = 3 x 16 x 1"),
    Case("micro-batches, after --total-batch-tokens 64", "--out total --resume --grad-accum 1",
         {"--grad-accum", "--total-batch-tokens"},
         ["steps had 64 tokens and now have 32", "--grad-accum was 2, it is 1 now"], run="total"),
    Case("sequence length", "--out run --resume --seq-len 6", {"--seq-len", "--eval-stride"},
         ["sequences had 16 tokens and now have 6", "steps had 32 tokens and now have 12", "--eval-stride was 8, it is 3 now"],
         takes="--eval-stride, which was longer, is half of the new length; the rest from the checkpoint"),
    Case("dropout", "--out run --resume --dropout 0.1",
         {"--embedding-dropout", "--attention-dropout", "--residual-dropout"},
         [f"--{part}-dropout was 0.0, it is 0.1 now" for part in ("attention", "embedding", "residual")],
         takes="the dropout of each part follows from the flag, the rest from the checkpoint"),
    Case("optimizer", "--out run --resume --weight-decay 0 --beta2 0.99", {"--weight-decay", "--beta2"},
         ["--beta2 was 0.95, it is 0.99 now", "--weight-decay was 0.1, it is 0.0 now"]),
    Case("a switch, on", "--out run --resume --document-mask --train docs.jsonl", {"--document-mask", "--train"},
         ["continues with docs.jsonl", "--document-mask was false, it is true now"]),
    Case("validation and samples", "--out run --resume --eval-every 1 --sample-every 0", {"--eval-every", "--sample-every"},
         ["--eval-every was 2, it is 1 now", "--sample-every was 1, it is 0 now"]),
    Case("evaluation tasks", "--out run --resume --eval perplexity:other.txt --eval-limit 2", {"--eval", "--eval-limit"},
         ['--eval was "", it is "perplexity:other.txt" now', "--eval-limit was 0, it is 2 now"]),
    Case("outputs", "--out run --resume --log other.jsonl --keep-checkpoints 1", {"--log", "--keep-checkpoints"},
         ["--keep-checkpoints was 0, it is 1 now", '--log was "run/log.jsonl", it is "other.jsonl" now']),
    Case("another text", "--out run --resume --train other.txt", {"--train"},
         ["the run trained on text.txt so far and continues with other.txt"]),
    Case("the same text elsewhere", "--out run --resume --train moved/text.txt", {"--train"}, []),
    Case("another text of the same name and length", "--out run --resume", set(),
         ["text.txt has changed since the checkpoint: its tokens are others, though as many as before"], prepare=change_text),
    Case("another validation text", "--out run --resume --val other.txt", {"--val"},
         ["text.txt had 10346 tokens and now has 10890", '--val was "", it is "other.txt" now']),
    Case("another tokenizer", "--out run --resume --tokenizer words:words.txt",
         error="the checkpoint run/step_000003 has a vocabulary of 257 tokens"),
    Case("other sizes", "--out run --resume --layers 2", error="--layers 2 does not agree with 1 in run/step_000003", code=2),
    Case("a named size", "--out run --resume --model d12", error="--model d12 with layers 12 does not agree with 1", code=2),
    Case("another dtype", "--out run --resume --dtype bf16", error="--dtype fp32, not bf16", code=2),
    Case("another seed", "--out run --resume --seed 7", error="--seed 1337, not 7", code=2),
    Case("the run's folder moved", "--out moved_run --resume", {"--log"}, [], prepare=move("run", "moved_run"),
         takes="the log inside the run from its new place, the rest from the checkpoint"),
    Case("from another working directory", "--out ../run --resume", {"--train", "--log"}, [], folder="elsewhere",
         takes="the text and the log from the former directory, the rest from the checkpoint"),
    Case("everything moved", "--out run --resume", prepare=move_everything),
    Case("the text is gone", "--out run --resume", error="records --train text.txt, and text.txt is not there", prepare=move("text.txt", "gone.txt")),
    Case("a damaged checkpoint", "--out run --resume", prepare=damage, takes="everything from the checkpoint before it"),
    Case("a mistyped --out", "--out rnu --resume", error="there is no directory --out rnu"),
    Case("no checkpoint yet, with --train", "--out new --resume --train text.txt --layers 1 --heads 1 --channels 8 "
         "--context 16 --batch-size 2 --steps 6", None, ["there is no valid checkpoint in new, so a new run starts at step 0"],
         takes="nothing: a new run"),
    Case("the toy language", "--out toy --resume", run="toy"),
    Case("token files without a tokenizer", "--out ids --resume", run="ids"),
    Case("a tokenizer of words", "--out words --resume", run="words"),
    Case("one rank after tensor groups of 2", "--out tensor --resume", {"--ranks", "--tp", "--sequence-parallel"},
         ["--ranks was 2, it is 1 now", "--sequence-parallel was true, it is false now", "--tp was 2, it is 1 now"], run="tensor",
         takes="--tp, which does not divide the ranks, is its largest divisor that does; --sequence-parallel is off without "
               "tensor ranks; the rest from the checkpoint"),
    Case("tensor ranks that are not there", "--out tensor --resume --tp 2", error="--tp 2 does not divide the 1 rank", code=2,
         run="tensor"),
    Case("sequence parallelism of one tensor rank", "--out tensor --resume --sequence-parallel",
         error="--sequence-parallel has no effect without --tp", code=2, run="tensor"),
    Case("one rank after a pipeline of 2", "--out pipeline --resume", {"--ranks", "--pp", "--pp-chunks", "--pp-layers"},
         ["--pp was 2, it is 1 now", "--pp-chunks was 2, it is 1 now", '--pp-layers was "1,1,1,1", it is "" now',
          "--ranks was 2, it is 1 now"], run="pipeline",
         takes="--pp, which does not divide the ranks, is its largest divisor that does; chunks and layers of stages are the "
               "defaults; the rest from the checkpoint"),
    Case("pipeline ranks that are not there", "--out pipeline --resume --pp 2", error="--pp 2 does not divide the 1 rank", code=2,
         run="pipeline"),
    Case("chunks of one pipeline rank", "--out pipeline --resume --pp-chunks 2",
         error="--pp-chunks has no effect without --pp of at least 2", code=2, run="pipeline"),
    Case("weights of transformers", "--init-from hf --train text.txt --steps 2 --out new", run="",
         takes="sizes and tokenizer from the directory; other settings are defaults"),
    Case("weights of llm.c", "--init-from model.bin --train text.txt --steps 2 --out new", run="",
         takes="sizes from the file; other settings are defaults"),
    Case("weights of a run", "--init-from run --train text.txt --steps 2 --out new", run="",
         takes="sizes and tokenizer from its newest checkpoint; other settings are defaults"),
    Case("a resumed run whose --init-from is gone", "--out from_hf --resume", run="from_hf", prepare=move("hf", "gone")),
    Case("--init-from without a text", "--init-from hf", error="there is no text to train on or to evaluate", code=2),
    Case("--tokenizer without a text", "--tokenizer bytes", error="--tokenizer bytes has no effect without --train", code=2),
    Case("--model without a text", "--model d12", error="--model d12 has no effect without --train", code=2),
]
