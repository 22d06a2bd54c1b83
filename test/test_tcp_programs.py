#!/usr/bin/env python3
"""Tests ranks that communicate over TCP: train_gpt2 and test/mpi_ranks.cu, as processes that RANK, WORLD_SIZE,
MASTER_ADDR and MASTER_PORT connect, as torchrun starts them, and by mpirun with `--comm tcp`.

    python3 test/test_tcp_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does. Comparisons with MPI are skipped if the program was built without it.
"""
import os
import re
import signal
import subprocess
import sys
import time

from free_ports import master_port
from runner import Skip, expect
from test_checkpoint_programs import QUIET, TINY, wait_for, with_flags
from test_mpi_ranks import Program, expect_equal_training
from test_programs import run_program_tests, same_state
from test_rank_programs import environment, mpirun, require_mpi, steps

SECONDS = 100  # a run that takes longer does not end
TRAIN = [*with_flags(TINY, layers=4, heads=2, channels=16, batch_size=2), *QUIET, "--eps", 1e-4, "--seed", 5]
# Flags of four ranks: data, tensor and pipeline ranks, and all of them.
MESHES = [["--zero", 1], ["--zero", 3, "--shard-group", 2], ["--tp", 2, "--zero", 2], ["--pp", 2, "--zero", 1],
          ["--tp", 2, "--pp", 2, "--sequence-parallel"], ["--pp", 2, "--pp-chunks", 2, "--dtype", "bf16"]]


def start(ranks, command, folder, **more):
    """Starts the ranks. `command`: words, or a function from a rank to its words."""
    place = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "localhost", "MASTER_PORT": str(master_port())}
    usual = {key: value for key, value in environment().items() if key not in ("RANK", "LOCAL_RANK", *place)}
    return [subprocess.Popen([str(word) for word in (command(rank) if callable(command) else command)], cwd=folder, text=True,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             env={**usual, **place, "RANK": str(rank), **more}) for rank in range(ranks)]


def output_of(process, end):
    """What it prints until it ends. It is killed at `end`, so that its exit code is not the expected one."""
    try:
        return process.communicate(timeout=max(0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()


class Result:
    """The exit codes, outputs and messages of all ranks."""

    def __init__(self, processes):
        end = time.monotonic() + SECONDS
        try:
            texts = [output_of(process, end) for process in processes]
        finally:
            for process in processes:
                process.kill()
        self.codes = [process.returncode for process in processes]
        self.out, self.messages = [out for out, _ in texts], [messages for _, messages in texts]

    def __repr__(self):
        return f"codes {self.codes}: {self.out} {[text[-800:] for text in self.messages]}"


def run(ranks, command, folder, **more):
    return Result(start(ranks, command, folder, **more))


def checks(program, ranks, *arguments, **more):
    """Runs ranks of test/mpi_ranks.cu."""
    binary = program.binary.with_name("mpi_ranks")
    if not binary.exists():
        raise Skip(f"{binary} was not built")
    return run(ranks, [binary, *arguments], program.folder, **more)


def train(program, ranks, *arguments, codes=0, **more):
    result = run(ranks, [program.binary, *TRAIN, *arguments], program.folder, **more)
    expect(result.codes == [codes] * ranks, result)
    return result


# ---- communicators ---------------------------------------------------------------------------


def test_collectives_of_several_processes(program):
    for ranks in (2, 3, 4, 8):
        result = checks(program, ranks, "collectives", **({"LLMC_TINY": "1"} if ranks > 4 else {}))
        expect(result.codes == [0] * ranks and "".join(result.out) == f"{ranks} ranks\n", result)


def test_collectives_of_ranks_that_mpi_starts(program):
    require_mpi(program)
    ranks = Program(program.binary.with_name("mpi_ranks")).run(3, "collectives", "tcp")
    expect(ranks.returncode == 0 and ranks.stdout == "3 ranks\n", ranks)


def test_training_has_the_bits_of_ranks_as_threads(program):
    require_mpi(program)
    expect_equal_training(Program(program.binary.with_name("mpi_ranks")), "tcp", [
        (3, 2, 1, 3, 1, 0, 31), (4, 3, 2, 1, 2, 1, 31), (4, 1, 1, 4, 2, 0, 31, 2, 2, "-"), (6, 3, 2, 3, 1, 0, 31, 3, 1, "2,1,1")])


def test_an_error_of_one_rank_ends_all(program):
    for failing in (0, 2):
        result = checks(program, 3, "fail", failing)
        expect(result.codes == [1, 1, 1], result)
        for rank, text in enumerate(result.messages):
            reason = "out of paper" if rank == failing else r".*rank \d has failed or ended.*"
            expect(re.fullmatch(f"mpi_ranks: rank {rank}: {reason}\n", text), result)


def test_a_rank_that_is_killed_while_it_sends_ends_all_and_is_named(program):
    result = checks(program, 3, "die")
    expect(result.codes == [1, -signal.SIGKILL, 1], result)
    expect("rank 1 has failed or ended" in result.messages[0] and "rank 1 has failed or ended" in result.messages[2], result)


def test_ranks_that_make_different_calls_report_both(program):
    result = checks(program, 3, "differ")
    messages = "".join(result.messages)
    expect(result.codes == [1, 1, 1] and "ranks of a group make different calls: rank " in messages, result)
    expect("all-reduce 1 of 4 fp32" in messages and "all-reduce 1 of 6 fp32" in messages, result)


def test_a_posted_message_outlives_its_communicator(program):
    for seconds in (0, 3):
        result = checks(program, 2, "posts", seconds)
        expect(result.codes == [0, 0] and result.out[1] == "the message is right\n", result)


def test_a_rank_that_waits_leaves_its_core_free(program):
    seconds = 2
    result = checks(program, 3, "idle", seconds)
    used = [float(text) for text in result.out[1:]]
    expect(result.codes == [0, 0, 0] and max(used) < seconds / 4, f"{used} of {seconds} seconds")


def test_open_files_that_do_not_suffice_are_reported(program):
    binary = program.binary.with_name("mpi_ranks")
    checks(program, 1, "places")  # skips the test if it cannot run
    result = run(8, ["bash", "-c", f"ulimit -n 16; exec {binary} collectives"], program.folder, LLMC_TINY="1")
    expect(0 not in result.codes, result)
    expect("Too many open files" in "".join(result.messages), result)


# ---- the trainer -----------------------------------------------------------------------------


def test_training_has_the_losses_of_mpi(program):
    require_mpi(program)
    for number, mesh in enumerate(MESHES):
        arguments = [*with_flags(TRAIN, eval_every=2), *mesh, "--steps", 3, "--grad-accum", 4, "--dropout", 0.1]
        mpirun(program, 4, *arguments, "--out", f"mpi{number}", "--log", f"mpi{number}.jsonl")
        result = run(4, [program.binary, *arguments, "--out", f"tcp{number}", "--log", f"tcp{number}.jsonl"], program.folder)
        expect(result.codes == [0] * 4, result)
        logs = [[(line.get("loss"), line.get("val_loss"), line.get("grad_norm"), line.get("token_hash"))
                 for line in program.log(f"{kind}{number}.jsonl") if "step" in line] for kind in ("mpi", "tcp")]
        expect(len(logs[0]) >= 4 and logs[0] == logs[1], (mesh, logs))
        expect(same_state(program.folder / f"mpi{number}/step_000003", program.folder / f"tcp{number}/step_000003"), mesh)


def test_ranks_that_mpi_starts_can_communicate_over_tcp(program):
    mpirun(program, 3, *TRAIN, "--steps", 2, "--log", "mpi.jsonl")
    mpirun(program, 3, *TRAIN, "--steps", 2, "--comm", "tcp", "--log", "tcp.jsonl")
    losses = [[line["loss"] for line in steps(program, log)] for log in ("mpi.jsonl", "tcp.jsonl")]
    expect(len(losses[0]) == 2 and losses[0] == losses[1], losses)
    messages = mpirun(program, 3, *TRAIN, "--comm", "tcp", "--lr", 1e30, "--grad-clip", 0, "--on-nan", "skip", "--max-skipped", 1, code=1)[1]
    expect(messages.count("updates in a row were skipped") == 1, messages)


def test_a_torchrun_start_trains_and_only_rank_0_prints(program):
    result = train(program, 2, "--steps", 2, "--tp", 2, TORCHELASTIC_USE_AGENT_STORE="True")
    expect("done: 2 steps" in result.messages[0] and result.messages[1] == "" and result.out[1] == "", result)
    one = program.run(*TRAIN, "--steps", 2).stderr
    expect("done: 2 steps" in one, one)


def test_an_error_on_one_rank_ends_all_and_is_printed_once(program):
    (program.folder / "other").mkdir()  # without a text
    result = run(3, lambda rank: ["bash", "-c", 'cd "$0"; exec "$@"', "other" if rank == 1 else ".", program.binary, *TRAIN,
                                  "--steps", 10 ** 9], program.folder)
    messages = "".join(result.messages)
    expect(result.codes == [1, 1, 1] and messages.count("train_gpt2: ") == 1 and "train_gpt2: rank 1: " in messages, result)
    result = train(program, 3, "--steps", 9, "--lr", 1e30, "--grad-clip", 0, "--on-nan", "skip", "--max-skipped", 1, codes=1)
    expect("".join(result.messages).count("updates in a row were skipped") == 1, result)


def test_a_killed_rank_ends_the_run_and_is_named(program):
    for mesh in ([], ["--pp", 3, "--grad-accum", 3]):
        ranks = start(3, [program.binary, *TRAIN, "--steps", 10 ** 9, *mesh], program.folder)
        wait_for(ranks[0], "step 1/")
        ranks[1].kill()
        result = Result(ranks)
        expect(result.codes == [1, -signal.SIGKILL, 1], result)
        messages = "".join(result.messages)
        expect(messages.count("train_gpt2: rank ") == 1 and re.search(r"rank 1 \(.*\) is lost: its connection ended", messages), result)


def test_a_signal_ends_the_run_with_everything_saved(program):
    ranks = start(3, [program.binary, *TRAIN, "--steps", 10 ** 9, "--zero", 3, "--out", "run", "--log", "run.jsonl"],
                  program.folder)
    text = wait_for(ranks[0], "step 1/")
    os.kill(ranks[2].pid, signal.SIGTERM)
    result = Result(ranks)
    text += result.messages[0]
    saved = re.search(r"interrupted by SIGTERM after step (\d+): saved run/step_(\d+)", text)
    expect(result.codes == [0, 0, 0] and saved and int(saved[1]) == int(saved[2]), (text[-500:], result))


def test_other_choices_are_reported(program):
    result = run(2, [program.binary, *TRAIN, "--comm", "nccl"], program.folder)
    messages = "".join(result.messages)
    expect(result.codes == [1, 1] and messages.count("--comm nccl: this build has no NCCL") == 1, result)
    expect("or use --comm auto" in messages, result)
    require_mpi(program)
    result = run(2, [program.binary, *TRAIN, "--comm", "mpi"], program.folder)
    messages = "".join(result.messages)
    expect(result.codes == [1, 1] and "MPI connects only 1 of them" in messages and "use --comm tcp" in messages, result)


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
