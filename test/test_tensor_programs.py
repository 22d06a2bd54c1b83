#!/usr/bin/env python3
"""Tests train_gpt2 with tensor parallelism on several ranks, which are processes that scripts/run.sh starts.

    python3 test/test_tensor_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does. Skipped if the program was built without MPI or mpirun is missing.
LLMC_LONG=1 adds layouts.
"""
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys

from runner import Skip, expect
from stored_tensors import read_checkpoint
from test_checkpoint_programs import QUIET, TINY, wait_for, with_flags
from test_exchange_programs import transformers
from test_programs import ROOT, run_program_tests
from test_rank_programs import (RUN, SECONDS_TO_END, close, environment, expect_equal_runs, expect_interrupted, mpirun,
                                require_mpi, steps)

# 15 rows per micro-batch: tensor ranks have different numbers of rows. A tiny eps would turn differences of rounding
# into steps of +-lr.
MODEL = [*with_flags(TINY, layers=2, heads=4, channels=32, context=15), *QUIET, "--eps", 1e-4, "--seed", 5]
BATCHES = 4  # micro-batches of a step
LONG = os.environ.get("LLMC_LONG")


class Layout:
    def __init__(self, ranks, tp, zero=0, *more):
        self.ranks, self.name = ranks, f"{ranks}-{tp}-{zero}{'-'.join(map(str, more))}"
        self.flags = ["--tp", tp, "--zero", zero, *more, "--grad-accum", BATCHES * tp // ranks]

    def run(self, program, *arguments, code=0):
        """Returns stdout and stderr."""
        return mpirun(program, self.ranks, *arguments, *self.flags, code=code)


SEQUENCE = "--sequence-parallel"
LAYOUTS = [Layout(2, 2), Layout(4, 2, 1, SEQUENCE), Layout(4, 4, 0, SEQUENCE), Layout(4, 2, 3)]
if LONG:
    LAYOUTS += [Layout(8, 2, 2, "--shard-group", 2), Layout(8, 4, 3, SEQUENCE), Layout(8, 2, 3, SEQUENCE, "--shard-group", 2)]


def write_lines(path, objects):
    path.write_text("".join(json.dumps(line) + "\n" for line in objects))


def write_tasks(program):
    """Writes files with more rows than ranks and with one row. Returns the flag --eval for each of the two kinds."""
    folder = program.folder
    (folder / "more.txt").write_text("the lazy dog jumps over the fox. " * 2)
    (folder / "one.txt").write_text("the zebra brown.")  # one window
    words = ("the quick", "quick brown", "fox jumps", "fox zebra", "the lazy dog")
    write_lines(folder / "words.jsonl", [{"text": text} for text in words])
    write_lines(folder / "word.jsonl", [{"text": "fox zebra"}])  # a certain word has a loss near 0, all of it rounding
    questions = [{"ind": i, "activity_label": "Sailing", "ctx_a": "", "ctx_b": "", "ctx": text, "split": "val",
                  "split_type": "indomain", "label": label, "source_id": f"x~{i}", "endings": ["fox", "dog", "over", "lazy"]}
                 for i, (text, label) in enumerate((("brown", 0), ("lazy", 1), ("jumps", 3)))]
    write_lines(folder / "questions.jsonl", questions)
    return (["--eval", "perplexity:more.txt,lambada:words.jsonl,hellaswag:questions.jsonl"],
            ["--eval", "perplexity:one.txt,lambada:word.jsonl"])


def train_base(program):
    """Trains a model that predicts some words of its text. Returns the flags of runs that start from it."""
    program.run(*with_flags(MODEL, batch_size=8), "--steps", 250, "--lr", 1e-2, "--warmup", 2, "--out", "base")
    return [*MODEL, "--init-from", "base"]


def expect_equal_logs(program, log, one, tolerance=1e-6):
    """The two logs have equal tokens, loss scales, counts and accuracies, and losses, norms and scores within the
    tolerance."""
    lines, expected = program.log(log), program.log(one)
    expect(len(lines) == len(expected) > 0, (log, lines, expected))
    of_step = ("step", "loss", "grad_norm", "loss_scale", "lr", "tokens", "token_hash")
    for our_line, their_line in zip(lines, expected):
        for key, theirs in their_line.items():
            if "loss" in their_line and key not in of_step:
                continue
            ours = our_line.get(key)
            exact = not isinstance(ours, float) or not isinstance(theirs, float)
            if exact or key.startswith("acc") or key == "loss_scale":
                expect(ours == theirs, f"{log}: {key} {ours}, not {theirs}: {their_line}")
                continue
            if key.endswith("perplexity"):  # the exponential of a mean loss
                ours, theirs = math.log(ours), math.log(theirs)
            # A loss near 0 is the difference of two larger numbers, whose rounding remains.
            scale = max(abs(theirs), 1) if key.endswith(("loss", "perplexity")) else abs(theirs)
            expect(abs(ours - theirs) <= tolerance * scale, f"{log}: {key} {ours}, not {theirs}: {their_line}")


def samples(messages):
    """The samples of a run, with their continuation lines."""
    return re.findall(r"^(?:sample|  \||\(end of).*$", messages, re.M)


def test_tensor_ranks_compute_the_run_of_one_rank(program):
    require_mpi(program)
    tasks, _ = write_tasks(program)
    run = [*with_flags(train_base(program), eval_every=2, sample_every=2), *tasks, "--eval-batches", 5, "--steps", 4,
           "--dropout", 0.1, "--grad-clip", 0.5, "--sample-length", 12]
    one = program.run(*run, "--grad-accum", BATCHES, "--log", "one.jsonl")
    lambada, hellaswag = [[line for line in program.log("one.jsonl") if line.get("eval") == task][-1]
                          for task in ("lambada", "hellaswag")]
    expect(0 < lambada["accuracy"] < 1 and 0 < hellaswag["accuracy"] < 1, (lambada, hellaswag))
    expect(len(samples(one.stderr)) > 1, one.stderr)
    for layout in LAYOUTS:
        messages = layout.run(program, *run, "--verify-every", 1, "--log", layout.name)[1]
        expect_equal_logs(program, layout.name, "one.jsonl")
        expect(samples(messages) == samples(one.stderr), (layout.name, messages, one.stderr))


def test_fewer_rows_than_ranks_have_the_scores_of_one_rank(program):
    require_mpi(program)
    _, tasks = write_tasks(program)
    run = [*with_flags(train_base(program), eval_every=1), *tasks, "--eval-batches", 1, "--steps", 1]
    evaluate = ["--init-from", "base", "--val", "one.txt", "--steps", 0, *tasks]
    program.run(*run, "--grad-accum", BATCHES, "--log", "one.jsonl")
    program.run(*evaluate, "--log", "evaluate.jsonl")
    for layout in LAYOUTS[1:3] if not LONG else LAYOUTS:
        layout.run(program, *run, "--log", layout.name)
        expect_equal_logs(program, layout.name, "one.jsonl")
        layout.run(program, *evaluate, "--log", "evaluate" + layout.name)
        expect_equal_logs(program, "evaluate" + layout.name, "evaluate.jsonl")


def test_a_checkpoint_resumes_with_other_tensor_ranks(program):
    require_mpi(program)
    run = [*MODEL, "--dropout", 0.1, "--steps", 8]
    program.run(*run, "--grad-accum", BATCHES, "--log", "whole.jsonl")
    # The notes about --tp and --sequence-parallel: none at the start, then one per change.
    parts = [Layout(2, 1, 2), Layout(4, 4, 1, SEQUENCE), Layout(4, 2, 3, SEQUENCE + "=false", "--shard-group", 2),
             Layout(2, 2, 0, SEQUENCE)]
    for part, (layout, changes) in enumerate(zip(parts, (0, 2, 2, 1))):
        start = [*run, "--out", "run", "--log", "run.jsonl"] if part == 0 else ["--out", "run", "--resume"]
        messages = layout.run(program, *start, "--stop-after", 2)[1]
        notes = re.findall(r"resume: (?:--tp|--sequence-parallel) was .*", messages)
        expect(len(notes) == changes, (layout.name, messages))
    expect_equal_runs(program, "run.jsonl", "whole.jsonl")
    evaluate = ["--init-from", "run", "--val", "text.txt", "--steps", 0]
    theirs = float(program.run(*evaluate).stdout.split()[1])
    for layout in LAYOUTS[2:4]:
        ours = float(layout.run(program, *evaluate)[0].split()[1])
        expect(close(ours, theirs, 1e-6), (layout.name, ours, theirs))


def test_a_state_that_is_loaded_and_saved_has_the_same_bits(program):
    """The loss scale grows until gradients overflow: such a step changes no tensor."""
    require_mpi(program)
    run = [*MODEL, "--dtype", "fp16", "--loss-scale", 2 ** 19, "--loss-scale-window", 1, "--steps", 6]
    program.run(*run, "--grad-accum", BATCHES, "--log", "whole.jsonl")
    skipped = next(line["step"] for line in steps(program, "whole.jsonl") if line["grad_norm"] is None)
    expect(skipped > 2, f"step {skipped} overflows")
    folder = program.folder
    saver, loaders = LAYOUTS[1], (Layout(4, 4, 0, SEQUENCE), Layout(2, 2, 0, SEQUENCE + "=false"), Layout(2, 1, 3))
    saver.run(program, *run, "--out", "run", "--stop-after", skipped - 1)
    saved = read_checkpoint(folder / f"run/step_{skipped - 1:06}")
    expect(any(any(data) for name, data in saved.items() if name.startswith("first_moment")), "no moments")
    for layout in loaders:
        shutil.copytree(folder / "run", folder / layout.name, symlinks=True)
        layout.run(program, "--out", layout.name, "--resume", "--stop-after", 1, "--log", layout.name + ".jsonl")
        expect(steps(program, layout.name + ".jsonl")[-1]["grad_norm"] is None, f"step {skipped} does not overflow")
        expect(read_checkpoint(folder / layout.name / f"step_{skipped:06}") == saved, f"{layout.name}: other bits")


def test_transformers_loads_a_checkpoint_of_tensor_ranks(program):
    LAYOUTS[1].run(program, *MODEL, "--steps", 2, "--out", "run")
    (program.folder / "val.txt").write_text("the quick brown ")
    ours = float(program.run("--init-from", "run", "--val", "val.txt", "--steps", 0).stdout.split()[1])
    lines = transformers(program, """
import torch
from transformers import GPT2LMHeadModel
order = [*range(33, 127), *range(161, 173), *range(174, 256)]
order += [b for b in range(256) if b not in order]
ids = torch.tensor([[order.index(b) for b in open("val.txt", "rb").read()]])
model = GPT2LMHeadModel.from_pretrained("run/latest").eval()
print(torch.nn.functional.cross_entropy(model(ids[:, :-1]).logits[0].double(), ids[0, 1:]).item())
""")
    expect(close(ours, float(lines[-1]), 2e-6), f"ours {ours}, transformers' {lines[-1]}")


# Relative error of one rounding. The ranks round partial sums and their sum, one rank rounds once; a loss or a norm is a
# mean of many such errors.
HALF_UNIT = {"bf16": 2 ** -8, "fp16": 2 ** -11}


def test_bf16_and_fp16_agree_with_one_rank(program):
    for dtype, flags in (("bf16", []), ("fp16", ["--loss-scale", 2 ** 21, "--loss-scale-window", 2])):
        run = [*MODEL, "--dtype", dtype, *flags, "--steps", 6]
        program.run(*run, "--grad-accum", BATCHES, "--log", dtype)
        for layout in LAYOUTS[1:3]:
            layout.run(program, *run, "--log", dtype + layout.name, "--verify-every", 1)
            expect_equal_logs(program, dtype + layout.name, dtype, HALF_UNIT[dtype])
        skipped = [line["grad_norm"] is None for line in program.log(dtype)]
        expect(any(skipped) == (dtype == "fp16") and not all(skipped), skipped)


def test_a_signal_ends_a_run_of_tensor_ranks_with_everything_saved(program):
    require_mpi(program)
    layout = LAYOUTS[1]
    # The signal is for all ranks, then only for rank 3, the second rank of its tensor group.
    script = 'exec 9<&0; if [ "$OMPI_COMM_WORLD_RANK" = 3 ]; then echo $$ > pid; fi; exec "$@"'
    for name in ("all", "one"):
        process = subprocess.Popen([str(word) for word in [
            RUN, "-np", layout.ranks, "bash", "-c", script, "x", program.binary, *MODEL, *layout.flags, "--steps", 10 ** 9,
            "--out", name, "--log", name + ".jsonl"]],
            cwd=program.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
        text = wait_for(process, "step 1/")
        os.kill(process.pid if name == "all" else int((program.folder / "pid").read_text()), signal.SIGTERM)
        expect_interrupted(program, process, name + ".jsonl", text)


def test_an_error_on_one_tensor_rank_ends_all_and_is_printed_once(program):
    require_mpi(program)
    # Rank 3, the second rank of its tensor group, runs in another folder, which has no text.
    script = 'if [ "$OMPI_COMM_WORLD_RANK" = 3 ]; then mkdir other; cd other; fi; exec "$@"'
    result = subprocess.run([str(word) for word in [
        RUN, "-np", 4, "bash", "-c", script, "x", program.binary, *MODEL, "--tp", 2, "--steps", 10 ** 9]],
        cwd=program.folder, text=True, capture_output=True, timeout=SECONDS_TO_END, check=False, env=environment())
    expect(result.returncode == 1, result)
    expect(result.stderr.count("train_gpt2: rank 3: ") == 1 and "text.txt" in result.stderr, result)
    # All ranks meet this error.
    messages = mpirun(program, 2, *MODEL, "--tp", 2, "--steps", 2, "--lr", 1e30, "--grad-clip", 0, "--on-nan", "skip", "--max-skipped", 1, code=1)[1]
    expect(messages.count("updates in a row were skipped") == 1 and "train_gpt2: 1 updates" in messages, messages)


def test_the_table_of_meshes(program):
    require_mpi(program)
    if not LONG:
        raise Skip("only with LLMC_LONG=1")
    result = subprocess.run([sys.executable, ROOT / "dev/mesh_losses.py", "text.txt", "--program", program.binary, "--steps", "3",
                             "--channels", "64"], cwd=program.folder, text=True, capture_output=True, check=False)
    rows = [line.strip("| ").split(" | ") for line in result.stdout.splitlines()[2:]]
    expect(result.returncode == 0 and len(rows) == 18, result)
    expect(max(float(number) for row in rows for number in row[7:]) <= 2e-6, result.stdout)


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
