#!/usr/bin/env python3
"""Tests checkpoints of train_gpt2 from the command line: after a kill, a full disk, a signal or a flipped
bit, and which checkpoints are kept. test_exchange_programs.py covers models of other programs.

    python3 test/test_checkpoint_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from runner import Skip, expect
from stored_tensors import same_state
from test_programs import ROOT, run_program_tests

# Kinds of arithmetic, as flags of train_gpt2. In each, a resumed run must equal the uninterrupted run
# bit for bit.
ARITHMETIC = {"fp32": ["--dtype", "fp32", "--dropout", 0.2],
              "bf16": ["--dtype", "bf16", "--dropout", 0.2],
              "bf16-rounded": ["--dtype", "bf16", "--stochastic-rounding"],
              "fp16": ["--dtype", "fp16", "--dropout", 0.2, "--loss-scale", 2 ** 24, "--loss-scale-window", 3]}

QUIET = ["--eval-every", 0, "--sample-every", 0, "--peak-tflops", 1]  # with --peak-tflops, no peak is measured
TINY = ["--train", "text.txt", "--layers", 1, "--heads", 1, "--channels", 8, "--context", 8, "--batch-size", 1]
RUN = [*TINY, *QUIET, "--out", "ckpts", "--log", "ckpts/log.jsonl"]


def build_library(program, name):
    """Compiles test/faults/NAME.cpp to a library for LD_PRELOAD. Returns its path."""
    library = program.folder / f"{name}.so"
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise Skip(f"no {compiler} to compile test/faults/{name}.cpp")
    if not library.exists():
        subprocess.run([compiler, "-std=c++20", "-O1", "-shared", "-fPIC", "-o", library,
                        ROOT / f"test/faults/{name}.cpp", "-ldl"], check=True)
    return library.resolve()


def build_fault_library(program):
    """Compiles a library for LD_PRELOAD that makes calls fail. Returns its path."""
    return build_library(program, "disk_faults")


def with_flags(arguments, **changes):
    """The arguments with the values of the flags in `changes`; flags that are missing are appended."""
    arguments = list(arguments)
    for name, value in changes.items():
        flag = "--" + name.replace("_", "-")
        if flag not in arguments:
            arguments += [flag, value]
        arguments[arguments.index(flag) + 1] = value
    return arguments


def start(program, arguments, folder=None, **environment):
    return subprocess.Popen([str(program.binary), *map(str, arguments)], cwd=folder or program.folder, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **environment})


def finish(process, code=0):
    messages = process.communicate(timeout=300)[1]
    expect(process.returncode == code, f"exit code {process.returncode}, not {code}: {messages[-600:]}")
    return messages


def wait_for(process, text):
    """Reads stderr up to the first line that has `text`. Returns that line."""
    for line in process.stderr:
        if text in line:
            return line
    raise AssertionError(f"the program ended without printing '{text}'")


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def names(folder):
    """The files and directories in `folder`, without links such as `latest` and the status of the run."""
    return sorted(path.name for path in folder.iterdir() if not path.is_symlink() and path.name != "status.json")


def logged_steps(path):
    return [line["step"] for line in map(json.loads, path.read_text().splitlines()) if "loss" in line]


class SecondSave:
    """A run of three steps, stopped after its first checkpoint (`base`), and the same run without faults
    (`full`). Tests inject faults into the second save, which also removes the first checkpoint."""

    def __init__(self, program):
        self.program, self.library = program, build_fault_library(program)
        self.base, self.full = program.folder / "base", program.folder / "full"
        for folder in (self.base, self.full):
            folder.mkdir()
            shutil.copy(program.folder / "text.txt", folder)
        arguments = [*RUN, "--steps", 3, "--checkpoint-every", 1, "--keep-checkpoints", 1]
        finish(start(program, arguments, self.full))
        finish(start(program, [*arguments, "--stop-after", 1], self.base))
        self.resumed = [*arguments, "--resume"]
        listing = program.folder / "calls"
        self.run_with_faults("counting", FAULT_LIST=str(listing))
        self.calls = [line.split()[0] for line in listing.read_text().splitlines()]
        expect(len(self.calls) > 60, f"only {len(self.calls)} calls: are they counted?")

    def run_with_faults(self, name, code=0, **environment):
        """Runs the second step with faults in a copy of the run. Returns (folder, messages, exit code)."""
        folder = self.program.folder / name
        shutil.copytree(self.base, folder, symlinks=True)
        process = start(self.program, [*self.resumed, "--stop-after", 1], folder, LD_PRELOAD=str(self.library),
                        FAULT_IN="ckpts", **environment)
        messages = process.communicate(timeout=300)[1]
        expect(code is None or process.returncode == code, f"exit code {process.returncode}, not {code}: {messages}")
        return folder, messages, process.returncode

    def check_resume(self, folder):
        """Resumes the run in `folder`: it must equal the full run and leave no other files."""
        messages = finish(start(self.program, self.resumed, folder))
        expect(re.search(r"resume: from ckpts/step_00000[12]\n", messages), messages)
        expect(names(folder / "ckpts") == ["log.jsonl", "step_000003"], names(folder / "ckpts"))
        expect(same_state(folder / "ckpts/step_000003", self.full / "ckpts/step_000003"), "weights or moments differ")
        expect(logged_steps(folder / "ckpts/log.jsonl") == [1, 2, 3], "the log is incomplete")
        shutil.rmtree(folder)

    def check_all(self, points, check):
        """Calls check(n) for each of `points`. On a GPU, every ninth is enough: each run has to wait for the
        GPU, and saves files with the same calls.
        """
        if self.program.binary.parent.name == "cuda":
            points = points[::9]
        expect(len(points) <= 200, f"{len(points)} points: make the run smaller")

        def check_one(n):
            try:
                check(n)
            except AssertionError as error:
                raise AssertionError(f"{self.calls[n - 1]}, call {n} of {len(self.calls)}: {error}") from error

        with ThreadPoolExecutor(4) as pool:  # the runs mostly wait for the disk
            list(pool.map(check_one, points))


# ---- kills, full disks, damage -------------------------------------------------------------


def test_a_kill_at_any_call_of_a_save_loses_nothing(program):
    save = SecondSave(program)

    def check_kill(fault, n):
        save.check_resume(save.run_with_faults(f"{fault}-{n}", -signal.SIGKILL, FAULT_DO=fault, FAULT_AT=str(n))[0])

    points = range(1, len(save.calls) + 1)
    save.check_all(points, lambda n: check_kill("kill", n))
    save.check_all([n for n in points if save.calls[n - 1] == "write"], lambda n: check_kill("tear", n))
    print(f"# killed before each of {len(save.calls)} calls, and in the middle of each write")


def test_a_disk_full_from_any_call_on_loses_nothing(program):
    save = SecondSave(program)
    before = contents(save.base / "ckpts/step_000001")
    exit_counts = {0: 0, 1: 0}

    def check_full_disk(n):
        folder, messages, code = save.run_with_faults(f"full-{n}", None, FAULT_DO="full", FAULT_AT=str(n))
        saved = (folder / "ckpts/step_000002").exists()
        complete = code == 0 or "status.json" in messages  # all but the status of the run
        if code == 0:  # the save was complete before the first failed call
            expect(saved and "saved ckpts/step_000002" in messages, messages)
        else:
            expect(code == 1, f"exit code {code}: {messages}")
            expect(re.search(r"train_gpt2: cannot .*ckpts.*: No space left on device\n  hint: free some", messages),
                   messages[-400:])
        exit_counts[code] += 1
        if (folder / "ckpts/step_000001").exists():
            expect(contents(folder / "ckpts/step_000001") == before, "the older checkpoint changed")
        else:
            expect(saved and complete, "the older checkpoint is gone")
        expect(not any(".tmp-" in name for name in names(folder / "ckpts")) or complete, names(folder / "ckpts"))
        if n % 8 == 0 or code == 0:
            save.check_resume(folder)
        else:
            shutil.rmtree(folder)

    save.check_all(range(1, len(save.calls) + 1), check_full_disk)
    expect(exit_counts[1] > 0.4 * sum(exit_counts.values()), f"runs per exit code: {exit_counts}: does the disk fill up?")


def test_a_corrupted_file_is_named_and_the_previous_checkpoint_loaded(program):
    arguments = [*RUN, "--steps", 3, "--checkpoint-every", 1]
    finish(start(program, [*arguments, "--stop-after", 2]))
    newest = program.folder / "ckpts/step_000002"
    expect({"README.md", "config.json", "generation_config.json", "manifest.json", "model.safetensors",
            "optimizer.safetensors"} <= set(names(newest)), names(newest))
    for name in names(newest):
        bytes_ = (newest / name).read_bytes()
        for damage in (bytes([bytes_[0] ^ 1]) + bytes_[1:], bytes_[:-1]):
            (newest / name).write_bytes(damage)
            messages = finish(start(program, [*arguments, "--resume", "--stop-after", 1]))  # saves it again
            expect(f"ckpts/step_000002/{name} " in messages and "resume: from ckpts/step_000001" in messages, messages)
            expect((newest / name).read_bytes() == bytes_, f"{name} is not restored")


def test_resume_without_a_valid_checkpoint_starts_at_step_0(program):
    messages = finish(start(program, [*RUN, "--steps", 1, "--resume"]))
    expect("resume: there is no valid checkpoint in ckpts, so a new run starts at step 0\n" in messages, messages)
    (program.folder / "ckpts/step_000001/manifest.json").unlink()
    messages = finish(start(program, [*RUN, "--steps", 1, "--resume"]))
    expect("step_000001 is not a complete checkpoint" in messages and "starts at step 0" in messages, messages)
    expect(logged_steps(program.folder / "ckpts/log.jsonl") == [1], "the log has the step twice")


def test_a_run_that_begins_again_begins_its_log_again(program):
    """As after a stop before the first step, when step 0 is logged and nothing is saved."""
    (program.folder / "val.txt").write_text("the quick brown fox\n" * 20)
    flags = [*TINY, "--val", "val.txt", "--sample-every", 0, "--eval-every", 2, "--steps", 2, "--out", "run", "--resume"]
    finish(start(program, [*flags, "--log", "whole.jsonl"]))
    subprocess.run(["rm", "-r", program.folder / "run"], check=True)
    lines = (program.folder / "whole.jsonl").read_text().splitlines(True)
    (program.folder / "again.jsonl").write_text("".join(line for line in lines if '"step":0,' in line))
    finish(start(program, [*flags, "--log", "again.jsonl"]))
    steps = {name: [line["step"] for line in program.log(f"{name}.jsonl")] for name in ("whole", "again")}
    expect(steps["whole"] == steps["again"] and steps["whole"].count(0) == 1, steps)


# ---- signals -------------------------------------------------------------------------------


def test_a_run_interrupted_five_times_equals_the_uninterrupted_run(program):
    library = build_fault_library(program)
    for name, flags in ARITHMETIC.items():
        common = [*TINY, *flags, "--steps", 15, "--eval-every", 4, "--eval-batches", 2, "--sample-every", 0,
                  "--peak-tflops", 1]
        finish(start(program, [*common, "--out", f"a-{name}", "--log", f"a-{name}.jsonl"]))
        resumed = [*common, "--out", f"b-{name}", "--log", f"b-{name}.jsonl", "--resume"]
        for stop in range(5):  # SIGTERM after the third or fourth line of the log is written; a new log is created first
            messages = finish(start(program, resumed, LD_PRELOAD=str(library), FAULT_IN=f"b-{name}.jsonl",
                                    FAULT_DO="term", FAULT_AT=str(5 if stop == 0 else 4 + stop % 2)))
            expect(re.search(rf"interrupted by SIGTERM after step \d+: saved b-{name}/step_\d+, --resume continues",
                             messages), messages)
        finish(start(program, resumed))
        logs = [[(line["step"], line.get("loss"), line.get("val_loss"), line.get("grad_norm"), line.get("lr"))
                 for line in program.log(f"{run}-{name}.jsonl")] for run in "ab"]
        expect(logs[0] == logs[1], f"{name}: {logs[0]}\n{logs[1]}")
        expect(same_state(*(program.folder / f"{run}-{name}/step_000015" for run in "ab")), f"{name}: weights or moments differ")


def test_a_signal_during_steps_or_samples_ends_the_run_after_the_step(program):
    endless = [*TINY, "--peak-tflops", 1, "--steps", 10 ** 9, "--grad-accum", 4]
    quiet = ["--eval-every", 0, "--sample-every", 0]
    sampling = ["--eval-every", 0, "--sample-every", 1, "--sample-length", 4]
    cases = {"step": (signal.SIGINT, [*quiet, "--out", "step"], "step 1/", "saved step/step_"),
             "no-output": (signal.SIGTERM, quiet, "step 1/", "nothing is saved without --out"),
             "sample": (signal.SIGTERM, [*sampling, "--out", "sample"], "sample:", "saved sample/step_")}
    for case, (sent_signal, flags, line, phrase) in cases.items():
        process = start(program, [*endless, *flags])
        wait_for(process, line)
        process.send_signal(sent_signal)
        messages = finish(process)
        expect(f"interrupted by {sent_signal.name} after step " in messages and phrase in messages, f"{case}: {messages}")
        if "--out" in flags:
            saved, = names(program.folder / case)
            expect(f"after step {int(saved[5:])}:" in messages, f"saved {saved}: {messages}")


def test_an_interrupted_evaluation_is_repeated_on_resume(program):
    (program.folder / "long.txt").write_text("the quick brown fox\n" * 1_000_000)
    long = [*TINY, "--peak-tflops", 1, "--val", "long.txt", "--steps", 2, "--eval-every", 1, "--eval-batches", 0,
            "--sample-every", 0, "--out", "long", "--log", "long.jsonl"]
    process = start(program, long)
    wait_for(process, "MFU:")  # the evaluation before step 1 follows
    process.send_signal(signal.SIGTERM)
    messages = finish(process, code=-signal.SIGTERM)
    expect("train_gpt2: interrupted by SIGTERM before step 1\n" in messages, messages)
    expect(not list((program.folder / "long").glob("step_*")), "the run saved before its first step")
    expect([line for line in program.log("long.jsonl") if "val_loss" in line] == [], "the interrupted evaluation was logged")
    short = with_flags(long, eval_batches=2)
    library = build_fault_library(program)
    finish(start(program, [*short, "--resume"], LD_PRELOAD=str(library), FAULT_IN="long.jsonl", FAULT_DO="term",
                 FAULT_AT="4"))  # after the line of step 1, before its evaluation
    expect([line for line in program.log("long.jsonl") if "val_loss" in line and line["step"] == 1] == [], "step 1 was evaluated")
    finish(start(program, [*short, "--resume"]))
    lines = [(line["step"], "val_loss" in line) for line in program.log("long.jsonl") if {"loss", "val_loss"} & set(line)]
    expect(lines == [(0, True), (1, False), (1, True), (2, False), (2, True)], lines)


# ---- retention -----------------------------------------------------------------------------


def test_old_checkpoints_are_removed_except_milestones(program):
    arguments = [*RUN, "--checkpoint-every", 1, "--keep-checkpoints", 2, "--milestone-every", 3]
    folder = program.folder / "ckpts"
    finish(start(program, [*arguments, "--steps", 10, "--stop-after", 8]))
    expect(names(folder) == ["log.jsonl", "step_000003", "step_000006", "step_000007", "step_000008"], names(folder))
    # Only complete checkpoints of this run are counted and removed. None of the following is one.
    shutil.copytree(folder / "step_000003", folder / "best")
    shutil.copytree(folder / "step_000003", folder / "step_000005")
    shutil.copytree(folder / "step_000007", folder / "step_000004")
    (folder / "step_000004/config.json").unlink()
    other = [*TINY, *QUIET, "--out", "other", "--seed", 5, "--steps", 1]
    finish(start(program, other))
    shutil.move(program.folder / "other/step_000001", folder / "step_000001")
    (folder / "step_000008/optimizer.safetensors").write_bytes(b"torn")
    messages = finish(start(program, [*arguments, "--steps", 10, "--resume", "--stop-after", 2]))
    expect("optimizer.safetensors has 4 bytes" in messages and "resume: from ckpts/step_000007" in messages, messages)
    expect(names(folder) == ["best", "log.jsonl", "step_000001", "step_000003", "step_000004", "step_000005",
                             "step_000006", "step_000008", "step_000009"], names(folder))
    program.fails("--milestone-every", 2, "--out", "x", phrases=["--milestone-every", "--keep-checkpoints"], code=2)
    program.fails("--keep-checkpoints", 2, phrases=["--keep-checkpoints", "--out"], code=2)


def test_milestones_are_saved_between_checkpoints(program):
    finish(start(program, [*RUN, "--steps", 7, "--keep-checkpoints", 1, "--checkpoint-every", 2, "--milestone-every", 5]))
    expect(names(program.folder / "ckpts") == ["log.jsonl", "step_000005", "step_000007"], "step 5 must be a milestone")


if __name__ == "__main__":
    # A shell's background jobs ignore SIGINT, and child processes would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(run_program_tests(globals(), "train_gpt2"))
