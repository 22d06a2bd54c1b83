#!/usr/bin/env python3
"""Tests what train_gpt2 reports about ranks that compute slowly and about values that are not finite.

    python3 test/test_watch_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does. Skipped if the program was built without MPI or mpirun is missing.
"""
import re
import subprocess
import sys

from runner import Skip, expect
from test_checkpoint_programs import build_library
from test_programs import run_program_tests
from test_rank_programs import TRAIN, environment, require_mpi, RUN, steps

SECONDS = 120


def run_ranks(program, ranks, arguments, fault_rank=None, code=0, **faults):
    """Runs ranks of the program, one of them with faults in its matrix products. Returns stderr."""
    if ranks > 1:
        require_mpi(program)
    if "libdnnl" not in subprocess.run(["ldd", program.binary], capture_output=True, text=True, check=False).stdout:
        raise Skip("the faults are in the library libdnnl, which is not used here")
    library = build_library(program, "gemm_faults")
    script = f'if [ "${{OMPI_COMM_WORLD_RANK:-0}}" = {fault_rank} ]; then export LD_PRELOAD={library}; fi; exec "$@"'
    words = ["bash", "-c", script, "x", program.binary, *arguments]
    done = subprocess.run([str(word) for word in ([RUN, "-np", ranks, *words] if ranks > 1 else words)],
                          cwd=program.folder, text=True, capture_output=True, timeout=SECONDS, check=False,
                          env={**environment(), **faults})
    expect(done.returncode == code, f"exit code {done.returncode}, not {code}: {done.stderr[-1500:]}")
    return done.stderr


# ---- slow ranks ----------------------------------------------------------------------------


def test_a_slow_rank_is_named_with_its_machine(program):
    run = [*TRAIN, "--steps", 45, "--log", "run.jsonl", "--log-ranks"]
    messages = run_ranks(program, 2, run, fault_rank=1, GEMM_SLEEP_US="1500")
    notice = re.findall(r"rank (\d) \((\S+)\) is slow: it computed ([\d.]+) ms per step for 20 steps, "
                        r"the median of ranks 0, 1 is ([\d.]+) ms\n", messages)
    expect(len(notice) == 1 and notice[0][0] == "1" and float(notice[0][2]) > 1.2 * float(notice[0][3]), messages)
    records = [line for line in program.log("run.jsonl") if "slow_rank" in line]
    expect(len(records) == 1 and records[0]["slow_rank"] == 1 and records[0]["host"] == notice[0][1], records)
    for line in steps(program, "run.jsonl")[1:]:
        compute, wait, data = ([float(number) for number in line[f"{key}_ms_ranks"].split()]
                               for key in ("compute", "wait", "data"))
        expect(len(compute) == len(wait) == len(data) == 2 and compute[1] > compute[0] and wait[0] > 0, line)


def test_ranks_with_other_stages_are_not_compared(program):
    run = [*TRAIN, "--steps", 30, "--pp", 2, "--grad-accum", 2, "--log", "run.jsonl"]
    messages = run_ranks(program, 2, run, fault_rank=1, GEMM_SLEEP_US="1000")
    expect("is slow" not in messages, messages)


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
