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
from test_programs import ROOT, run_program_tests, same_state

# Kinds of arithmetic, as flags of train_gpt2. In each, a resumed run must equal the uninterrupted run
# bit for bit.
ARITHMETIC = {"fp32": ["--dtype", "fp32", "--dropout", 0.2],
              "bf16": ["--dtype", "bf16", "--dropout", 0.2],
              "bf16-rounded": ["--dtype", "bf16", "--stochastic-rounding"],
              "fp16": ["--dtype", "fp16", "--dropout", 0.2, "--loss-scale", 2 ** 24, "--loss-scale-window", 3]}

QUIET = ["--eval-every", 0, "--sample-every", 0, "--peak-tflops", 1]  # with --peak-tflops, no peak is measured
TINY = ["--train", "text.txt", "--layers", 1, "--heads", 1, "--channels", 8, "--context", 8, "--batch-size", 1]
RUN = [*TINY, *QUIET, "--out", "ckpts", "--log", "ckpts/log.jsonl"]


def faults(program):
    """Compiles a library for LD_PRELOAD that makes calls fail. Returns its path."""
    library = program.folder / "disk_faults.so"
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise Skip(f"{compiler} is not here to compile test/faults/disk_faults.cpp")
    subprocess.run([compiler, "-std=c++20", "-O1", "-shared", "-fPIC", "-o", library,
                    ROOT / "test/faults/disk_faults.cpp", "-ldl"], check=True)
    return library.resolve()


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


def finish(running, code=0):
    messages = running.communicate(timeout=300)[1]
    expect(running.returncode == code, f"exit code {running.returncode}, not {code}: {messages[-600:]}")
    return messages


def wait_for(running, text):
    """Reads stderr up to the first line that has `text`. Returns that line."""
    for line in running.stderr:
        if text in line:
            return line
    raise AssertionError(f"it ended without '{text}'")


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def steps_logged(path):
    return [line["step"] for line in map(json.loads, path.read_text().splitlines()) if "loss" in line]


class SecondSave:
    """A run of three steps, stopped after its first checkpoint (`base`), and the same run undisturbed
    (`whole`). Tests disturb the second save, which also removes the first checkpoint."""

    def __init__(self, program):
        self.program, self.library = program, faults(program)
        self.base, self.whole = program.folder / "base", program.folder / "whole"
        for folder in (self.base, self.whole):
            folder.mkdir()
            shutil.copy(program.folder / "text.txt", folder)
        arguments = [*RUN, "--steps", 3, "--checkpoint-every", 1, "--keep-checkpoints", 1]
        finish(start(program, arguments, self.whole))
        finish(start(program, [*arguments, "--stop-after", 1], self.base))
        self.resumed = [*arguments, "--resume"]
        listing = program.folder / "calls"
        self.disturbed("counting", FAULT_LIST=str(listing))
        self.calls = [line.split()[0] for line in listing.read_text().splitlines()]
        expect(len(self.calls) > 60, f"only {len(self.calls)} calls: are they counted?")

    def disturbed(self, name, code=0, **environment):
        """Runs the second step with faults in a copy of the run. Returns (folder, messages, exit code)."""
        folder = self.program.folder / name
        shutil.copytree(self.base, folder)
        running = start(self.program, [*self.resumed, "--stop-after", 1], folder, LD_PRELOAD=str(self.library),
                        FAULT_IN="ckpts", **environment)
        messages = running.communicate(timeout=300)[1]
        expect(code is None or running.returncode == code, f"exit code {running.returncode}, not {code}: {messages}")
        return folder, messages, running.returncode

    def goes_on(self, folder):
        """Resumes the run in `folder`: it must equal the undisturbed run and leave no other files."""
        messages = finish(start(self.program, self.resumed, folder))
        expect(re.search(r"resume: from ckpts/step_00000[12]\n", messages), messages)
        expect(names(folder / "ckpts") == ["log.jsonl", "step_000003"], names(folder / "ckpts"))
        expect(same_state(folder / "ckpts/step_000003", self.whole / "ckpts/step_000003"), "another state")
        expect(steps_logged(folder / "ckpts/log.jsonl") == [1, 2, 3], "the log is not whole")
        shutil.rmtree(folder)

    def at_all(self, points, check):
        """Calls check(n) for each of `points`. On a GPU, every ninth is enough: each run has to wait for the
        GPU, and saves files with the same calls.
        """
        if self.program.binary.parent.name == "cuda":
            points = points[::9]
        expect(len(points) <= 200, f"{len(points)} points: make the run smaller")

        def checked(n):
            try:
                check(n)
            except AssertionError as why:
                raise AssertionError(f"{self.calls[n - 1]}, call {n} of {len(self.calls)}: {why}") from why

        with ThreadPoolExecutor(4) as pool:  # the runs mostly wait for the disk
            list(pool.map(checked, points))


# ---- kills, full disks, damage -------------------------------------------------------------


def test_a_kill_at_any_call_of_a_save_loses_nothing(program):
    save = SecondSave(program)

    def killed(what, n):
        save.goes_on(save.disturbed(f"{what}-{n}", -signal.SIGKILL, FAULT_DO=what, FAULT_AT=str(n))[0])

    points = range(1, len(save.calls) + 1)
    save.at_all(points, lambda n: killed("kill", n))
    save.at_all([n for n in points if save.calls[n - 1] == "write"], lambda n: killed("tear", n))
    print(f"# killed before calls, of {len(save.calls)}, and in the middle of writes")


def test_a_disk_full_from_any_call_on_loses_nothing(program):
    save = SecondSave(program)
    before = contents(save.base / "ckpts/step_000001")
    endings = {0: 0, 1: 0}

    def full(n):
        folder, messages, code = save.disturbed(f"full-{n}", None, FAULT_DO="full", FAULT_AT=str(n))
        saved = (folder / "ckpts/step_000002").exists()
        if code == 0:  # the save was complete before the first failed call
            expect(saved and "saved ckpts/step_000002" in messages, messages)
        else:
            expect(code == 1, f"exit code {code}: {messages}")
            expect(re.search(r"train_gpt2: cannot .*ckpts.*: No space left on device\n  hint: free some", messages),
                   messages[-400:])
        endings[code] += 1
        if (folder / "ckpts/step_000001").exists():
            expect(contents(folder / "ckpts/step_000001") == before, "the older checkpoint changed")
        else:
            expect(saved and code == 0, "the older checkpoint is gone")
        expect(not any(".tmp-" in name for name in names(folder / "ckpts")) or code == 0, names(folder / "ckpts"))
        if n % 8 == 0 or code == 0:
            save.goes_on(folder)
        else:
            shutil.rmtree(folder)

    save.at_all(range(1, len(save.calls) + 1), full)
    expect(endings[1] > 0.4 * sum(endings.values()), f"{endings} runs ended so: does the disk fill up?")


def test_a_corrupted_file_is_named_and_the_checkpoint_before_it_taken(program):
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
            expect((newest / name).read_bytes() == bytes_, f"{name} is not what it was")


def test_resume_without_a_good_checkpoint_starts_fresh_and_says_so(program):
    messages = finish(start(program, [*RUN, "--steps", 1, "--resume"]))
    expect("resume: no good checkpoint in ckpts, starting fresh" in messages, messages)
    (program.folder / "ckpts/step_000001/manifest.json").unlink()
    messages = finish(start(program, [*RUN, "--steps", 1, "--resume"]))
    expect("step_000001 is not a whole checkpoint" in messages and "starting fresh" in messages, messages)
    expect(steps_logged(program.folder / "ckpts/log.jsonl") == [1], "the log has the step twice")


# ---- signals -------------------------------------------------------------------------------


def test_five_interruptions_leave_the_uninterrupted_run(program):
    library = faults(program)
    for name, flags in ARITHMETIC.items():
        common = [*TINY, *flags, "--steps", 15, "--eval-every", 4, "--eval-batches", 2, "--sample-every", 0,
                  "--peak-tflops", 1]
        finish(start(program, [*common, "--out", f"a-{name}", "--log", f"a-{name}.jsonl"]))
        resumed = [*common, "--out", f"b-{name}", "--log", f"b-{name}.jsonl", "--resume"]
        for stop in range(5):  # SIGTERM after the second or third line of the log is written
            messages = finish(start(program, resumed, LD_PRELOAD=str(library), FAULT_IN=f"b-{name}.jsonl",
                                    FAULT_DO="term", FAULT_AT=str(3 + stop % 2)))
            expect(re.search(rf"interrupted by SIGTERM after step \d+: saved b-{name}/step_\d+, --resume goes on",
                             messages), messages)
        finish(start(program, resumed))
        logs = [[(line["step"], line.get("loss"), line.get("val_loss"), line.get("grad_norm"), line.get("lr"))
                 for line in program.log(f"{run}-{name}.jsonl")] for run in "ab"]
        expect(logs[0] == logs[1], f"{name}: {logs[0]}\n{logs[1]}")
        expect(same_state(*(program.folder / f"{run}-{name}/step_000015" for run in "ab")), f"{name}: another state")


def test_a_signal_ends_each_part_of_a_run_in_order(program):
    endless = [*TINY, "--peak-tflops", 1, "--steps", 10 ** 9, "--grad-accum", 4]
    quiet = ["--eval-every", 0, "--sample-every", 0]
    sampling = ["--eval-every", 0, "--sample-every", 1, "--sample-length", 4]
    cases = {"step": (signal.SIGINT, [*quiet, "--out", "step"], "step 1/", "saved step/step_"),
             "nowhere": (signal.SIGTERM, quiet, "step 1/", "nothing is saved without --out"),
             "sample": (signal.SIGTERM, [*sampling, "--out", "sample"], "sample: ", "saved sample/step_")}
    for what, (sent, flags, line, says) in cases.items():
        running = start(program, [*endless, *flags])
        wait_for(running, line)
        running.send_signal(sent)
        messages = finish(running)
        expect(f"interrupted by {sent.name} after step " in messages and says in messages, f"{what}: {messages}")
        if "--out" in flags:
            saved, = names(program.folder / what)
            expect(f"after step {int(saved[5:])}:" in messages, f"saved {saved}: {messages}")


def test_an_evaluation_is_left_and_made_up_for(program):
    (program.folder / "long.txt").write_text("the quick brown fox\n" * 100_000)
    long = [*TINY, "--peak-tflops", 1, "--val", "long.txt", "--steps", 2, "--eval-every", 1, "--eval-batches", 0,
            "--sample-every", 0, "--out", "long", "--log", "long.jsonl"]
    running = start(program, long)
    wait_for(running, "MFU:")  # the evaluation before step 1 follows
    running.send_signal(signal.SIGTERM)
    expect("after step 0: nothing to save yet" in finish(running), "it saved what was not there")
    expect(not (program.folder / "long.jsonl").read_text(), "half an evaluation was logged")
    short = with_flags(long, eval_batches=2)
    library = faults(program)
    finish(start(program, [*short, "--resume"], LD_PRELOAD=str(library), FAULT_IN="long.jsonl", FAULT_DO="term",
                 FAULT_AT="3"))  # after the line of step 1, before its evaluation
    expect([line for line in program.log("long.jsonl") if "val_loss" in line and line["step"] == 1] == [], "evaluated")
    finish(start(program, [*short, "--resume"]))
    lines = [(line["step"], "val_loss" in line) for line in program.log("long.jsonl")]
    expect(lines == [(0, True), (1, False), (1, True), (2, False), (2, True)], lines)


# ---- retention -----------------------------------------------------------------------------


def test_keep_and_milestones(program):
    arguments = [*RUN, "--checkpoint-every", 1, "--keep-checkpoints", 2, "--milestone-every", 3]
    ours = program.folder / "ckpts"
    finish(start(program, [*arguments, "--steps", 10, "--stop-after", 8]))
    expect(names(ours) == ["log.jsonl", "step_000003", "step_000006", "step_000007", "step_000008"], names(ours))
    # Only complete checkpoints of this run are counted and removed. None of the following is one.
    shutil.copytree(ours / "step_000003", ours / "best")
    shutil.copytree(ours / "step_000003", ours / "step_000005")
    shutil.copytree(ours / "step_000007", ours / "step_000004")
    (ours / "step_000004/config.json").unlink()
    other = [*TINY, *QUIET, "--out", "other", "--seed", 5, "--steps", 1]
    finish(start(program, other))
    shutil.move(program.folder / "other/step_000001", ours / "step_000001")
    (ours / "step_000008/optimizer.safetensors").write_bytes(b"torn")
    messages = finish(start(program, [*arguments, "--steps", 10, "--resume", "--stop-after", 2]))
    expect("optimizer.safetensors has 4 bytes" in messages and "resume: from ckpts/step_000007" in messages, messages)
    expect(names(ours) == ["best", "log.jsonl", "step_000001", "step_000003", "step_000004", "step_000005",
                           "step_000006", "step_000008", "step_000009"], names(ours))
    program.fails("--milestone-every", 2, "--out", "x", says=["--milestone-every", "--keep-checkpoints"], code=2)
    program.fails("--keep-checkpoints", 2, says=["--keep-checkpoints", "--out"], code=2)


def test_milestones_are_saved_between_checkpoints(program):
    finish(start(program, [*RUN, "--steps", 7, "--keep-checkpoints", 1, "--checkpoint-every", 2, "--milestone-every", 5]))
    expect(names(program.folder / "ckpts") == ["log.jsonl", "step_000005", "step_000007"], "5 is no milestone")


if __name__ == "__main__":
    # A shell's background jobs ignore SIGINT, and child processes would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(run_program_tests(globals(), "train_gpt2"))
