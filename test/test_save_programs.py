#!/usr/bin/env python3
"""Tests checkpoints that several ranks of train_gpt2 write at once (--save async): after a kill, a full disk or a
flipped bit on any rank, and on disks that the ranks do not share.

    python3 test/test_save_programs.py build/host [PATTERN]

LLMC_LONG=1 tries all moments of a save; otherwise every tenth, other ones after each commit. Prints and exits as
test_programs.py does. Skipped if the program was built without MPI or mpirun is missing.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from runner import expect
from stored_tensors import read_checkpoint
from test_checkpoint_programs import build_fault_library, contents, names, start, with_flags
from test_programs import ROOT, run_program_tests
from test_rank_programs import RUN, SECONDS_TO_END, TRAIN, environment, expect_equal_runs, mpirun, require_mpi

LONG = os.environ.get("LLMC_LONG")
RANKS = 4
LAYOUT = ["--tp", 2, "--zero", 2]
SAVE = [*TRAIN, *LAYOUT, "--out", "ckpts", "--steps", 3, "--checkpoint-every", 1]
ALLOWED_WRITERS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors|optimizer-\d{5}-of-00004\.safetensors")


def commit_number():
    """A number that differs from commit to commit; 0 outside a repository."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return int(done.stdout.strip() or "0", 16)


def run_with_fault(program, folder, rank, arguments, ranks=RANKS, **faults):
    """Runs the ranks in a folder, with the faults of test/faults/disk_faults.cpp on one rank, or on all if it is None.
    Returns the messages and the exit code."""
    condition = "true" if rank is None else f'[ "$OMPI_COMM_WORLD_RANK" = {rank} ]'
    script = f'if {condition}; then export LD_PRELOAD={build_fault_library(program)}; fi; exec "$@"'
    words = [RUN, "-np", ranks, "bash", "-c", script, "x", program.binary, *arguments]
    done = subprocess.run([str(word) for word in words], cwd=folder, text=True, capture_output=True, check=False,
                          stdin=subprocess.DEVNULL, timeout=SECONDS_TO_END,
                          env={**environment(), "FAULT_IN": "ckpts", **faults})
    return done.stderr, done.returncode


class SecondSave:
    """A run of ranks that ended after its first checkpoint, and the calls of each rank that change files in the second
    step, which saves the second one."""

    def __init__(self, program):
        require_mpi(program)
        self.program, self.base = program, program.folder / "base"
        self.base.mkdir()
        shutil.copy(program.folder / "text.txt", self.base)
        self.ok(*run_with_fault(program, self.base, 0, [*SAVE, "--stop-after", 1]))
        self.more = ["--resume", *SAVE, "--stop-after", 1]
        self.first = read_checkpoint(self.base / "ckpts/step_000001")
        self.before = contents(self.base / "ckpts/step_000001")
        self.calls = [self.count(rank) for rank in range(RANKS)]
        self.second = read_checkpoint(self.folder("count-0") / "ckpts/step_000002")
        expect(min(map(len, self.calls)) > 8 and len(self.calls[0]) > 60, f"calls: {list(map(len, self.calls))}")

    @staticmethod
    def ok(messages, code):
        expect(code == 0, messages[-800:])

    def folder(self, name):
        return self.program.folder / name

    def copy(self, name):
        shutil.copytree(self.base, self.folder(name), symlinks=True)
        return self.folder(name)

    def count(self, rank):
        listing = self.folder(f"calls-{rank}")
        self.ok(*run_with_fault(self.program, self.copy(f"count-{rank}"), rank, self.more, FAULT_LIST=str(listing)))
        return [line.split()[0] for line in listing.read_text().splitlines()]

    def points(self):
        """The moments of this test: pairs of a rank and the number of a call."""
        everything = [(rank, n) for rank, calls in enumerate(self.calls) for n in range(1, len(calls) + 1)]
        return everything if LONG else everything[commit_number() % 10::10]

    def check(self, folder):
        """The newest valid checkpoint is the first one, unchanged, or the second one, complete."""
        flags = ["--resume", "--out", "ckpts", "--steps", 3, "--stop-after", 1, "--peak-tflops", 1]
        for left in reversed(range(100)):  # a rank that lives may end after mpirun
            process = start(self.program, flags, folder)
            messages = process.communicate(timeout=SECONDS_TO_END)[1]
            if left == 0 or "another run is writing into --out" not in messages:
                break
            time.sleep(0.1)
        expect(process.returncode == 0, f"exit code {process.returncode}: {messages[-800:]}")
        newest = re.search(r"resume: from ckpts/(step_00000[12])\n", messages)
        expect(newest, messages)
        if newest[1] == "step_000001":
            expect(read_checkpoint(folder / "ckpts/step_000001") == self.first, "the first checkpoint has changed")
        else:
            expect(read_checkpoint(folder / "ckpts/step_000002") == self.second, "the second checkpoint is another one")
        left = [name for name in names(folder / "ckpts") if not re.fullmatch(r"step_\d{6}|status\.json|lost", name)]
        expect(not left, f"left: {left}")
        shutil.rmtree(folder)

    def check_all(self, check):
        def check_one(point):
            rank, n = point
            try:
                check(rank, n)
            except AssertionError as error:
                calls = self.calls[rank]
                raise AssertionError(f"rank {rank}, {calls[n - 1]}, call {n} of {len(calls)}: {error}") from error

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(check_one, self.points()))


# ---- kills, full disks, damage -------------------------------------------------------------


def test_a_kill_of_any_rank_at_any_call_of_a_save_loses_nothing(program):
    save = SecondSave(program)

    def check(rank, n):
        fault = "tear" if save.calls[rank][n - 1] == "write" and n % 2 else "kill"
        folder = save.copy(f"kill-{rank}-{n}")
        messages, code = run_with_fault(program, folder, rank, save.more, FAULT_DO=fault, FAULT_AT=str(n))
        expect(code != 0, messages)
        save.check(folder)

    save.check_all(check)
    print(f"# killed at {len(save.points())} of {sum(map(len, save.calls))} calls")


def test_a_disk_that_is_full_for_any_rank_loses_nothing(program):
    save = SecondSave(program)

    def check(rank, n):
        folder = save.copy(f"full-{rank}-{n}")
        messages, code = run_with_fault(program, folder, rank, save.more, FAULT_DO="full", FAULT_AT=str(n))
        if code == 0:
            expect((folder / "ckpts/step_000002").exists(), messages)
        else:
            expect(code == 1 and "No space left on device" in messages, f"exit code {code}: {messages[-800:]}")
            expect(contents(folder / "ckpts/step_000001") == save.before, "the first checkpoint has changed")
        save.check(folder)

    save.check_all(check)


def test_a_wrong_byte_in_any_file_makes_all_ranks_take_the_checkpoint_before(program):
    mpirun(program, RANKS, *SAVE)
    newest = program.folder / "ckpts/step_000003"
    for name in names(newest):
        original = (newest / name).read_bytes()
        middle = len(original) // 2
        (newest / name).write_bytes(original[:middle] + bytes([original[middle] ^ 1]) + original[middle + 1:])
        messages = mpirun(program, RANKS, *SAVE, "--resume", "--dry-run")[1]
        expect(f"warning: skipped ckpts/step_000003: ckpts/step_000003/{name}" in messages, f"{name}: {messages}")
        (newest / name).write_bytes(original)
    (newest / names(newest)[-1]).unlink()
    messages = mpirun(program, RANKS, *SAVE, "--resume")[1]
    expect("resume: from ckpts/step_000002" in messages, messages)


def test_a_file_that_changes_while_ranks_load_it_ends_the_run(program):
    mpirun(program, RANKS, *SAVE)
    mpirun(program, RANKS, *with_flags(SAVE, out="adapted"), "--init-from", "ckpts", "--lora", 2)
    other = with_flags(SAVE, out="other")
    for file, arguments in (("ckpts/step_000003/optimizer-00002", [*SAVE, "--resume"]),
                            ("ckpts/step_000003/model", [*other, "--init-from", "ckpts"]),
                            ("adapted/step_000003/adapter_model", [*other, "--adapter", "adapted"])):
        messages, code = run_with_fault(program, program.folder, None, with_flags(arguments, steps=4),
                                        FAULT_IN=file, FAULT_CALLS="read", FAULT_AT="1", FAULT_DO="touch")
        changed = re.findall(r"(\S+) was changed while it was read\n", messages)
        expect(code == 1 and len(changed) == 1 and changed[0].startswith(file) and not re.search(r"step \d/4", messages), (code, messages))


def test_a_disk_that_ranks_do_not_share_is_refused_before_the_first_step(program):
    require_mpi(program)
    script = 'if [ "$OMPI_COMM_WORLD_RANK" = 2 ]; then mkdir other; cp text.txt other; cd other; mkdir ckpts; fi; exec "$@"'

    def run(*more):
        words = [RUN, "-np", 3, "bash", "-c", script, "x", program.binary, *TRAIN, "--out", "ckpts", "--steps", 2, *more]
        return subprocess.run([str(word) for word in words], cwd=program.folder, text=True, capture_output=True,
                              check=False, timeout=SECONDS_TO_END, env=environment())

    refused = run()
    expect(refused.returncode == 1 and "step 1/" not in refused.stderr, refused.stderr)
    for phrase in ("rank 2: machine ", " does not see ckpts/probe.tmp-", "which machine ", "--save sync"):
        expect(phrase in refused.stderr, f"'{phrase}' is not in {refused.stderr}")
    expect(names(program.folder / "ckpts") == [] or names(program.folder / "ckpts") == ["status.json"], names(program.folder / "ckpts"))
    shutil.rmtree(program.folder / "ckpts"), shutil.rmtree(program.folder / "other")
    expect(run("--save", "sync").returncode == 0, "--save sync needs no shared disk")
    expect((program.folder / "ckpts/step_000002/optimizer.safetensors").exists(), "rank 0 wrote other files")


# ---- saves next to training ----------------------------------------------------------------


def test_saves_by_all_ranks_and_by_rank_0_have_the_same_state_and_change_no_loss(program):
    flags = with_flags(SAVE, steps=6, checkpoint_every=2)
    mpirun(program, RANKS, *flags, "--log", "async.jsonl")
    mpirun(program, RANKS, *with_flags(flags, out="sync"), "--log", "sync.jsonl", "--save", "sync")
    # With moments on a disk, from which they are written.
    (program.folder / "scratch").mkdir()
    mpirun(program, RANKS, *with_flags(flags, out="disk"), "--log", "disk.jsonl", "--offload", "optimizer=scratch")
    mpirun(program, RANKS, *TRAIN, *LAYOUT, "--steps", 6, "--log", "none.jsonl")
    for log in ("async.jsonl", "sync.jsonl", "disk.jsonl"):
        expect_equal_runs(program, log, "none.jsonl", tolerance=0)
        saves = [line for line in program.log(log, saves=True) if "saved" in line]
        expect([line["step"] for line in saves] == [2, 4, 6], saves)
        for line in saves:
            expect(all(line[f"save_{part}_ms"] >= 0 for part in ("gather", "copy", "write")), line)
    for step in (2, 4, 6):
        a, b = (program.folder / f"{run}/step_{step:06}" for run in ("ckpts", "sync"))
        expect(read_checkpoint(a) == read_checkpoint(b), f"step {step}: other tensors")
        expect(read_checkpoint(program.folder / f"disk/step_{step:06}") == read_checkpoint(b), f"disk, step {step}: other tensors")
        files = [file["name"] for file in json.loads((a / "manifest.json").read_text())["files"]]
        written = [name for name in files if name.endswith("safetensors")]
        expect(len(written) == 5 and all(map(ALLOWED_WRITERS.fullmatch, written)), written)
    # A run that continues from either one has the same bits.
    for out in ("ckpts", "sync"):
        shutil.rmtree(program.folder / out / "step_000006")
        mpirun(program, RANKS, "--resume", "--out", out, "--log", f"{out}-more.jsonl", "--quiet")
    expect(read_checkpoint(program.folder / "ckpts/step_000006") == read_checkpoint(program.folder / "sync/step_000006"),
           "the runs continue differently")


def test_steps_are_taken_while_files_are_written_slowly(program):
    require_mpi(program)
    ranks = 8
    messages, code = run_with_fault(program, program.folder, None, [*with_flags(SAVE, steps=60, checkpoint_every=30),
                                    "--log", "slow.jsonl"], ranks, FAULT_IN="/step_0000", FAULT_DO="slow", FAULT_AT="all")
    expect(code == 0, messages)
    lines = program.log("slow.jsonl", saves=True)
    at = next(i for i, line in enumerate(lines) if line.get("saved") == "ckpts/step_000030")
    expect(lines[at - 1]["step"] > 31, f"saved after step {lines[at - 1]['step']}")
    mpirun(program, ranks, *TRAIN, *LAYOUT, "--steps", 60, "--log", "none.jsonl")
    expect_equal_runs(program, "slow.jsonl", "none.jsonl", tolerance=0)


def test_a_save_that_comes_too_early_waits_and_is_reported(program):
    require_mpi(program)
    messages, code = run_with_fault(program, program.folder, 1, [*SAVE, "--log", "slow.jsonl"], FAULT_IN="/step_0000",
                                    FAULT_DO="slow", FAULT_AT="all")
    expect(code == 0 and "the save of step 2 waits until ckpts/step_000001 is written" in messages, messages)
    expect([line["saved"] for line in program.log("slow.jsonl", saves=True) if "saved" in line] ==
           [f"ckpts/step_{step:06}" for step in (1, 2, 3)], "not all steps are saved")


def test_minutes_between_saves_are_those_of_rank_0(program):
    flags = [*with_flags(SAVE, steps=12, checkpoint_every=0), "--log", "run.jsonl"]
    mpirun(program, RANKS, *flags, "--checkpoint-minutes", 1e-6)
    saved = [line["step"] for line in program.log("run.jsonl", saves=True) if "saved" in line]
    expect(saved == list(range(1, 13)), saved)
    program.fails("--checkpoint-minutes", 1, phrases=["--checkpoint-minutes needs --out"], code=2)
    program.fails("--checkpoint-minutes", -1, "--out", "x", phrases=["--checkpoint-minutes"], code=2)


def test_a_signal_while_ranks_write_ends_the_run_with_the_step_saved(program):
    require_mpi(program)
    for rank in (0, 2):
        folder = program.folder / f"signal-{rank}"
        folder.mkdir()
        shutil.copy(program.folder / "text.txt", folder)
        messages, code = run_with_fault(program, folder, rank, with_flags(SAVE, steps=10 ** 9, checkpoint_every=3),
                                        FAULT_IN="/step_0000", FAULT_DO="term", FAULT_AT="3")
        ended = re.search(r"interrupted by SIGTERM after step (\d+): saved ckpts/step_0*(\d+), --resume continues", messages)
        expect(code == 0 and ended and ended[1] == ended[2], messages[-800:])
        expect(int(ended[1]) >= 3 and (folder / "ckpts/step_000003").exists(), messages[-800:])


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
