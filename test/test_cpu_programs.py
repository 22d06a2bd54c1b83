#!/usr/bin/env python3
"""Tests that the host build computes the same on fewer threads, and correctly with older instruction sets.

    python3 test/test_cpu_programs.py build/host [PATTERN]

Prints `ok NAME`, `FAILED NAME: reason` or `[skipped] NAME: reason` for each test, then
`N passed, N failed, N skipped`; exits with 1 if a test failed.
"""
import os
import platform
import subprocess
import sys
from pathlib import Path

from runner import Skip, expect, run_tests
from stored_tensors import same_state
from test_programs import Program

# Products, gradients against fp64 and PyTorch, and 50 steps of training.
SUITES = "matmul,host matrix library,model,training"


def check_instruction_set(build, name):
    """oneDNN chooses its kernels by ONEDNN_MAX_CPU_ISA; all results must stay within their tolerances."""
    if platform.machine() != "x86_64":
        raise Skip("only oneDNN on x86-64 has instruction sets to choose from")
    tests = build / "tests"
    if not tests.exists():
        raise Skip(f"{tests} does not exist; make test builds it")
    for suite in SUITES.split(","):
        run = subprocess.run([tests, f"--test-suite={suite}", "--no-version=true"], capture_output=True, text=True,
                             timeout=600, env={**os.environ, "ONEDNN_MAX_CPU_ISA": name})
        expect(run.returncode == 0, f"suite {suite}: exit code {run.returncode}: {run.stdout[-1500:]}")
        expect("0 failed" in run.stdout and " 0 passed" not in run.stdout, f"suite {suite}: {run.stdout[-300:]}")


def test_oracles_and_fixtures_hold_with_avx2(build, folder):
    check_instruction_set(build, "AVX2")


def test_oracles_and_fixtures_hold_with_avx512_without_bf16_instructions(build, folder):
    check_instruction_set(build, "AVX512_CORE")


def test_training_does_not_depend_on_the_number_of_threads(build, folder):
    """A model wide enough that its products are cut into several tiles."""
    program = Program(build / "train_gpt2", folder)
    wide = ["--layers", "2", "--heads", "4", "--channels", "128", "--context", "64", "--batch-size", "4",
            "--steps", "3", "--lr", "1e-3", "--train", "text.txt", "--tokenizer", "bytes", "--eval-every", "0"]
    for dtype in ("fp32", "bf16", "fp16"):
        for threads in ("1", "2", "5"):
            program.run(*wide, "--dtype", dtype, "--out", f"{dtype}-{threads}", "--dropout", "0.1",
                        environment={"LLMC_HOST_THREADS": threads})
        for threads in ("2", "5"):
            expect(same_state(*(folder / f"{dtype}-{n}" / "step_000003" for n in ("1", threads))),
                   f"{dtype}: the weights or moments with {threads} threads differ from those with one")


if __name__ == "__main__":
    build_folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/host").resolve()
    sys.exit(run_tests(globals(), lambda folder: (build_folder, folder), *sys.argv[2:3]))
