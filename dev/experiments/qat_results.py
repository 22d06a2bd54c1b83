#!/usr/bin/env python3
"""Measures quantization-aware training (train_gpt2 --qat), and prints Markdown tables.

    dev/experiments/qat_results.py time MODEL TRAIN
    dev/experiments/qat_results.py seeds MODEL TRAIN HELDOUT
    dev/experiments/qat_results.py recovery MODEL TRAIN HELDOUT

MODEL is a float model, such as that of dev/experiments/reference_model.sh. TRAIN and HELDOUT are texts (.txt)
or tokens (.bin). Every part trains MODEL for some steps; PART --help lists its settings. Each limit is
printed as `ok` or `MISSED`; the exit code is 1 if one is missed.

time      The time that --qat adds to a step, in one process, with two tensor ranks (--tp 2) and with
          two data ranks, which share the cores of the machine. All steps have equally many tokens.
          Repetitions of all runs are interleaved. No limit.
          Cost: 27 runs of 10 steps of 16 sequences.
seeds     For each seed, the same steps on the same batches in floats and with --qat w8a8. The model
          trained with --qat, run at INT8, is compared with the other one, run in floats, on HELDOUT,
          token by token. Limit: the average change of the perplexity is at most +0.3%.
          Cost: 6 runs of 100 steps of 16 sequences, 12 evaluations.
recovery  Starts from a copy of MODEL with the same function in floats, in which 1 in 100 channels of
          the norms' outputs is FACTOR times as large. FACTOR is the smallest power of two, from 32 up,
          with which post-training w8a8 without zero points and without smoothing loses at least 5%.
          The copy is trained with --qat w8a8 --zero-points off, and as a control in floats: same
          steps, same batches. Limit: a recovery of at least one half.
          Cost: 2 runs of 1000 steps of 4 sequences, about 10 evaluations.

    recovery = 1 - L(trained with --qat) / L(copy)

L is the increase of the perplexity in percent when a model runs at INT8. For the copy, it is relative to
the copy in floats. For the model trained with --qat, it is relative to the control in floats, because the
same steps in floats improve the perplexity as well, and that gain is no recovery. Steps in floats can also
make a model easier to quantize, at high learning rates as much as --qat does. The control at INT8 shows by
how much: its L is in the table, and its recovery, by the same formula, is printed next to that of --qat.

In a temporary folder (TMPDIR), the parts need 2 bytes per held-out token and entry of the vocabulary: 420 MB
with 400 windows, a context of 256 and 4,097 tokens.
"""
import argparse
import json
import math
import statistics
import sys
import tempfile
from pathlib import Path

from int8_common import ROOT, Comparison, fail, outlier_copy, print_table, run, save_predictions

sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "scripts"))
import standard_output  # noqa: E402

W8A8 = ["--qat", "w8a8"]
SYMMETRIC = ["--zero-points", "off"]
MAX_CHANGE = 0.3  # percent, of the perplexity
MIN_LOSS = 5.0    # percent: the loss of the copy that is to be recovered
MIN_RECOVERY = 0.5
FIRST_FACTOR, LAST_FACTOR = 32, 2 ** 15
SKIPPED_STEPS = 2  # at the start of a run, in which memory is allocated and algorithms are selected


def report(text):
    print(text, file=sys.stderr, flush=True)


def judge(name, value, limit, holds):
    """Prints whether a limit holds, and returns it."""
    print(f"\n{'ok' if holds else 'MISSED'}: {name}: {value} (limit: {limit})")
    return holds


def train(options, model, log, *flags, launcher=()):
    """Trains without evaluations. Returns the lines of the log that are steps."""
    # --val keeps all of --train for training: by default the last part is set aside.
    run(*launcher, options.programs / "train_gpt2", "--init-from", model, "--train", options.train,
        "--val", options.train, "--lr", options.lr, "--steps", options.steps, "--eval-every", 0,
        "--sample-every", 0, "--log", log, *flags)
    return [line for line in map(json.loads, log.read_text().splitlines()) if "loss" in line]


# ---- the time of a step ---------------------------------------------------------------------


def spread(values, sign=""):
    """The median, and in parentheses the smallest and the largest value."""
    numbers = statistics.median(values), min(values), max(values)
    median, low, high = (f"{x:{sign}.1f}" for x in numbers)
    return f"{median} ({low} to {high})"


def measure_time(options, folder):
    ranks = [ROOT / "scripts/run.sh", "-np", 2]
    layouts = {"1": ([], ["--batch-size", options.batch_size]),
               "2, `--tp 2`": (ranks, ["--batch-size", options.batch_size, "--tp", 2]),
               "2, data-parallel": (ranks, ["--batch-size", options.batch_size // 2])}
    modes = {"floats": [], "`--qat w8`": ["--qat", "w8"], "`--qat w8a8`": W8A8}
    # The median step of each run, in ms.
    times = {(layout, mode): [] for layout in layouts for mode in modes}
    for repetition in range(1, options.repetitions + 1):
        for layout, mode in times:
            launcher, batch = layouts[layout]
            log = folder / f"{repetition}-{layout}-{mode}.jsonl"
            steps = train(options, options.model, log, *batch, *modes[mode], launcher=launcher)
            median = statistics.median(step["step_ms"] for step in steps[SKIPPED_STEPS:])
            times[layout, mode].append(median)
            report(f"repetition {repetition}, ranks {layout}, {mode}: {median:.1f} ms")
    rows = []
    for (layout, mode), values in times.items():
        added = ["", ""]
        if mode != "floats":
            pairs = list(zip(values, times[layout, "floats"]))
            added = [spread([own - floats for own, floats in pairs], "+"),
                     spread([100 * (own / floats - 1) for own, floats in pairs], "+")]
        rows.append([layout, mode, spread(values), *added])
    print(f"Median over repetitions (smallest to largest), of which there are {options.repetitions}. A repetition "
          f"is the median of {options.steps - SKIPPED_STEPS} steps of {options.batch_size} sequences.\n")
    print_table(["ranks", "training", "step in ms", "added ms", "added %"], rows)
    return True


# ---- pairs of runs --------------------------------------------------------------------------


def train_pair(options, model, folder, seed, flags):
    """Trains in floats and with `flags` on the same batches. Returns both models, and a hash of the tokens
    per step.
    """
    models, hashes = [], []
    for name, mode in (("floats", []), ("qat", flags)):
        report(f"seed {seed}: {options.steps} steps, {' '.join(mode) or 'floats'}")
        out = folder / f"{name}-{seed}"
        steps = train(options, model, folder / f"{name}-{seed}.jsonl", "--batch-size", options.batch_size,
                      "--seed", seed, "--out", out, *mode)
        models.append(out / f"step_{options.steps:06d}")
        hashes.append(tuple(step["token_hash"] for step in steps))
    if hashes[0] != hashes[1]:
        fail(f"seed {seed}: the two runs had different batches")
    return *models, hashes[0]


def save_floats(options, model, folder):
    save_predictions(options.programs / "infer_gpt2", model, options.heldout, folder / "float.log",
                     options.limit)


def compare(options, model, folder, *flags):
    """Compares with the predictions that save_floats() wrote last."""
    return Comparison(options.programs / "infer_gpt2", model, options.heldout, flags, folder / "float.log",
                      options.limit)


def measure_seeds(options, folder):
    rows, changes, batches = [], [], set()
    for seed in range(1, options.seeds + 1):
        control, qat, hashes = train_pair(options, options.model, folder, seed, W8A8)
        batches.add(hashes)
        save_floats(options, control, folder)
        floats = compare(options, control, folder)
        of_control, of_qat = (compare(options, m, folder, "--quant", "w8a8") for m in (control, qat))
        changes.append(of_qat.change)
        rows.append([str(seed), f"{floats.perplexity:.3f}", of_control.change_text(),
                     f"{of_qat.perplexity:.3f}", of_qat.change_text()])
        report(f"seed {seed}: {rows[-1]}")
    if len(batches) != options.seeds:
        fail("two seeds had the same batches")
    mean = statistics.mean(changes)
    error = statistics.stdev(changes) / math.sqrt(len(changes)) if len(changes) > 1 else math.nan
    print(f"{options.steps} steps. `±`: standard error over the held-out tokens, of the difference to floats; "
          "in the last line, over the seeds.\n")
    print_table(["seed", "trained and run in floats: perplexity", "run at `w8a8`: change in %",
                 "trained with `--qat w8a8`, run at `w8a8`: perplexity", "change in %"], rows)
    return judge("average change of the perplexity", f"{mean:+.3f}% ± {error:.3f}%",
                 f"at most +{MAX_CHANGE}%", mean <= MAX_CHANGE)


# ---- recovery from outliers -----------------------------------------------------------------


def copy_with_loss(options, folder):
    """Makes copies with larger and larger factors until one loses MIN_LOSS at INT8. Returns the copy and its
    factor. In floats the copies have the bits of MODEL, as the factors are powers of two: its predictions
    serve all of them.
    """
    save_floats(options, options.model, folder)
    factor = FIRST_FACTOR
    while factor <= LAST_FACTOR:
        copy = outlier_copy(options.model, folder / f"outliers-{factor}", factor)
        loss = compare(options, copy, folder, "--quant", "w8a8", *SYMMETRIC).change
        report(f"factor {factor}: {loss:+.3f}%")
        if loss >= MIN_LOSS:
            return copy, factor
        factor *= 2
    fail(f"no factor up to {LAST_FACTOR} makes post-training w8a8 lose {MIN_LOSS}%")


def measure_recovery(options, folder):
    quantized = ["--quant", "w8a8", *SYMMETRIC]
    copy, factor = copy_with_loss(options, folder)
    rows = []

    def measure(name, model, *flags):
        result = compare(options, model, folder, *flags)
        rows.append([name, "`w8a8`" if flags else "floats", f"{result.perplexity:.3f}", result.change_text()])
        return result.change

    measure(f"copy, factor {factor}", copy)
    loss = measure(f"copy, factor {factor}", copy, *quantized)
    control, qat, _ = train_pair(options, copy, folder, 1, [*W8A8, *SYMMETRIC])
    save_floats(options, control, folder)
    measure("trained in floats", control)
    of_floats = 1 - measure("trained in floats", control, *quantized) / loss
    recovery = 1 - measure("trained with `--qat w8a8`", qat, *quantized) / loss
    print(f"{options.steps} steps, without zero points. The change is relative to the row in floats above.\n")
    print_table(["model", "run at", "perplexity", "change in %"], rows)
    print(f"\nrecovery by the same steps in floats: {100 * of_floats:.0f}%")
    return judge("recovery by `--qat w8a8`", f"{100 * recovery:.0f}%",
                 f"at least {100 * MIN_RECOVERY:.0f}%", recovery >= MIN_RECOVERY)


# ---- the command line -----------------------------------------------------------------------


def whole(text):
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least 1")
    return int(text)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", metavar="PART", required=True)
    for name, measure, steps, batch_size, lr in (("time", measure_time, 10, 16, 1e-5),
                                                 ("seeds", measure_seeds, 100, 16, 2e-4),
                                                 ("recovery", measure_recovery, 1000, 4, 2e-4)):
        part = parts.add_parser(name, allow_abbrev=False)
        part.set_defaults(measure=measure)
        add = part.add_argument
        add("model", type=Path, help="float model")
        add("train", type=Path, help="training text or tokens")
        if name != "time":
            add("heldout", type=Path, help="held-out text or tokens")
            add("--limit", type=whole, default=400, help="maximum number of held-out windows [400]")
        if name == "time":
            add("--repetitions", type=whole, default=3, help="number of runs of each kind [3]")
        if name == "seeds":
            add("--seeds", type=whole, default=3, help="number of pairs of runs [3]")
        add("--steps", type=whole, default=steps, help=f"steps of a run [{steps}]")
        add("--lr", type=float, default=lr, help=f"maximum learning rate [{lr}]")
        add("--batch-size", type=whole, default=batch_size,
            help=f"sequences per step, of all ranks [{batch_size}]")
        add("--programs", type=Path, default=ROOT,
            help="folder of train_gpt2 and infer_gpt2 [the repository]")
    options = parser.parse_args()
    options.programs = options.programs.resolve()
    paths = [options.model, options.train, options.programs / "train_gpt2", options.programs / "infer_gpt2"]
    for path in [*paths, *([] if options.part == "time" else [options.heldout])]:
        if not path.exists():
            parser.error(f"{path} does not exist")
    if options.part == "time" and (options.steps <= SKIPPED_STEPS or options.batch_size % 2 == 1):
        parser.error(f"time needs --steps of more than {SKIPPED_STEPS} and an even --batch-size")
    return options


def main():
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(0 if options.measure(options, Path(folder)) else 1)


if __name__ == "__main__":
    standard_output.run(main)
