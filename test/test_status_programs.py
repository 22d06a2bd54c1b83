#!/usr/bin/env python3
"""Tests OUT/status.json and --stop-after-minutes of train_gpt2, with which a scheduler stops and requeues a run.

    python3 test/test_status_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does.
"""
import json
import os
import re
import signal
import subprocess
import sys
import time

from runner import expect
from test_checkpoint_programs import QUIET, TINY, build_fault_library, finish, start, wait_for, with_flags
from test_programs import run_program_tests, same_state
from test_rank_programs import RUN, SECONDS_TO_END, environment, mpirun, require_mpi

ENDLESS = [*TINY, *QUIET, "--steps", 10 ** 9]
SOON = ["--stop-after-minutes", 1e-6]  # over before the first step
KEYS = ["status", "step", "steps", "seconds", "time", "exit_code", "checkpoint", "reason"]


def status(program, out="run"):
    value = json.loads((program.folder / out / "status.json").read_text())
    expect(list(value) == KEYS, value)
    expect(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", value["time"]), value)
    expect(value["seconds"] >= 0, value)
    return value


def expect_status(program, out="run", **expected):
    value = status(program, out)
    expect({key: value[key] for key in expected} == expected, f"{value}, not {expected}")
    return value


def expect_stopped(program, out, reason):
    """The status of a run that stopped with everything saved. Returns its step."""
    step = status(program, out)["step"]
    expect_status(program, out, status="stopped", reason=reason, exit_code=0, checkpoint=f"{out}/step_{step:06}")
    expect((program.folder / f"{out}/step_{step:06}/manifest.json").exists(), f"step {step} is not saved")
    return step


# ---- status.json -----------------------------------------------------------------------------


def test_a_finished_run(program):
    program.train("--steps", 2, "--out", "run")
    expect_status(program, status="finished", step=2, steps=2, exit_code=0, checkpoint="run/step_000002", reason=None)
    expect(not list((program.folder / "run").glob("*.tmp-*")), "temporary files are left")


def test_a_run_that_is_running_then_stopped_by_each_signal_then_resumed(program):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        out = number.name
        process = start(program, [*ENDLESS, "--out", out])
        wait_for(process, "step 1/")
        expect_status(program, out, status="running", step=0, checkpoint=None, exit_code=None, reason=None)
        process.send_signal(number)
        messages = finish(process)
        step = expect_stopped(program, out, number.name)
        expect(f"interrupted by {number.name} after step {step}: saved" in messages, messages)
    program.run("--out", "SIGTERM", "--resume", "--steps", expect_stopped(program, "SIGTERM", "SIGTERM") + 1)
    expect_status(program, "SIGTERM", status="finished")


def test_a_run_that_is_killed_stays_at_running_and_shows_where_it_began(program):
    program.train("--steps", 4, "--stop-after", 2, "--out", "run")
    expect_status(program, status="stopped", step=2, steps=4, reason="--stop-after 2", exit_code=0)
    process = start(program, ["--out", "run", "--resume", "--steps", 10 ** 9])
    wait_for(process, "step 3/")
    process.kill()
    process.communicate()
    expect_status(program, status="running", step=2, checkpoint="run/step_000002")
    (program.folder / "run/status.json.tmp-00ff00ff").write_text("a killed run leaves this")
    program.run("--out", "run", "--resume", "--steps", 4)
    expect_status(program, status="finished", step=4)
    expect(not list((program.folder / "run").glob("status.json.tmp-*")), "the temporary file is left")


def test_a_signal_before_the_first_step_and_a_second_signal(program):
    (program.folder / "long.txt").write_text("the quick brown fox\n" * 1_000_000)
    process = start(program, [*TINY, "--peak-tflops", 1, "--val", "long.txt", "--eval-batches", 0, "--steps", 2,
                              "--sample-every", 0, "--out", "before"])
    wait_for(process, "MFU:")  # the validation before step 1 follows
    process.send_signal(signal.SIGTERM)
    finish(process, code=-signal.SIGTERM)
    expect_status(program, "before", status="stopped", step=0, exit_code=143, checkpoint=None,
                  reason="SIGTERM ended the process at once")
    process = start(program, [*ENDLESS, "--grad-accum", 10 ** 6, "--out", "second"])  # one step takes minutes
    wait_for(process, "MFU:")
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    wait_for(process, "finishing step 1")
    expect_status(program, "second", status="running")
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    finish(process, code=-signal.SIGINT)
    expect_status(program, "second", status="stopped", step=0, exit_code=130, checkpoint=None)


def test_a_failed_run_has_the_error(program):
    program.train("--steps", 9, "--lr", 1e30, "--grad-clip", 0, "--on-nan", "skip", "--max-skipped", 1, "--out", "run", code=1)
    value = expect_status(program, status="failed", exit_code=1)
    expect("updates in a row were skipped" in value["reason"] and "hint: " in value["reason"], value)
    expect(0 < value["step"] < 9, value)


def test_a_full_disk(program):
    """The status of a run that cannot write any more; then one that cannot write its last status."""
    library = build_fault_library(program)
    run = [*TINY, *QUIET, "--steps", 2, "--out", "run"]
    faults = {"LD_PRELOAD": str(library), "FAULT_DO": "full"}
    finish(start(program, run, FAULT_IN="step_", FAULT_AT="1", **faults), code=1)
    value = expect_status(program, status="failed", exit_code=1, step=2)
    expect("No space left on device" in value["reason"], value)
    finish(start(program, [*run, "--resume"], FAULT_LIST=str(program.folder / "calls"), FAULT_IN="status.json", **faults))
    calls = len((program.folder / "calls").read_text().splitlines())
    finish(start(program, with_flags([*run, "--resume"], steps=3), FAULT_IN="status.json",
                 FAULT_AT=str(calls // 2 + 1), **faults), code=1)
    expect_status(program, status="running", step=2)
    expect((program.folder / "run/step_000003").exists(), "the run did not save")


def test_files_of_others_are_not_overwritten(program):
    process = start(program, [*ENDLESS, "--out", "run"])
    wait_for(process, "step 1/")
    before = (program.folder / "run/status.json").read_bytes()
    program.fails(*ENDLESS, "--out", "run", phrases=["another run is writing into --out run"])
    expect((program.folder / "run/status.json").read_bytes() == before, "another run's status was overwritten")
    process.send_signal(signal.SIGTERM)
    finish(process)
    before = (program.folder / "run/status.json").read_bytes()
    program.fails(*ENDLESS, "--out", "run", phrases=["contains checkpoints of another run"])
    program.fails("--out", "run", "--resume", "--lr", "-1", phrases=["--lr"], code=2)
    program.fails("--out", "run", "--resume", "--layers", 2, phrases=["--layers"], code=2)
    expect((program.folder / "run/status.json").read_bytes() == before, "a run that did not start wrote a status")
    (program.folder / "other").mkdir()
    (program.folder / "other/status.json").write_text('{"mine": 1}')
    program.fails(*ENDLESS, "--out", "other", phrases=["other/status.json is not the status of a run", "move it away"])
    expect((program.folder / "other/status.json").read_text() == '{"mine": 1}', "the file was overwritten")


# ---- --stop-after-minutes --------------------------------------------------------------------


def test_a_series_of_runs_that_time_stops_equals_the_whole_run(program):
    run = [*TINY, *QUIET, "--steps", 4, "--dropout", 0.1]
    program.run(*run, "--out", "whole", "--log", "whole.jsonl")
    flags = [*run, "--out", "parts", "--log", "parts.jsonl", "--resume", *SOON]
    for step in range(1, 4):
        messages = program.run(*flags).stderr
        expect(f"interrupted by --stop-after-minutes 1e-06 after step {step}: saved parts/step_{step:06}, --resume "
               "continues" in messages and f"stopped: step {step} of 4" in messages, messages)
        expect(expect_stopped(program, "parts", "--stop-after-minutes 1e-06") == step, f"not step {step}")
    program.run(*flags)  # the last step
    program.run(*flags[:-2])
    expect_status(program, "parts", status="finished", step=4)
    losses = [[line["loss"] for line in program.log(name) if "loss" in line] for name in ("whole.jsonl", "parts.jsonl")]
    expect(losses[0] == losses[1] and len(losses[0]) == 4, losses)
    expect(same_state(program.folder / "whole/step_000004", program.folder / "parts/step_000004"), "another model")


def test_the_time_is_that_of_the_process(program):
    begin = time.monotonic()
    program.run(*ENDLESS, "--out", "run", "--stop-after-minutes", 2 / 60)
    expect(time.monotonic() - begin >= 1.9, "the run ended early")
    value = expect_status(program, status="stopped", reason="--stop-after-minutes 0.0333333")
    expect(value["seconds"] >= 1.9 and value["step"] > 10, value)


def test_time_ends_a_validation_but_not_the_step(program):
    (program.folder / "long.txt").write_text("the quick brown fox\n" * 1_000_000)
    run = [*TINY, "--peak-tflops", 1, "--val", "long.txt", "--eval-batches", 0, "--sample-every", 0, "--out", "run"]
    program.run(*run, "--steps", 3, "--eval-every", 0, "--stop-after", 2)
    begin = time.monotonic()
    messages = program.run("--out", "run", "--resume", "--eval-every", 3, "--stop-after-minutes", 5 / 60).stderr
    took = time.monotonic() - begin
    expect("after step 3: saved run/step_000003" in messages and "step 3: validation loss" not in messages, messages)
    expect(4.9 < took < 60, f"the validation of minutes ended after {took} s")
    expect_stopped(program, "run", "--stop-after-minutes 0.0833333")  # the validation is not done


def make_model(program):
    """A model of one step; its directory."""
    program.run(*TINY, *QUIET, "--steps", 1, "--out", "model")
    return "model"


def test_an_evaluation_without_training(program):
    (program.folder / "long.txt").write_text("the quick brown fox\n" * 1_000_000)
    program.fails("--init-from", make_model(program), "--val", "long.txt", "--steps", 0, *SOON,
                  phrases=["interrupted by --stop-after-minutes 1e-06: the evaluation is not complete"])
    for value in ("-1", "nan", "inf", "x", ""):
        program.fails(*ENDLESS, "--stop-after-minutes", value, phrases=["--stop-after-minutes"], code=2)
    result = program.train("--steps", 2, "--stop-after-minutes", 0)
    expect("done: 2 steps" in result.stderr, result.stderr)


# ---- several ranks ---------------------------------------------------------------------------


def run_rank(program, rank, setting, *arguments, ranks=2):
    """Runs ranks of which `rank` has variables of the environment in addition."""
    script = f'if [ "$OMPI_COMM_WORLD_RANK" = {rank} ]; then export {setting}; fi; exec "$@"'
    return subprocess.run([str(word) for word in [RUN, "-np", ranks, "bash", "-c", script, "x", program.binary, *arguments]],
                          cwd=program.folder, text=True, capture_output=True, timeout=SECONDS_TO_END, check=False,
                          env=environment())


def test_ranks_stop_by_the_clock_of_rank_0_and_print_their_machines(program):
    run = [*TINY, *QUIET, "--steps", 4, "--out", "run", "--resume", *SOON]
    messages = mpirun(program, 3, *run)[1]
    host = os.uname().nodename
    expect(re.search(rf"^machine {host}: ranks 0-2, .+\nmesh: 3 data ranks, --zero 1 in shard groups of 3\n", messages,
                     re.M), messages)
    expect(messages.count("machine ") == 1, messages)
    expect(expect_stopped(program, "run", "--stop-after-minutes 1e-06") == 1, "not one step")
    messages = mpirun(program, 2, *run, "--zero", 0)[1]
    expect("\nmesh: 2 data ranks\n" in messages, messages)
    expect(expect_stopped(program, "run", "--stop-after-minutes 1e-06") == 2, "not one step")
    expect("machine " not in program.run(*run).stderr, "one rank printed machines")


def test_a_signal_to_ranks(program):
    require_mpi(program)
    process = subprocess.Popen([str(word) for word in [RUN, "-np", 2, program.binary, *ENDLESS, "--out", "run"]],
                               cwd=program.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=environment())
    wait_for(process, "step 1/")
    process.send_signal(signal.SIGTERM)
    finish(process)
    expect_stopped(program, "run", "SIGTERM")


def test_an_error_of_another_rank_is_the_reason(program):
    require_mpi(program)
    library = build_fault_library(program)
    (program.folder / "scratch").mkdir()
    faults = f"LD_PRELOAD={library} FAULT_IN=scratch FAULT_DO=EIO FAULT_CALLS=pread FAULT_AT=20"
    result = run_rank(program, 1, faults, *ENDLESS, "--out", "run", "--offload", "optimizer=scratch")
    expect(result.returncode == 1 and result.stderr.count("train_gpt2: rank 1: ") == 1, result)
    value = expect_status(program, status="failed", exit_code=1, checkpoint=None)
    expect(value["reason"].startswith("rank 1: ") and "Input/output error" in value["reason"], value)


def test_a_killed_rank_is_named(program):
    require_mpi(program)
    library = build_fault_library(program)
    (program.folder / "scratch").mkdir()
    faults = f"LD_PRELOAD={library} FAULT_IN=scratch FAULT_DO=kill FAULT_CALLS=pread FAULT_AT=20"
    result = run_rank(program, 1, faults, *ENDLESS, "--out", "run", "--offload", "optimizer=scratch")
    expect(result.returncode != 0, result)
    expect("rank 1 (" in expect_status(program, status="failed", exit_code=1)["reason"], result)


def test_an_error_of_all_ranks(program):
    messages = mpirun(program, 2, *ENDLESS, "--lr", 1e30, "--grad-clip", 0, "--on-nan", "skip", "--max-skipped", 1, "--out", "run", code=1)[1]
    expect(messages.count("updates in a row were skipped") == 1, messages)
    expect("updates in a row were skipped" in expect_status(program, status="failed", exit_code=1)["reason"], messages)


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
