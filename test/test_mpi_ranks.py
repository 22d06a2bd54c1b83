#!/usr/bin/env python3
"""Tests ranks as processes: starts test/mpi_ranks.cu and test/mpi_training.cu with scripts/run.sh.

    python3 test/test_mpi_ranks.py build/host [PATTERN]

Prints and exits as runner.py does. Skipped if the program was built without MPI or mpirun is missing.
"""
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from runner import Skip, expect, run_tests  # noqa: E402

RUN = Path(__file__).resolve().parent.parent / "scripts" / "run.sh"
LAUNCHER_PREFIXES = ("OMPI_", "PMI", "SLURM_")
KEPT = "OMPI_MCA_odls_base_sigkill_timeout"  # run_tests.sh sets it


class Program:
    def __init__(self, binary):
        self.binary = binary

    def start(self, command, **more):
        environment = {key: value for key, value in os.environ.items()
                       if (key == KEPT or not key.startswith(LAUNCHER_PREFIXES)) and key not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
        return subprocess.run([str(word) for word in command], env={**environment, **more}, capture_output=True, text=True,
                              timeout=100, stdin=subprocess.DEVNULL)

    def launcher(self):
        """The words of the command that run.sh would run."""
        result = self.start([RUN, "--dry-run", "-np", 1, "true"])
        if result.returncode == 2:
            raise Skip("mpirun is missing")
        return shlex.split(result.stdout)

    def run(self, ranks, *arguments, **more):
        if not self.binary.exists():
            raise Skip(f"{self.binary} was not built")
        self.launcher()
        if "libmpi" not in subprocess.run(["ldd", self.binary], capture_output=True, text=True, check=False).stdout:
            raise Skip(f"{self.binary} was built without MPI")
        return self.start([RUN, "-np", ranks, self.binary, *arguments], **more)


def test_collectives_of_several_processes(program):
    for ranks in (1, 2, 3, 5, 8):
        result = program.run(ranks, "collectives")
        expect(result.returncode == 0 and result.stdout == f"{ranks} ranks\n", (ranks, result))


def expect_equal_training(program, backend, layouts, memory=()):
    """Ranks of the backend compute the bits of ranks as threads. A layout: ranks, --zero, --shard-group, micro-batches,
    --tp, --sequence-parallel, vocabulary; then, if there are pipelines, --pp, --pp-chunks, and --pp-layers or "-".
    `memory`: values of --recompute, --offload and --optimizer-on, which the threads do not have."""
    training = Program(program.binary.with_name("mpi_training"))
    for layout in layouts:
        if len(layout) == 7:
            layout = (*layout, 1, 1, "-")
        result = training.run(layout[0], *layout, backend, *memory)  # one mpirun per layout
        expect(result.returncode == 0, result)
        threads = training.start([training.binary, *layout, "threads"])
        expect(len(result.stdout.strip()) == 16 and result.stdout == threads.stdout, (layout, result, threads))


def test_training_has_the_bits_of_ranks_as_threads(program):
    expect_equal_training(program, "mpi", [(ranks, *more, 1, 0, 31) for ranks, *more in (
        (2, 3, 2, 3), (3, 1, 3, 1), (4, 2, 2, 3), (5, 0, 5, 1), (8, 3, 4, 1))])


def test_training_of_tensor_ranks_has_the_bits_of_ranks_as_threads(program):
    expect_equal_training(program, "mpi", [(2, 0, 1, 2, 2, 0, 31), (3, 0, 1, 2, 3, 1, 31), (4, 1, 2, 1, 2, 1, 31),
                                           (4, 3, 1, 2, 4, 0, 50257), (6, 2, 3, 1, 2, 0, 31), (8, 3, 2, 1, 4, 1, 31)])


def test_training_of_pipelines_has_the_bits_of_ranks_as_threads(program):
    expect_equal_training(program, "mpi", [
        (2, 0, 1, 4, 1, 0, 31, 2, 1, "1,2"), (4, 2, 2, 4, 1, 0, 31, 2, 2, "-"), (4, 1, 1, 3, 2, 1, 50257, 2, 1, "-"),
        (6, 3, 2, 3, 1, 0, 31, 3, 1, "2,1,1"), (8, 1, 2, 2, 2, 1, 31, 2, 2, "1,2,1,1"), (8, 3, 1, 8, 2, 0, 31, 4, 2, "-")])


def test_training_in_less_memory_has_the_bits_of_ranks_as_threads_that_keep_everything(program):
    layouts = [(2, 2, 2, 3, 1, 0, 31), (2, 0, 1, 2, 2, 0, 31), (2, 0, 1, 2, 2, 1, 31), (4, 3, 2, 4, 1, 0, 31, 2, 2, "-")]
    with tempfile.TemporaryDirectory() as folder:
        for recompute, place, on in (("full", "host", "cpu"), ("selective", folder, "device")):
            kinds = ",".join(f"{kind}={place}" for kind in ("optimizer", "gradients", "parameters", "activations"))
            expect_equal_training(program, "mpi", layouts, (recompute, kinds, on))
        expect(not os.listdir(folder), "files are left in the directory")


def test_an_error_of_one_rank_ends_all(program):
    for failing in (0, 2):
        result = program.run(3, "fail", failing)
        expect(result.returncode == 1 and f"mpi_ranks: rank {failing}: out of paper\n" in result.stderr, result)


def test_ranks_that_make_different_calls_report_both(program):
    result = program.run(3, "differ")
    expect(result.returncode == 1, result)
    expect("ranks of a group make different calls: rank " in result.stderr, result)
    expect("all-reduce 1 of 4 fp32" in result.stderr and "all-reduce 1 of 6 fp32" in result.stderr, result)


def test_a_posted_message_outlives_its_communicator(program):
    for seconds in (0, 3):  # the sender waits 2 s for its receivers
        result = program.run(2, "posts", seconds)
        expect(result.returncode == 0 and result.stdout == "the message is right\n", (seconds, result))


def test_a_rank_that_waits_leaves_its_core_free(program):
    seconds = 2
    result = program.run(3, "idle", seconds)
    used = [float(line) for line in result.stdout.split()]
    expect(result.returncode == 0 and len(used) == 2, result)
    expect(max(used) < seconds / 4, f"{used} seconds of processor time in {seconds} seconds")


def test_every_rank_knows_its_place(program):
    result = program.run(3, "places")
    expect(sorted(result.stdout.splitlines()) == [f"rank {i} of 3, on its machine {i} of 3" for i in range(3)], result)


def test_ranks_that_mpi_does_not_connect_are_reported(program):
    program.run(1, "places")  # skips the test if it cannot run
    # An Open MPI that was only unpacked finds its parts by variables.
    variables = dict(word.split("=", 1) for word in program.launcher() if "=" in word and not word.startswith("-"))
    result = program.start([program.binary, "places"], RANK="1", WORLD_SIZE="2", **variables)
    expect(result.returncode == 1, result)
    expect("rank 1 of 2 (WORLD_SIZE is set): MPI connects only 1 of them" in result.stderr, result)
    expect("hint: use communication tcp, and set MASTER_ADDR and MASTER_PORT for all ranks" in result.stderr, result)


def test_the_choice_of_the_library(program):
    result = program.run(2, "places", "mpi")
    expect(result.returncode == 0 and "rank 1 of 2, on its machine 1 of 2\n" in result.stdout, result)
    result = program.run(2, "places", "nccl")
    expect(result.returncode == 1 and "communication nccl: this build has no NCCL\n" in result.stderr, result)


def main(build, pattern="*"):
    binary = (Path(build) / "mpi_ranks").resolve()
    return run_tests(globals(), lambda folder: (Program(binary),), pattern)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
