#!/usr/bin/env python3
"""Tests that stop signals end a run of train_gpt2 with everything saved, and what a run prints at its end.

    python3 test/test_stop_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does. STOP_RUNS=200 in the environment stops more runs at random moments than
the default of 12.
"""
import os
import random
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from runner import expect
from stored_tensors import same_state
from test_checkpoint_programs import QUIET, TINY, finish, start, wait_for
from test_programs import run_program_tests

# Validation, samples and saves take most of the time of this run, so that random moments hit them.
STEPS = 40
BUSY = [*TINY, "--val", "val.txt", "--peak-tflops", 1, "--steps", STEPS, "--grad-accum", 4, "--eval-every", 5,
        "--eval-batches", 0, "--sample-every", 4, "--sample-length", 7, "--checkpoint-every", 3]
KINDS = ["process", "group", "timeout"]
SIGNALS = [signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]  # SIGUSR2 ends nothing
ENDLESS = [*TINY, *QUIET, "--steps", 10 ** 9, "--out", "endless"]


def losses(program, name):
    return [(line["step"], line.get("loss"), line.get("val_loss"), line.get("grad_norm"), line.get("lr"))
            for line in program.log(name)]


def start_in_group(program, arguments, limit=None):
    """Starts a run in a process group of its own; with `limit`, through `timeout`, which sends SIGTERM to the
    process and to its group after that many seconds.
    """
    through = ["timeout", "--preserve-status", f"{limit:.3f}"] if limit else []
    return subprocess.Popen([*through, str(program.binary), *map(str, arguments)], cwd=program.folder, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})


def stop_and_resume(program, number, seconds):
    """Stops run `number` at a random moment of about `seconds`, resumes it and compares it with the undisturbed
    run. Returns (kind, number of signals, what the run was doing); the last is empty if the run had ended, and "not begun" before it.
    """
    draw = random.Random(number)
    kind = KINDS[number % len(KINDS)]
    signals = [draw.choice(SIGNALS) for _ in range(draw.randint(1, 3))]
    gaps = [draw.choice([0, 0.001, draw.uniform(0, 0.05)]) for _ in signals]
    delay = draw.uniform(0.02, 0.7) * seconds  # a machine that is busy now may be faster later
    name = f"stopped-{number}"
    flags = [*BUSY, "--out", name, "--log", f"{name}.jsonl"]
    process = start_in_group(program, flags, program.started + delay if kind == "timeout" else None)
    if kind != "timeout":
        line = wait_for(process, "MFU:")
        time.sleep(delay)
        for number_of_signal, gap in zip(signals, gaps):
            if process.poll() is None:
                (os.killpg if kind == "group" else os.kill)(process.pid, number_of_signal)
            time.sleep(gap)
        messages = line + process.communicate(timeout=120)[1]
    else:
        messages = process.communicate(timeout=120)[1]
    began = "interrupted by" not in messages or re.search(r"interrupted by \w+ after step", messages)
    killed = {-signal.SIGTERM, 128 + signal.SIGTERM} if kind == "timeout" else {-number for number in signals}
    expect(process.returncode == 0 or not began and process.returncode in killed,
           f"run {number}, {kind}, {signals}, {gaps}: {process.returncode}: {messages}")
    answer = re.search(r"^(finishing|stopping|ending).*; send the signal again", messages, re.M)
    if began and "interrupted by" in messages:
        expect(answer, f"run {number} did not answer: {messages}")
        expect(re.search(r"saved [^ ]*step_", messages), f"run {number}: {messages}")
    finish(start(program, [*flags, "--resume"]))
    expect(losses(program, f"{name}.jsonl") == losses(program, "whole.jsonl"), f"run {number}: other losses")
    expect(same_state(*(program.folder / run / f"step_{STEPS:06}" for run in (name, "whole"))),
           f"run {number}: other weights or moments")
    subprocess.run(["rm", "-r", program.folder / name], check=True)
    return kind, len(signals), answer[0].split(",")[0].split(";")[0] if answer else "" if began else "not begun"


def test_stop_signals_at_random_moments_lose_nothing(program):
    (program.folder / "val.txt").write_text("the quick brown fox\n" * 100)
    begin = time.monotonic()
    process = start(program, [*BUSY, "--out", "whole", "--log", "whole.jsonl"])
    wait_for(process, "MFU:")
    program.started = time.monotonic() - begin  # seconds until the run begins
    finish(process)
    seconds = time.monotonic() - begin - program.started
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda number: stop_and_resume(program, number, seconds),
                             range(int(os.environ.get("STOP_RUNS", 12)))))
    moments = {}
    for kind, count, moment in runs:
        key = re.sub(r" (before|after)? ?step \d+| \d+", "", moment) or "ended before the signal"
        moments[key] = moments.get(key, 0) + 1
    if "STOP_RUNS" in os.environ:
        stopped = sum(moment not in ("", "not begun") for _, _, moment in runs)
        print(f"{len(runs)} runs, {stopped} of them stopped: {moments}")


def test_a_second_signal_after_three_seconds_ends_the_run_at_once(program):
    (program.folder / "long.txt").write_text("the quick brown fox\n" * 1000)
    slow = [*ENDLESS, "--grad-accum", 10 ** 6]  # one step takes minutes
    process = start(program, slow)
    wait_for(process, "MFU:")
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    expect(wait_for(process, "finishing").startswith("finishing step 1, then saving; send the signal again to end "
                                                     "without saving"), "another answer")
    time.sleep(3)
    process.send_signal(signal.SIGTERM)
    messages = finish(process, code=-signal.SIGTERM)
    expect("ended at once by a second SIGTERM: nothing was saved\n" in messages, messages)


def test_the_end_of_the_reader_of_stderr_does_not_end_the_run(program):
    process = start(program, ENDLESS)
    wait_for(process, "step 1/")
    process.stderr.close()
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    expect(process.wait(timeout=60) == 0, f"exit code {process.returncode}")
    expect(list((program.folder / "endless").glob("step_*")), "the run did not save")


def test_an_interrupted_evaluation_is_an_error(program):
    (program.folder / "long.txt").write_text("the quick brown fox\n" * 1_000_000)
    program.train("--steps", 1, "--out", "model", "--eval-every", 0, "--sample-every", 0)
    process = start(program, ["--init-from", "model", "--val", "long.txt", "--steps", 0, "--batch-size", 1])
    wait_for(process, "memory:")
    wait_for(process, "validation: ")  # its progress, after two seconds
    process.send_signal(signal.SIGTERM)
    messages = finish(process, code=1)
    expect("stopping the validation; send the signal again to end at once" in messages, messages)
    expect("interrupted by SIGTERM: the evaluation is not complete" in messages, messages)


def test_a_run_ends_with_a_summary(program):
    messages = program.train("--steps", 4, "--eval-every", 2, "--out", "run", "--stop-after", 2).stderr
    expect(re.search(r"^stopped: step 2 of 4, 2 steps in \d+ s, \d+ tok/s\nvalidation loss: [\d.]+ after step 2, best "
                     r"[\d.]+ after step 2\nsaved: run/step_000002\ntry: ./train_gpt2 --out run --resume$", messages,
                     re.M), messages)
    messages = program.run("--out", "run", "--resume").stderr
    expect(re.search(r"^done: 2 steps in .*\nvalidation loss: .* after step 4, best .*\nsaved: run/step_000004\n"
                     r'try: ./infer_gpt2 -m run -p "Once upon a time"$', messages, re.M), messages)


def test_quiet_leaves_results_and_errors(program):
    flags = ["--steps", 2, "--out", "quiet", "--quiet", "--eval", "perplexity:text.txt", "--eval-every", 1]
    result = program.train(*flags)
    expect(result.stderr == "" and "perplexity" in result.stdout, f"{result.stderr}\n{result.stdout}")
    result = program.train(*flags, code=1)
    expect("quiet" in result.stderr, "an error was not printed")
    infer = program.binary.parent / "infer_gpt2"
    result = subprocess.run([infer, "-m", program.folder / "quiet", "-p", "the", "--quiet", "-n", "3"],
                            capture_output=True, check=True)
    expect(result.stderr == b"" and result.stdout, result)


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
