#!/usr/bin/env python3
"""Compares predicted step times with runs of this engine, on one device and on two ranks.

    python3 dev/plan_accuracy.py TEXT [--program build/host/train_gpt2] [--repeats 5] [--ranks 1|2] [flags of train_gpt2]

Measures the machine with --measure-machine, trains each configuration for a few steps, all of them once before any of them
again, and prints the medians next to what --plan predicts from the machine file. Needs a machine that does nothing else.
With --gpu: GPT-2 of 124M to 1558M in bf16 with three batches each, on one GPU; what does not fit is left out. A repetition
that --seconds do not suffice for is not begun.
"""
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "scripts"))
import standard_output  # noqa: E402
from train_command import ROOT, arguments_of  # noqa: E402

STEPS = 8  # of a run; the first is not counted
SHAPE = ("--layers", "--heads", "--channels", "--context", "--batch-size", "--grad-accum")
ONE_RANK = [(2, 2, 128, 64, 4, 1), (4, 4, 256, 128, 2, 1), (4, 4, 256, 128, 8, 1), (2, 8, 512, 64, 4, 1),
            (2, 8, 512, 256, 1, 2), (6, 6, 384, 128, 2, 1), (8, 4, 256, 64, 4, 2), (2, 12, 768, 128, 1, 1),
            (3, 8, 512, 128, 2, 1), (4, 2, 128, 256, 4, 1)]
LARGE = [(12, 12, 768), (24, 16, 1024), (36, 20, 1280), (48, 25, 1600)]  # of GPUs, with each batch
BATCHES = (4, 8, 16)
TWO_RANKS = [["--zero", 0], ["--zero", 1], ["--zero", 3], ["--tp", 2], ["--tp", 2, "--sequence-parallel"], ["--pp", 2]]
TWO_SHAPE = (4, 4, 256, 128, 2, 4)
PARTS = ("pipeline_ms", "tensor_ms", "data_ms")  # of a prediction, that are no computation


def words_of(shape, flags=()):
    return [word for pair in zip(SHAPE, shape) for word in pair] + list(flags)


def call(command, what, may_fail=False):
    """The output; None if it failed and may."""
    command = [str(word) for word in command]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if result.returncode == 0:
        return result.stdout
    if may_fail:
        return print(f"not run: {' '.join(command)}\n{result.stderr}")
    sys.exit(f"plan_accuracy.py: {what} failed: {' '.join(command)}\n{result.stderr}")


def launcher(ranks):
    return [ROOT / "scripts/run.sh", "-np", ranks] if ranks > 1 else []


def measured_steps(arguments, ranks, words, folder):
    """The log lines of the steps of one run; none if it does not fit."""
    log = Path(folder) / "run.jsonl"
    log.unlink(missing_ok=True)
    done = call([*launcher(ranks), arguments.program, "--train", arguments.text, *words, *arguments.more, "--steps", STEPS,
                 "--eval-every", 0, "--sample-every", 0, "--quiet", "--log", log], "a run", arguments.gpu)
    if done is None:
        return []
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if "step_ms" in line][1:]


def median_of(steps, key):
    return statistics.median(step.get(key, 0) for step in steps)


def predicted(arguments, ranks, words, machine, folder):
    """The row of --plan with all flags of the layout typed."""
    out = Path(folder) / "plan.json"
    typed = [*words, "--recompute", "none", *([] if ranks == 1 or "--zero" in words else ["--zero", 0])]
    for flag in ("--tp", "--pp", *(["--pp-chunks"] if "--pp" in words else [])):
        typed += [] if flag in words else [flag, 1]
    if "--tp" in words and "--sequence-parallel" not in words:
        typed += ["--sequence-parallel=false"]
    call([arguments.program, "--train", arguments.text, *typed, *arguments.more, "--ranks", ranks, "--plan", "--machine",
          machine, "--plan-out", out], "--plan")
    return next(row for row in json.loads(out.read_text(encoding="utf-8"))["layouts"] if row["status"] != "refused")


def measured(arguments, ranks, configurations, folder):
    """The runs of each configuration, as lists of log lines; only of those that ran."""
    runs = [[] for _ in configurations]
    begin = time.monotonic()
    for repetition in range(arguments.repeats):
        so_far = time.monotonic() - begin
        if repetition > 0 and so_far * (repetition + 1) / repetition > arguments.seconds:
            break
        for run, words in zip(runs, configurations):
            steps = measured_steps(arguments, ranks, words, folder)
            run.extend([steps] if steps else [])
    return [(run, words) for run, words in zip(runs, configurations) if run]


def print_row(run, words, row, ranks):
    """Returns the error of the prediction."""
    times = [median_of(steps, "step_ms") for steps in run]
    step = statistics.median(times)
    error = row["step_ms"] / step - 1
    text = (f"| {' '.join(map(str, words))} | {step:.2f} | {min(times):.2f} to {max(times):.2f} | {row['step_ms']:.2f} | "
            f"{error:+.1%} |")
    if ranks > 1:
        waits = statistics.median(sum(median_of(steps, key) for key in ("bubble_ms", "comm_ms")) for steps in run)
        text += f" {waits / step:.1%} | {sum(row[part] for part in PARTS) / row['step_ms']:.1%} |"
    print(text, flush=True)
    return error


def compare(arguments, ranks, configurations, folder):
    machine = Path(folder) / "machine.json"
    print(call([*launcher(ranks), arguments.program, "--measure-machine", machine, *arguments.more], "--measure-machine"))
    runs = measured(arguments, ranks, configurations, folder)
    print("| configuration | measured, ms | range | predicted, ms | error |" +
          " communication and bubble, measured | predicted |" * (ranks > 1))
    print("|---|---|---|---|---|" + "---|---|" * (ranks > 1))
    errors = [print_row(run, words, predicted(arguments, ranks, words, machine, folder), ranks) for run, words in runs]
    print(f"\nresult: mean error of predicted step times, {len(errors)} configurations, {ranks} rank{'s' * (ranks > 1)}: "
          f"{statistics.mean(map(abs, errors)):.1%}, at most {max(map(abs, errors)):.1%}\n")


def main():
    arguments = arguments_of(__doc__.splitlines()[0], add_flags)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.gpu:
            arguments.more += ["--dtype", "bf16"]
            shapes = [(*model, 1024, batch, 1) for model in LARGE for batch in BATCHES]
            return compare(arguments, 1, [words_of(shape) for shape in shapes], folder)
        if arguments.ranks in (None, 1):
            compare(arguments, 1, [words_of(shape) for shape in ONE_RANK[:arguments.first]], folder)
        if arguments.ranks in (None, 2):
            compare(arguments, 2, [words_of(TWO_SHAPE, flags) for flags in TWO_RANKS[:arguments.first]], folder)


def add_flags(parser):
    parser.add_argument("--gpu", action="store_true", help="the models of GPUs")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each configuration (default: 5)")
    parser.add_argument("--ranks", type=int, choices=(1, 2), help="only this number of ranks")
    parser.add_argument("--first", type=int, help="only the first configurations (default: all)")
    parser.add_argument("--seconds", type=float, default=3600, help="limit of the runs (default: 3600)")


if __name__ == "__main__":
    standard_output.run(main)
