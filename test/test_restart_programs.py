#!/usr/bin/env python3
"""Tests train_gpt2 under scripts/run.sh --restarts: ranks are killed at random moments, and the run ends with the losses
of a run that nothing disturbed.

    python3 test/test_restart_programs.py build/host [PATTERN]

LLMC_LONG=1 disturbs 20 runs of each kind, otherwise one. Prints and exits as test_programs.py does. Skipped if the
program was built without MPI or mpirun is missing.
"""
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from runner import expect
from stored_tensors import same_state
from test_checkpoint_programs import with_flags
from test_programs import run_program_tests
from test_rank_programs import RUN, SECONDS_TO_END, TRAIN, environment, expect_equal_runs, mpirun, require_mpi

RUNS = 20 if os.environ.get("LLMC_LONG", "0") != "0" else 1
FAULTS = 3
STEPS = 60
STEP = [*TRAIN, "--grad-accum", 6, "--dropout", 0.1, "--checkpoint-every", 5, "--keep-checkpoints", 2, "--steps", STEPS]


def ranks_of(process):
    """The process ids of the ranks below run.sh, as {rank: id}. Processes that end meanwhile are left out."""
    ranks, parents = {}, [process.pid]
    while parents:
        try:
            parent = parents.pop()
            for file in Path(f"/proc/{parent}/task").glob("*/children"):
                children = file.read_text().split()
                parents += children
                for child in children:
                    variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
                    place = [entry.split(b"=")[1] for entry in variables if entry.startswith(b"OMPI_COMM_WORLD_RANK=")]
                    if place:
                        ranks[int(place[0])] = int(child)
        except OSError:
            pass
    return ranks


def saved_step(folder):
    steps = [int(path.name[5:]) for path in folder.glob("step_*") if path.name[5:].isdigit()]
    return max(steps, default=0)


def disturb(process, out, chance, log):
    """Kills a rank, FAULTS times, a random time after a new checkpoint. Returns the steps after which they were killed."""
    before, killed = 0, []
    while len(killed) < FAULTS:
        end = time.monotonic() + SECONDS_TO_END
        while saved_step(out) <= before:
            expect(process.poll() is None and time.monotonic() < end, f"the run ended, or does not advance: {log.read_text()}")
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.3))
        ranks = ranks_of(process)
        before = saved_step(out)
        if not ranks:
            continue
        rank = chance.choice(sorted(ranks))
        os.kill(ranks[rank], signal.SIGKILL)
        killed.append((rank, before))
    return killed


def disturbed_run(program, name, ranks, seed, options, *arguments):
    """Returns the messages, and the ranks that were killed."""
    messages = program.folder / f"{name}.txt"
    words = [RUN, "--restarts", 2, *options, "-np", ranks, program.binary, *arguments, "--out", name, "--log", f"{name}.jsonl"]
    with open(messages, "w", encoding="utf-8") as file:
        process = subprocess.Popen([str(word) for word in words], cwd=program.folder, stdin=subprocess.DEVNULL, stdout=file,
                                   stderr=file, env=environment(), start_new_session=True)
        try:
            killed = disturb(process, program.folder / name, random.Random(seed), messages)
            code = process.wait(SECONDS_TO_END)
        finally:
            left = list(ranks_of(process).values())
            process.terminate()
    text = messages.read_text()
    expect(code == 0 and not left, f"seed {seed}: exit code {code}, ranks left {left}: {text[-1500:]}")
    expect(text.count("run.sh: restart 1 of 2 after exit code 137 (SIGKILL) after step") == FAULTS, f"seed {seed}: {text}")
    return text, killed


def seeds(program):
    """Other ones at each commit; printed, so that a failure can be repeated with LLMC_SEED."""
    first = int(os.environ.get("LLMC_SEED", 0)) or int(time.time())
    print(f"# LLMC_SEED={first}")
    return range(first, first + RUNS)


def test_a_run_whose_ranks_are_killed_ends_with_the_losses_of_an_undisturbed_run(program):
    mpirun(program, 3, *STEP, "--zero", 2, "--out", "whole", "--log", "whole.jsonl")
    for seed in seeds(program):
        name = f"run-{seed}"
        disturbed_run(program, name, 3, seed, [], *STEP, "--zero", 2)
        expect_equal_runs(program, f"{name}.jsonl", "whole.jsonl", tolerance=0)
        last = f"step_{STEPS:06}"
        expect(same_state(program.folder / name / last, program.folder / "whole" / last), f"seed {seed}: another state")


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
