#!/usr/bin/env python3
"""Tests that signals corrupt nothing and lose nothing, in all programs and all phases of their work.

    python3 test/test_signal_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does. From the environment: STOP_RUNS, the number of runs that are stopped at
random moments with one rank, and with two ranks (default 2); ALARM_STEPS, the steps of a run with a signal handler every
millisecond (default 25).
"""
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from runner import Skip, expect
from stored_tensors import same_state
from test_checkpoint_programs import QUIET, TINY, build_library, finish, names, start, wait_for, with_flags
from test_programs import run_program_tests
from test_rank_programs import launch, mpirun, require_mpi

STOP_SIGNALS = [signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2]
RUN_SIGNALS = STOP_SIGNALS[:-1]  # of train_gpt2, for which SIGUSR2 ends nothing
ENDLESS = [*TINY, *QUIET, "--steps", 10 ** 9]
# The products of these sizes (768 to 3,072 channels) are computed by oneDNN's kernels for packed matrices, which use
# the stack pointer as a pointer to data.
PACKED = [*with_flags(TINY, heads=12, channels=768, context=16, batch_size=4), *QUIET]


def other_program(program, name):
    return str(program.binary.parent / name)


def launch_program(program, name, *arguments):
    """Starts a program in the folder of the test, with a thread that computes also where there is only one core."""
    return subprocess.Popen([other_program(program, name), *map(str, arguments)], cwd=program.folder, text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env={**os.environ, "LLMC_HOST_THREADS": "2"})


def make_model(program, **changes):
    """Trains a tiny model for one step. Returns its directory."""
    flags = with_flags([*TINY, *QUIET], **{"context": 32, "steps": 1, "out": "model", **changes})
    finish(start(program, flags))
    return "model/step_000001"


def blocked_masks(pid):
    """The masks of blocked signals of all threads of a process."""
    masks = []
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        line, = (line for line in status.read_text().splitlines() if line.startswith("SigBlk:"))
        masks.append(int(line.split()[1], 16))
    return masks


SYNCHRONOUS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS, signal.SIGABRT,
               signal.SIGPIPE}
# 32 and 33 belong to the C library; nothing can block SIGKILL and SIGSTOP.
ASYNCHRONOUS = sum(1 << (number - 1) for number in range(1, 65)
                   if number not in SYNCHRONOUS | {signal.SIGKILL, signal.SIGSTOP, 32, 33})


def expect_one_open_thread(pid, place):
    masks = blocked_masks(pid)
    expect(len(masks) >= 3, f"{place}: {len(masks)} threads")
    open_threads = [mask for mask in masks if mask & ASYNCHRONOUS != ASYNCHRONOUS]
    expect(len(open_threads) == 1, f"{place}: {len(open_threads)} of {len(masks)} threads receive signals: {list(map(hex, masks))}")


def processes_of(session, name):
    """The processes of this name in a session."""
    processes = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue  # it has ended
        if f"({name})" in text and int(text.rsplit(")", 1)[1].split()[3]) == session:
            processes.append(int(stat.parent.name))
    return processes


# ---- which threads receive signals -----------------------------------------------------------


def test_all_threads_but_one_block_asynchronous_signals(program):
    process = start(program, ENDLESS)
    wait_for(process, "step 1/")
    expect_one_open_thread(process.pid, "train_gpt2")
    process.send_signal(signal.SIGTERM)
    finish(process)

    writer = launch_program(program, "infer_gpt2", "-m", make_model(program), "-p", "a", "-n", 10 ** 8, "--slide",
                            "--ignore-eos")
    writer.stdout.read(5)
    expect_one_open_thread(writer.pid, "infer_gpt2")
    writer.send_signal(signal.SIGINT)
    finish(writer)


def test_all_threads_of_ranks_but_one_block_asynchronous_signals(program):
    require_mpi(program)
    process = launch(program, 2, *ENDLESS)
    wait_for(process, "step 1/")
    ranks = processes_of(process.pid, "train_gpt2")
    expect(len(ranks) == 2, ranks)
    for rank in ranks:
        expect_one_open_thread(rank, "a rank")
    process.send_signal(signal.SIGTERM)
    finish(process)


def test_a_handler_every_millisecond_changes_no_bit(program):
    library = build_library(program, "alarm_signals")
    steps = int(os.environ.get("ALARM_STEPS", 25))
    for name, environment in (("plain", {}), ("alarmed", {"LD_PRELOAD": str(library)})):
        messages = finish(start(program, [*PACKED, "--steps", steps, "--out", name], **environment))
        expect("no alarm arrived" not in messages, messages)
    expect(same_state(*(program.folder / name / f"step_{steps:06}" for name in ("plain", "alarmed"))),
           "other weights or moments")


# ---- stops at random moments -----------------------------------------------------------------

STOP_STEPS = 10


def stop_and_resume(program, ranks, number):
    """Stops a run at a random moment after its first step, resumes it, and compares it with the undisturbed run. Two busy
    processes disturb it, because corrupted memory showed itself mostly under load.
    """
    draw = random.Random(f"{ranks} {number}")
    flags = [*PACKED, "--steps", STOP_STEPS, "--out", f"stopped-{number}"]
    process = launch(program, ranks, *flags) if ranks > 1 else start(program, flags)
    wait_for(process, "step 1/")
    time.sleep(draw.uniform(0, 1.5))
    if process.poll() is None:
        process.send_signal(draw.choice(RUN_SIGNALS if ranks == 1 else [signal.SIGINT, signal.SIGTERM]))
    finish(process)
    resumed = [*flags, "--resume"]
    if ranks > 1:
        mpirun(program, ranks, *resumed)
    else:
        finish(start(program, resumed))
    last = f"step_{STOP_STEPS:06}"
    expect(same_state(program.folder / f"stopped-{number}" / last, program.folder / f"whole-{ranks}" / last),
           f"run {number} of {ranks} ranks: other weights or moments")
    shutil.rmtree(program.folder / f"stopped-{number}")


def check_random_stops(program, ranks):
    whole = [*PACKED, "--steps", STOP_STEPS, "--out", f"whole-{ranks}"]
    if ranks > 1:
        mpirun(program, ranks, *whole)
    else:
        finish(start(program, whole))
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        for number in range(int(os.environ.get("STOP_RUNS", 2))):
            stop_and_resume(program, ranks, number)
    finally:
        for process in busy:
            process.kill()


def test_stops_at_random_moments_lose_nothing(program):
    check_random_stops(program, 1)


def test_stops_of_two_ranks_at_random_moments_lose_nothing(program):
    require_mpi(program)
    check_random_stops(program, 2)


# ---- phases of the programs ------------------------------------------------------------------


def expect_interrupted(process, number, message, place):
    messages = finish(process, code=-number)
    expect(message in messages, f"{place}: {messages}")
    return messages


def open_for_reader(pipe, process):
    """Opens a pipe for writing as soon as the process has opened the other end."""
    while process.poll() is None:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            time.sleep(0.01)
    raise AssertionError(f"the program ended: {process.communicate()[1]}")


def interrupt_reading(program, name, *arguments, message):
    """Sends each stop signal to a program that waits for the content of `pipe`."""
    pipe = program.folder / "pipe"
    os.mkfifo(pipe)
    for number in RUN_SIGNALS if name == "train_gpt2" else STOP_SIGNALS:
        process = launch_program(program, name, *arguments)
        writer = open_for_reader(pipe, process)
        process.send_signal(number)
        expect_interrupted(process, number, f"{name}: interrupted by {number.name} {message}\n", number.name)
        os.close(writer)
    pipe.unlink()


def test_a_signal_before_the_run_began_ends_it(program):
    interrupt_reading(program, "train_gpt2", *with_flags(ENDLESS, train="pipe"), "--out", "run",
                      message="before the run began")
    expect(not (program.folder / "run").exists(), "the run left files")


def test_every_stop_signal_saves_the_run(program):
    for number in RUN_SIGNALS:
        process = launch_program(program, "train_gpt2", *ENDLESS, "--out", number.name)
        wait_for(process, "step 1/")
        process.send_signal(number)
        messages = finish(process)
        expect(f"interrupted by {number.name} after step " in messages, messages)
        saved, = names(program.folder / number.name)
        expect(f"after step {int(saved[5:])}: saved {number.name}/{saved}, --resume continues" in messages, messages)


def test_every_stop_signal_ends_an_evaluation_with_an_error(program):
    model = make_model(program)
    (program.folder / "long.txt").write_text("the quick brown fox\n" * 1_000_000)
    for number in RUN_SIGNALS:
        process = launch_program(program, "train_gpt2", "--init-from", model, "--val", "long.txt", "--steps", 0,
                                 "--batch-size", 1)
        wait_for(process, "memory:")
        wait_for(process, "validation: ")  # its progress
        process.send_signal(number)
        messages = finish(process, code=1)
        expect(f"interrupted by {number.name}: the evaluation is not complete" in messages, messages)


def test_every_stop_signal_ends_a_text(program):
    model = make_model(program)
    for number in STOP_SIGNALS:
        process = launch_program(program, "infer_gpt2", "-m", model, "-p", "a", "-n", 10 ** 8, "--slide", "--ignore-eos")
        process.stdout.read(5)
        process.send_signal(number)
        expect("cancelled" in finish(process), f"{number.name}: the text was not cancelled")
    interrupt_reading(program, "infer_gpt2", "-m", model, "--prompts", "pipe", message="before the first text")


def test_signals_end_texts_and_then_the_interactive_program(program):
    model = make_model(program)
    process = subprocess.Popen([other_program(program, "infer_gpt2"), "-m", model, "-i", "-n", str(10 ** 8), "--slide",
                                "--ignore-eos"], cwd=program.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, bufsize=0)
    for _ in range(2):
        process.stdin.write(b"a\n")
        process.stdout.read(5)
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    while process.poll() is None:  # at the prompt; a signal that still arrives in the text belongs to it
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    expect(process.returncode == -signal.SIGINT, f"exit code {process.returncode}")
    expect(b"infer_gpt2: interrupted by SIGINT\n" in process.stderr.read(), "no message")


def test_a_signal_in_a_command_leaves_no_result_and_no_files(program):
    model = make_model(program)
    interrupt_reading(program, "infer_gpt2", "perplexity", "pipe", "-m", model, message="in perplexity: it is not complete")
    interrupt_reading(program, "infer_gpt2", "score", "lambada:pipe", "-m", model, message="in score: it is not complete")
    bench = launch_program(program, "infer_gpt2", "bench", "-m", make_model(program, heads=4, channels=256, context=1024, out="wide")
                           .replace("model/", "wide/"))
    while len(blocked_masks(bench.pid)) < 3 and bench.poll() is None:  # its threads compute
        time.sleep(0.01)
    bench.send_signal(signal.SIGHUP)
    expect_interrupted(bench, signal.SIGHUP, "infer_gpt2: interrupted by SIGHUP in bench: it is not complete\n", "bench")

    # While the weights are being written.
    library = build_library(program, "disk_faults")
    environment = {**os.environ, "LD_PRELOAD": str(library), "FAULT_IN": "int8", "FAULT_DO": "term", "FAULT_AT": "8"}
    quantize = subprocess.run([other_program(program, "infer_gpt2"), "quantize", model, "int8", "--quant", "w8"],
                              cwd=program.folder, env=environment, capture_output=True, text=True, check=False)
    expect(quantize.returncode == -signal.SIGTERM, quantize)
    expect("infer_gpt2: interrupted by SIGTERM in quantize: it is not complete\n" in quantize.stderr, quantize)
    expect(not list(program.folder.glob("int8*")), list(program.folder.glob("int8*")))


def test_an_interrupted_tokenize_continues(program):
    tokenizer = ["--tokenizer", "bytes"]
    interrupt_reading(program, "tokenize", "pipe", "-o", "a.bin", *tokenizer, message="before the first token")
    expect(not list(program.folder.glob("a.bin*")), list(program.folder.glob("a.bin*")))

    (program.folder / "long.txt").write_text("".join(f"line {i}, the quick brown fox\n" for i in range(40_000)))
    job = ["long.txt", "--shard-tokens", "10000", "--threads", "1", *tokenizer]
    subprocess.run([other_program(program, "tokenize"), *job, "-o", "whole.bin"], cwd=program.folder, check=True,
                   capture_output=True)
    library = build_library(program, "disk_faults")
    for call in (120, 300):  # of those that change files
        environment = {**os.environ, "LD_PRELOAD": str(library), "FAULT_IN": "a", "FAULT_DO": "term", "FAULT_AT": str(call)}
        result = subprocess.run([other_program(program, "tokenize"), *job, "-o", "a.bin"], cwd=program.folder, text=True,
                                env=environment, capture_output=True, check=False)
        expect(result.returncode == -signal.SIGTERM and "finished files, which stay; the same command continues\n"
               in result.stderr, result)
        expect(not list(program.folder.glob("*.tmp-*")), "temporary files stay")
    result = subprocess.run([other_program(program, "tokenize"), *job, "-o", "a.bin"], cwd=program.folder, text=True,
                            capture_output=True, check=True)
    expect("resuming after" in result.stderr, result)
    shards = sorted(program.folder.glob("a_*.bin"))
    expect(len(shards) > 100, shards)
    for shard in shards:
        whole = program.folder / shard.name.replace("a_", "whole_")
        expect(shard.read_bytes() == whole.read_bytes(), f"{shard.name} differs")


# ---- ignored signals and job control -----------------------------------------------------------


def wait_for_steps(process, log):
    """Waits until the run has computed more steps, by its log."""
    size = log.stat().st_size
    while log.stat().st_size == size:
        expect(process.poll() is None, "the run ended")
        time.sleep(0.01)


def test_signals_that_were_ignored_at_the_start_stay_ignored(program):
    # `nohup`, and the background job of a script.
    for command, number in ((["nohup", program.binary], signal.SIGHUP),
                            (["sh", "-c", '"$@" & wait', "sh", program.binary], signal.SIGINT)):
        log = program.folder / f"{number.name}.jsonl"
        words = [*command, *ENDLESS, "--out", number.name, "--log", log]
        run = subprocess.Popen([str(word) for word in words], cwd=program.folder, text=True, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        wait_for(run, "step 1/")
        trainer, = processes_of(run.pid, "train_gpt2")
        os.kill(trainer, number)
        wait_for_steps(run, log)
        os.kill(trainer, signal.SIGTERM)
        messages = finish(run)
        expect("interrupted by SIGTERM after step" in messages and f"interrupted by {number.name}" not in messages, messages)


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_a_stopped_run_continues(program):
    process = start(program, [*ENDLESS, "--out", "run", "--log", "log.jsonl"])
    wait_for(process, "step 1/")
    for _ in range(2):
        process.send_signal(signal.SIGTSTP)  # Ctrl-Z
        while state_of(process.pid) != "T":
            expect(process.poll() is None, "the run ended")
            time.sleep(0.01)
        process.send_signal(signal.SIGCONT)  # fg
        wait_for_steps(process, program.folder / "log.jsonl")
    process.send_signal(signal.SIGINT)
    expect("saved run/step_" in finish(process), "the run did not save")


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
