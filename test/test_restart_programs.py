#!/usr/bin/env python3
"""Tests train_gpt2 under scripts/run.sh --restarts: ranks are killed at random moments, and the run ends with the losses
of a run that nothing disturbed.

    python3 test/test_restart_programs.py build/host [PATTERN]

LLMC_LONG=1 disturbs 20 runs of each kind by 3 faults, otherwise one by 2. Prints and exits as test_programs.py does. Skipped if the
program was built without MPI or mpirun is missing.
"""
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

LONG = os.environ.get("LLMC_LONG", "0") != "0"
RUNS = 20 if LONG else 1
FAULTS = 3 if LONG else 2
STEPS = 80
STEP = [*TRAIN, "--grad-accum", 6, "--dropout", 0.1, "--checkpoint-every", 5, "--keep-checkpoints", 2, "--steps", STEPS]


def ranks_of(process):
    """The process ids of the ranks below run.sh, as {rank: id}. Processes that end during the search are left out."""
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


def disturb(process, out, chance, log, before_kill):
    """Kills a rank, FAULTS times, a random time after a new checkpoint."""
    before = 0
    for fault in range(FAULTS):
        end = time.monotonic() + SECONDS_TO_END
        while saved_step(out) <= before or not ranks_of(process):
            expect(process.poll() is None and time.monotonic() < end, f"the run ended, or does not advance: {log.read_text()}")
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.2))
        before_kill(fault)
        ranks = ranks_of(process)
        expect(ranks, f"the run ended before fault {fault}: {log.read_text()}")
        os.kill(ranks[chance.choice(sorted(ranks))], signal.SIGKILL)
        # The other ranks may complete a save before they end; the next fault is for the run that is restarted.
        while set(ranks.values()) & set(ranks_of(process).values()):
            expect(time.monotonic() < end, f"ranks are left: {log.read_text()}")
            time.sleep(0.01)
        before = saved_step(out)


def disturbed_run(program, name, ranks, seed, options, *arguments, before_kill=lambda fault: None):
    """Returns the messages."""
    messages = program.folder / f"{name}.txt"
    words = [RUN, "--restarts", 2, *options, "-np", ranks, program.binary, *arguments, "--out", name, "--log", f"{name}.jsonl"]
    with open(messages, "w", encoding="utf-8") as file:
        process = subprocess.Popen([str(word) for word in words], cwd=program.folder, stdin=subprocess.DEVNULL, stdout=file,
                                   stderr=file, env={"OMPI_MCA_odls_base_sigkill_timeout": "1", **environment()})
        try:
            disturb(process, program.folder / name, random.Random(seed), messages, before_kill)
            code = process.wait(SECONDS_TO_END)
        finally:
            left = list(ranks_of(process).values())
            process.terminate()
    text = messages.read_text()
    expect(code == 0 and not left, f"seed {seed}: exit code {code}, ranks left {left}: {text[-1500:]}")
    expect(text.count("run.sh: restart 1 of 2 after exit code 137 (SIGKILL) after step") == FAULTS, f"seed {seed}: {text}")
    return text


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


def test_an_elastic_run_keeps_its_steps_with_any_number_of_ranks(program):
    run = [*STEP, "--tp", 2, "--zero", 1]
    require_mpi(program)
    program.run(*with_flags(STEP, grad_accum=12), "--out", "whole", "--log", "whole.jsonl")
    slots = program.folder / "slots"
    for seed in seeds(program):
        name = f"run-{seed}"
        text = disturbed_run(program, name, 4, seed, ["--elastic", "--slots-command", f"cat {slots}"], *run,
                             before_kill=lambda fault: slots.write_text(str([3, 4, 2][fault])))
        expect_equal_runs(program, f"{name}.jsonl", "whole.jsonl")
        for note in ("with 2 ranks instead of 4 (3 slots", "with 4 ranks instead of 2 (4 slots", "resume: --grad-accum was 6, it is 12 now"):
            expect(note in text, f"seed {seed}: '{note}' is not in {text}")
        expect("tokens and now have" not in text, text)


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
