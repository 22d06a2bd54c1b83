#!/usr/bin/env python3
"""Tests that a stop signal to one rank of train_gpt2 or to all of them loses nothing, whatever they are busy with.

    python3 test/test_rank_signal_programs.py build/host [PATTERN]

LLMC_LONG=1 stops 50 runs, otherwise 2 are stopped, other ones after each commit. Prints and exits as test_programs.py
does. Skipped if the program was built without MPI or mpirun is missing.
"""
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter

from runner import expect
from stored_tensors import same_state
from test_checkpoint_programs import finish, names, wait_for, with_flags
from test_programs import run_program_tests
from test_rank_programs import RUN, TRAIN, environment, expect_equal_runs, require_mpi
from test_save_programs import commit_number
from test_signal_programs import RUN_SIGNALS

LONG = os.environ.get("LLMC_LONG")
RUNS = 50 if LONG else 2
RANKS, STEPS = 4, 12
LAST = f"ckpts/step_{STEPS:06}"
# It takes a step, validates, samples and saves for about the same time.
BUSY = [*with_flags(TRAIN, channels=64, context=32, eval_every=2, sample_every=3, sample_length=16), "--val", "val.txt",
        "--eval-batches", 0, "--tp", 2, "--zero", 2, "--grad-accum", 3, "--steps", STEPS, "--out", "ckpts", "--log", "run.jsonl"]
# The begin of the answer to a signal in each phase.
PHASES = ["finishing step", "stopping the validation", "stopping the samples", "finishing the save"]


class Run:
    """A run of ranks in a folder of its own."""

    def __init__(self, program, name, *more):
        self.folder = program.folder / name
        self.folder.mkdir(exist_ok=True)
        for text in ("text.txt", "val.txt"):
            shutil.copy(program.folder / text, self.folder)
        script = 'echo $$ > pid-$OMPI_COMM_WORLD_RANK; exec "$@"'
        words = [RUN, "-np", RANKS, "bash", "-c", script, "x", program.binary, *BUSY, *more]
        self.process = subprocess.Popen([str(word) for word in words], cwd=self.folder, text=True, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())

    def kill(self, ranks, chosen):
        for rank in ranks:
            try:
                os.kill(int((self.folder / f"pid-{rank}").read_text()), chosen)
            except ProcessLookupError:
                pass  # the run has ended

    def finish(self):
        return finish(self.process)

    def newest_step(self):
        return max(int(name[5:]) for name in names(self.folder / "ckpts") if name.startswith("step_"))


def stop_and_resume(program, number, seconds):
    """Stops a run within some seconds of its first step, resumes it, and compares it with the undisturbed one. Returns
    the phase in which it was stopped.
    """
    draw = random.Random(f"ranks {number}")
    name, save = f"stopped-{number}", ["--save", draw.choice(["sync", "async"]), "--checkpoint-every", draw.choice([1, 3])]
    run = Run(program, name, *save)
    wait_for(run.process, "step 1/")
    time.sleep(draw.uniform(0, seconds))
    chosen, ranks = draw.choice(RUN_SIGNALS), draw.choice([range(RANKS), [draw.randrange(RANKS)]])
    run.kill(ranks, chosen)
    messages = run.finish()
    place = f"run {number}: {chosen.name} to ranks {list(ranks)}, {' '.join(map(str, save))}: "
    ended = re.findall(r"interrupted by (SIG\w+) after step (\d+): saved ckpts/step_0*(\d+), --resume continues", messages)
    if ended:
        expect(ended == [(chosen.name, ended[0][1], ended[0][1])] and run.newest_step() == int(ended[0][1]),
               place + messages[-800:])
        messages += Run(program, name, *save, "--resume").finish()
    expect("\ndone: " in messages, place + messages[-800:])
    expect(same_state(run.folder / LAST, program.folder / "whole" / LAST), place + "another state")
    expect_equal_runs(program, f"{name}/run.jsonl", "whole/run.jsonl", tolerance=0)
    shutil.rmtree(run.folder)
    unknown = "a step of a rank above 0, which prints nothing" if ended else "after the last step"
    return next((phase for phase in PHASES if phase in messages), unknown)


def test_stops_in_every_phase_lose_nothing(program):
    require_mpi(program)
    (program.folder / "val.txt").write_text("the quick brown fox\n" * 60)
    whole = Run(program, "whole")
    wait_for(whole.process, "step 1/")
    start = time.monotonic()
    whole.finish()
    seconds = time.monotonic() - start
    first = 0 if LONG else commit_number() % 1000 * RUNS
    phases = Counter(stop_and_resume(program, number, seconds) for number in range(first, first + RUNS))
    print("# stopped in " + ", ".join(f"{phase}: {count}" for phase, count in phases.most_common()))
    expect(not LONG or all(phases[phase] for phase in PHASES), f"not every phase was hit: {phases}")


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
