#!/usr/bin/env python3
"""Tests train_gpt2 --recompute and --offload from the command line: the same results in less memory, files that
vanish, signals, and errors.

    python3 test/test_offload_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does.
"""
import array
import filecmp
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

from runner import Skip, expect
from stored_tensors import same_state
from test_checkpoint_programs import finish, start, wait_for
from test_programs import run_program_tests

QUIET = ["--eval-every", 0, "--sample-every", 0, "--peak-tflops", 1]
SMALL = ["--train", "text.txt", "--layers", 3, "--heads", 2, "--channels", 32, "--context", 32, "--batch-size", 2,
         "--grad-accum", 2, "--dropout", 0.1, "--dtype", "bf16", "--stochastic-rounding", *QUIET]
KINDS = ("optimizer", "gradients", "parameters", "activations")


def everything_to(place):
    return ["--offload", ",".join(f"{kind}={place}" for kind in KINDS)]


def steps_of(path):
    return [line for line in map(json.loads, path.read_text().splitlines()) if "loss" in line]


def train(program, name, *arguments):
    """Trains and returns the steps of the log."""
    program.run("--steps", 4, *SMALL, "--out", name, "--log", f"{name}.jsonl", *arguments)
    return steps_of(program.folder / f"{name}.jsonl")


def test_less_memory_gives_the_same_results(program):
    plain = train(program, "plain")
    runs = {"selective": ["--recompute", "selective"], "full": ["--recompute", "full", "--recompute-blocks", 2],
            "host": everything_to("host"), "disk": [*everything_to("scratch"), "--recompute", "full"],
            "both": ["--offload", "optimizer=scratch,activations"],
            "on_cpu": ["--offload", "optimizer", "--optimizer-on", "cpu"],
            "all_on_cpu": [*everything_to("host"), "--optimizer-on", "cpu", "--recompute", "full"]}
    for name, arguments in runs.items():
        steps = train(program, name, *arguments)
        expect([step["loss"] for step in steps] == [step["loss"] for step in plain], f"{name}: other losses")
        expect(same_state(program.folder / name / "step_000004", program.folder / "plain/step_000004"),
               f"{name}: other weights or moments")
        moved = {key for key in steps[-1] if key.startswith("offload_bytes")}
        places = {"disk": ["disk"], "both": ["disk", "host"]}.get(name, ["host"] if "--offload" in arguments else [])
        expect(moved == {f"offload_bytes_{way}_{place}" for place in places for way in ("from", "to")}, moved)
        parts = ("fwd_ms", "bwd_ms", "recompute_ms", "offload_ms", "comm_ms", "bubble_ms", "optimizer_ms", "data_ms",
                 "other_ms")
        total = sum(steps[-1][part] for part in parts)
        expect(abs(total - steps[-1]["step_ms"]) < 1e-6 * total, f"{name}: the parts of a step are {total} ms")
        expect((steps[-1]["recompute_ms"] > 0) == ("--recompute" in arguments), steps[-1])
    expect(not any((program.folder / "scratch").iterdir()), "files are left in the directory")


def test_the_bytes_of_a_step_are_those_of_the_plan(program):
    arguments = [*SMALL, *everything_to("scratch")]
    plan = program.run("--steps", 4, *arguments, "--dry-run").stdout
    steps = train(program, "counted", *everything_to("scratch"))
    for way in ("from", "to"):
        planned = int(re.search(rf"  {way} disk: (\d+) bytes", plan)[1])
        expect(all(step[f"offload_bytes_{way}_disk"] == planned for step in steps[1:]), f"{way}: not {planned}")


def test_killed_runs_leave_nothing_in_the_directory(program):
    arguments = [*SMALL, *everything_to("scratch"), "--steps", 100000]
    order = random.Random(5)
    for _ in range(20):
        process = start(program, arguments)
        wait_for(process, "memory: ")
        time.sleep(0.2 * order.random())
        process.kill()
        process.communicate()
        expect(not any((program.folder / "scratch").iterdir()), "a killed run left files")


def test_a_signal_saves_and_the_run_resumes_without_recompute_and_offload(program):
    arguments = ["--steps", 40, *SMALL]
    program.run(*arguments, "--out", "whole")
    process = start(program, [*arguments, "--out", "stopped", *everything_to("scratch"), "--recompute", "full",
                              "--log", "stopped.jsonl"])
    log = program.folder / "stopped.jsonl"
    while process.poll() is None and not (log.exists() and '"step":2,' in log.read_text()):
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    finish(process)
    program.run("--out", "stopped", "--resume", "--offload", "none", "--recompute", "none")
    expect(same_state(program.folder / "stopped/step_000040", program.folder / "whole/step_000040"), "another model")


def limited(program, mebibytes, arguments):
    """Runs with a limit of the address space. Returns (exit code, messages)."""
    done = subprocess.run([str(program.binary), *map(str, arguments)], cwd=program.folder, text=True,
                          capture_output=True, preexec_fn=lambda: resource.setrlimit(
                              resource.RLIMIT_AS, (mebibytes << 20, mebibytes << 20)))
    return done.returncode, done.stderr


def test_a_model_that_does_not_fit_trains_with_its_state_on_a_disk(program):
    if program.binary.parent.name == "cuda":
        raise Skip("a limit of the address space does not limit the memory of a GPU")
    model = ["--train", "text.txt", "--layers", 8, "--heads", 16, "--channels", 1024, "--context", 64, "--batch-size", 1,
             "--steps", 2, *QUIET]
    code, messages = limited(program, 1600, [*model, "--log", "never.jsonl"])
    expect(code == 1 and "of device memory" in messages, messages)
    offload = ",".join(f"{kind}=scratch" for kind in KINDS)
    code, messages = limited(program, 1600, [*model, "--offload", offload, "--log", "small.jsonl"])
    expect(code == 0, messages)
    program.run(*model, "--log", "large.jsonl")
    losses = [[step["loss"] for step in steps_of(program.folder / name)] for name in ("small.jsonl", "large.jsonl")]
    expect(losses[0] == losses[1], losses)


def planned_mebibytes(messages):
    """The memory of a run in the device and in the host, as it reports it."""
    total = re.search(r"in all ([\d.]+) MiB(?: on the device)?(?:, ([\d.]+) MiB host)?", messages)
    return float(total[1]) + float(total[2] or 0)


def measured(program, mebibytes, arguments):
    """Runs with a limit of the address space. Returns the messages and the peak memory in MiB."""
    with open(program.folder / "messages", "w+", encoding="utf-8") as messages:
        process = subprocess.Popen([str(program.binary), *map(str, arguments)], cwd=program.folder, stderr=messages,
                                   preexec_fn=lambda: resource.setrlimit(
                                       resource.RLIMIT_AS, (mebibytes << 20, mebibytes << 20)))
        _, status, usage = os.wait4(process.pid, 0)
        messages.seek(0)
        text = messages.read()
    expect(os.waitstatus_to_exitcode(status) == 0, text[-2000:])
    return text, usage.ru_maxrss / 1024


def test_774_million_parameters_train_within_3_gib(program):
    """In fp32, which takes 12.4 GB; with a save after two steps and a resumed third one."""
    if "LLMC_LONG" not in os.environ:
        raise Skip("only with LLMC_LONG=1")
    free_memory = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if program.binary.parent.name == "cuda" or free_memory < 14e9 or shutil.disk_usage(program.folder).free < 45e9:
        raise Skip("needs the host build, 14 GB of memory and 45 GB of disk")
    ids = random.Random(3)
    tokens = array.array("H", (ids.randrange(50257) for _ in range(20000)))
    header = array.array("i", [20240520, 1, len(tokens)] + [0] * 253)
    (program.folder / "tokens.bin").write_bytes(header.tobytes() + tokens.tobytes())
    model = ["--train", "tokens.bin", "--model", "d36", "--batch-size", 1, "--seq-len", 64, "--steps", 3, *QUIET]
    offload = everything_to("scratch")
    for arguments in ([*model, *offload, "--out", "small", "--stop-after", 2, "--log", "small.jsonl"],
                      ["--out", "small", "--resume", *offload, "--log", "small.jsonl"]):
        messages, peak = measured(program, 3072, arguments)
        planned = planned_mebibytes(messages)
        print(f"# peak memory {peak:.0f} MiB, planned {planned:.0f} MiB")
        expect(peak <= planned + 300e6 / 2 ** 20, f"{peak:.0f} MiB, planned {planned:.0f} MiB")
    program.run(*model, "--out", "large", "--log", "large.jsonl")
    losses = [[step["loss"] for step in steps_of(program.folder / name)] for name in ("small.jsonl", "large.jsonl")]
    expect(losses[0] == losses[1], losses)
    for name in ("model.safetensors", "optimizer.safetensors"):
        small, large = (program.folder / run / "step_000003" / name for run in ("small", "large"))
        expect(filecmp.cmp(small, large, shallow=False), f"{name} differs")


def test_errors_name_the_directory(program):
    (program.folder / "file").write_text("")
    program.fails(*SMALL, "--steps", 1, "--offload", "optimizer=file", phrases=["file"])
    for offload, phrase in {"moments": "did you mean optimizer?", "optimizer=": "has no place after =",
                            "optimizer,optimizer=host": "gives optimizer two places",
                            "none,optimizer": "none stands next to kinds"}.items():
        program.fails(*SMALL, "--steps", 1, "--offload", offload, phrases=[phrase], code=2)
    for offload, phrase in {"none": "it is on the device", "optimizer=scratch": "it is in a directory"}.items():
        program.fails(*SMALL, "--steps", 1, "--offload", offload, "--optimizer-on", "cpu", code=2,
                      phrases=["--optimizer-on cpu", "host memory", phrase, "add optimizer to --offload"])


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
