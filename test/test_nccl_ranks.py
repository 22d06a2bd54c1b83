#!/usr/bin/env python3
"""Tests the NCCL backend on a test double of NCCL: starts test/nccl_ranks.cu and test/mpi_training.cu with mpirun.

    python3 test/test_nccl_ranks.py build/host [PATTERN]

Prints and exits as runner.py does. Skipped if the program was built without MPI or mpirun is missing.
"""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from free_ports import master_port  # noqa: E402
from runner import expect, run_tests  # noqa: E402
from test_mpi_ranks import Program, expect_equal_training  # noqa: E402


def tcp():
    """The environment in which the ranks find each other over TCP."""
    return {"MASTER_ADDR": "localhost", "MASTER_PORT": str(master_port())}


def error_of(result, rank):
    """The line with the error of a rank."""
    line = re.search(rf"^nccl_ranks: rank {rank}: (.*)$", result.stderr, re.M)
    expect(line is not None, (rank, result))
    return line[1]


def test_collectives_equal_those_of_the_other_backends(program):
    for ranks in (2, 3, 4, 8):
        result = program.run(ranks, "collectives", **({"LLMC_TINY": "1"} if ranks > 3 else {}))
        expect(result.returncode == 0 and result.stdout == f"{ranks} ranks\n", (ranks, result))


def test_collectives_of_ranks_that_tcp_connects(program):
    result = program.run(4, "collectives", LLMC_TINY="1", **tcp())
    expect(result.returncode == 0 and result.stdout == "4 ranks\n", result)


def test_training_of_tensor_ranks_has_the_bits_of_ranks_as_threads(program):
    expect_equal_training(program, "nccl", [(2, 0, 1, 2, 2, 1, 31), (4, 1, 2, 1, 2, 0, 31), (4, 3, 1, 2, 4, 1, 31),
                                            (8, 3, 2, 1, 2, 1, 31)])


def test_training_of_pipelines_has_the_bits_of_ranks_as_threads(program):
    expect_equal_training(program, "nccl", [
        (2, 0, 1, 4, 1, 0, 31, 2, 2, "-"), (4, 1, 2, 3, 1, 0, 31, 2, 1, "1,2"), (4, 0, 1, 4, 2, 1, 31, 2, 1, "-"),
        (6, 2, 1, 3, 2, 0, 31, 3, 1, "1,2,1"), (8, 3, 2, 4, 1, 0, 31, 4, 1, "-"), (8, 3, 2, 4, 2, 1, 31, 2, 2, "-")])


def test_calls_that_stay_in_progress_are_polled_until_they_are_complete(program):
    for polls in (0, 1, 50):
        result = program.run(2, "steps", NCCL_DOUBLE_POLLS=str(polls))
        expect(result.returncode == 0 and result.stdout == "complete\n", (polls, result))


def test_an_error_of_one_rank_ends_all_ranks_with_its_reason(program):
    failing = 1
    for fault, reason in (("ERROR", "ncclAllReduce (all-reduce 2 of 8 fp32): system error: injected"),
                          ("LATE_ERROR", "the work of a stream: another process failed: injected after the call")):
        result = program.run(3, "steps", **{f"NCCL_DOUBLE_{fault}": f"{failing}:2"}, **tcp())
        expect(result.returncode != 0 and result.stdout == "", result)
        expect(error_of(result, failing) == f"group 'world', rank 1 of 3: {reason}", result)
        for rank in (0, 2):
            expect(re.fullmatch(rf"group 'world', rank {rank} of 3: .*: rank 1 has failed or ended",
                                error_of(result, rank)), result)
        expect(result.stderr.count("aborted 1, misuses 0, open groups 0") == 3, result)


def test_mpi_ends_all_ranks_after_an_error(program):
    result = program.run(3, "steps", NCCL_DOUBLE_ERROR="2:1")
    expect(result.returncode != 0 and result.stdout == "", result)
    expect("ncclAllReduce (all-reduce 1 of 8 fp32): system error: injected" in error_of(result, 2), result)


def test_a_call_that_never_completes_ends_at_the_deadline(program):
    result = program.run(2, "steps", NCCL_DOUBLE_HANG="1:2", **tcp())
    expect(result.returncode != 0, result)
    expect("not complete after 3 s; another rank has ended or makes another call" in result.stderr, result)
    result = program.run(2, "endless")
    expect(result.returncode != 0 and ": the end: not complete after 3 s" in result.stderr, result)


def test_a_rank_that_throws_ends_the_others(program):
    for connection in ({}, tcp()):
        result = program.run(3, "fail", 1, **connection)
        expect(result.returncode != 0 and error_of(result, 1) == "out of paper", result)
        if connection:
            for rank in (0, 2):
                expect(re.search(r"\(barrier [12]\): rank 1 has failed or ended", error_of(result, rank)), result)


def test_different_calls_are_reported(program):
    for what, first, second in (("count", "all-reduce 2 of 4 fp32", "all-reduce 2 of 6 fp32"),
                                ("type", "all-reduce 2 of 4 fp32", "all-reduce 2 of 4 bf16"),
                                ("root", "broadcast 2 of 4 fp32, root 0", "broadcast 2 of 4 fp32, root 1"),
                                ("order", "broadcast 2 of 4 fp32", "all-reduce 2 of 4 fp32"),
                                ("length", "message 1 of 4 fp32", "message 1 of 5 fp32"),
                                ("later length", "message 2 of 4 fp32", "message 2 of 5 fp32")):
        result = program.run(2, "differ", what)
        expect(result.returncode != 0, result)
        expect(re.search(f"wrong usage: rank 0 calls {first}.*; rank 1 calls {second}|"
                         f"wrong usage: rank 1 calls {second}.*; rank 0 calls {first}", result.stderr), (what, result))


def test_posts_do_not_wait_for_the_receiver_but_later_calls_of_the_stream_do(program):
    result = program.run(2, "posts", **tcp())
    expect(result.returncode != 0, result)
    expect(result.stderr.count("nccl_ranks: posted\n") == 2, result)
    expect("ncclRecv (message 2 of 4 fp32): not complete after 3 s" in result.stderr, result)


def test_the_double_reports_groups_that_differ_between_ranks(program):
    result = program.run(2, "nesting")
    expect(result.returncode == 0, result)
    expect("rank 0 calls all-reduce 1 of 8 fp32, root 0, in 1 groups; "
           "rank 1 calls all-reduce 1 of 8 fp32, root 0, in 0 groups" in result.stdout, result)


def test_the_double_reports_wrong_use(program):
    result = program.run(2, "double")
    expect(result.returncode == 0, result)
    expect(result.stdout == "opened 1, destroyed 1, aborted 0, misuses 9, open groups 0\n", result)


def main(build, pattern="*"):
    binary = (Path(build) / "nccl_ranks").resolve()
    return run_tests(globals(), lambda folder: (Program(binary),), pattern)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
