#!/usr/bin/env python3
"""Tests what train_gpt2 reports about ranks that compute slowly and about values that are not finite.

    python3 test/test_watch_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does. Skipped if the program was built without MPI or mpirun is missing.
"""
import re
import shutil
import struct
import subprocess
import sys

from runner import Skip, expect
from test_checkpoint_programs import build_library
from test_finite_programs import replace_element
from test_programs import run_program_tests
from test_rank_programs import TRAIN, environment, require_mpi, RUN, steps

SECONDS = 120


def run_ranks(program, ranks, arguments, fault_rank=None, code=0, **faults):
    """Runs ranks of the program, one of them with faults in its matrix products. Returns stderr."""
    if ranks > 1:
        require_mpi(program)
    if "libdnnl" not in subprocess.run(["ldd", program.binary], capture_output=True, text=True, check=False).stdout:
        raise Skip("the faults are in the library libdnnl, which is not used here")
    library = build_library(program, "gemm_faults")
    script = f'if [ "${{OMPI_COMM_WORLD_RANK:-0}}" = {fault_rank} ]; then export LD_PRELOAD={library}; fi; exec "$@"'
    words = ["bash", "-c", script, "x", program.binary, *arguments]
    done = subprocess.run([str(word) for word in ([RUN, "-np", ranks, *words] if ranks > 1 else words)],
                          cwd=program.folder, text=True, capture_output=True, timeout=SECONDS, check=False,
                          env={**environment(), **faults})
    expect(done.returncode == code, f"exit code {done.returncode}, not {code}: {done.stderr[-1500:]}")
    return done.stderr


# ---- slow ranks ----------------------------------------------------------------------------


def test_a_slow_rank_is_named_with_its_machine(program):
    run = [*TRAIN, "--steps", 45, "--log", "run.jsonl", "--log-ranks"]
    messages = run_ranks(program, 2, run, fault_rank=1, GEMM_SLEEP_US="1500")
    notice = re.findall(r"rank (\d) \(([^,]+), .+\) is slow: it computed ([\d.]+) ms per step for 20 steps, "
                        r"the median of ranks 0, 1 is ([\d.]+) ms\n", messages)
    expect(len(notice) == 1 and notice[0][0] == "1" and float(notice[0][2]) > 1.2 * float(notice[0][3]), messages)
    records = [line for line in program.log("run.jsonl", slow=True) if "slow_rank" in line]
    expect(len(records) == 1 and records[0]["slow_rank"] == 1 and records[0]["host"] == notice[0][1], records)
    for line in steps(program, "run.jsonl")[1:]:
        compute, wait, data = ([float(number) for number in line[f"{key}_ms_ranks"].split()]
                               for key in ("compute", "wait", "data"))
        expect(len(compute) == len(wait) == len(data) == 2 and compute[1] > compute[0] and wait[0] > 0, line)


def test_ranks_with_other_stages_are_not_compared(program):
    run = [*TRAIN, "--steps", 30, "--pp", 2, "--grad-accum", 2, "--log", "run.jsonl"]
    messages = run_ranks(program, 2, run, fault_rank=1, GEMM_SLEEP_US="1000")
    expect("is slow" not in messages, messages)


# ---- values that are not finite ------------------------------------------------------------


def make_overflowing_model(program, layer, value=1e20):
    """A model in `bad` in which channel 3 is multiplied twice by `value`, in ln_2 and in the layer's c_fc, so that
    the last output of c_fc overflows."""
    program.run(*TRAIN, "--steps", 1, "--out", "good")
    shutil.copytree(program.folder / "good/step_000001", program.folder / "bad")
    (program.folder / "bad/manifest.json").unlink()
    for name, index in ((f"transformer.h.{layer}.ln_2.weight", 3), (f"transformer.h.{layer}.mlp.c_fc.weight", 3 * 64 + 63)):
        replace_element(program.folder / "bad/model.safetensors", name, index, struct.pack("<f", value))


def test_an_overflow_in_a_layer_is_named_on_any_ranks(program):
    make_overflowing_model(program, 2)
    run = [*TRAIN, "--init-from", "bad", "--steps", 4, "--max-skipped", 9]
    layouts = {"rank 0": (1, ["--grad-accum", 2, "--recompute", "full"]), "ranks 0, 1": (2, ["--zero", 3]),
               "rank 1": (2, ["--tp", 2, "--sequence-parallel"]), "rank 1 ": (2, ["--pp", 2, "--grad-accum", 2])}
    for number, (ranks, (count, more)) in enumerate(layouts.items()):
        text = f'the loss is nan: first not finite in "linear forward" of h.2.mlp.c_fc, {ranks.strip()}, micro-batch 0, sample 0'
        messages = run_ranks(program, count, [*run, *more, "--out", "stopped", "--checkpoint-every", 1], code=1)
        expect(messages.count(f"train_gpt2: step 1: {text}\n") == 1, messages)
        expect(not list(program.folder.glob("stopped/step_*")), "a checkpoint was saved")
        shutil.rmtree(program.folder / "stopped")
        messages = run_ranks(program, count, [*run, *more, "--on-nan", "skip", "--log", f"{number}.jsonl"])
        for step in range(1, 5):
            expect(messages.count(f"step {step}: {text}\n") == 1, messages)
        records = [line["not_finite"] for line in program.log(f"{number}.jsonl") if "not_finite" in line]
        expect(records == [f"step {step}: {text}" for step in range(1, 5)], records)
        expect("update skipped (4 in total)" in messages, messages)


def test_the_last_checkpoint_is_left_when_a_run_stops(program):
    run = [*TRAIN, "--steps", 9, "--out", "run", "--checkpoint-every", 1, "--lr", 1e-3]
    program.run(*run, "--stop-after", 3)
    files = {path: path.read_bytes() for path in (program.folder / "run/step_000003").iterdir()}
    # The loss of step 4 is finite, its update is too large.
    messages = program.run("--out", "run", "--resume", "--checkpoint-every", 0, "--lr", 1e38, "--grad-clip", 0, code=1).stderr
    expect("train_gpt2: step 5: the loss is nan: first not finite in " in messages, messages)
    expect("hint: resume from the last checkpoint with a lower --lr" in messages, messages)
    expect(sorted(path.name for path in (program.folder / "run").glob("step_*"))[-1] == "step_000003", "a new checkpoint")
    expect(all(path.read_bytes() == data for path, data in files.items()), "the checkpoint has changed")


def products_per_step(program, run):
    """The matrix products of a step on one rank, of which all steps have equally many."""
    counts = [int(re.search(r"gemm_faults: (\d+) products", run_ranks(program, 1, [*run, "--steps", steps], fault_rank=0))[1])
              for steps in (1, 2)]
    return counts[1] - counts[0]


def test_a_fault_that_does_not_repeat_is_called_transient(program):
    run = [*TRAIN, "--steps", 5]
    at = str(2 * products_per_step(program, [*TRAIN]) + 6)  # in the forward pass of step 3
    messages = run_ranks(program, 1, run, fault_rank=0, code=1, GEMM_NAN_AT=at)
    text = "step 3: the loss is nan: a second run of the step is finite: a transient fault of rank "
    expect(f"train_gpt2: {text}0 (" in messages and "--on-nan skip skips such a step" in messages, messages)
    for fault_rank in (0, 1):
        log = f"{fault_rank}.jsonl"
        messages = run_ranks(program, 2, [*run, "--on-nan", "skip", "--log", log], fault_rank=fault_rank, GEMM_NAN_AT=at)
        expect(messages.count(f"{text}{fault_rank} (") == 1 and "update skipped (1 in total)" in messages, messages)
        lines = program.log(log)
        expect([line["not_finite"].startswith(f"{text}{fault_rank} (") for line in lines if "not_finite" in line] == [True], lines)
        expect([line["loss"] is None for line in lines if "loss" in line] == [False, False, True, False, False], lines)


def test_an_overflow_that_lowers_the_loss_scale_is_not_diagnosed(program):
    run = [*TRAIN, "--steps", 4, "--dtype", "fp16", "--loss-scale", 2 ** 24]
    messages = program.run(*run).stderr
    expect("update skipped" in messages and "loss scale 16777216 -> 8388608" in messages, messages)
    expect("first not finite" not in messages and "second run" not in messages, messages)


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
