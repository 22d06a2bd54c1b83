#!/usr/bin/env python3
"""Tests what nvcc compiled as a whole: every kernel with a budget runs at the published widths, without a fault,
and lines of the source in PTX change no instruction.

    python3 test/test_ptx_coverage.py build/host-ptx [PATTERN]

LLMC_PTX is the folder of PTX. Prints `ok NAME`, `FAILED NAME: why` or `[skipped] NAME: why`, then
`N passed, N failed, N skipped`.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

from runner import Skip, expect, run_tests

ROOT = Path(__file__).resolve().parent.parent
PTX = Path(os.environ.get("LLMC_PTX", ROOT / "build/ptx/90a"))
sys.path.insert(0, str(ROOT / "scripts"))

from resource_budgets import plain_names, read_table

# The first and the last block of each launch. A merging last block is tested with all blocks, by the suites of ops.
SETTINGS = {"LLMC_PTX_BLOCKS": "2", "MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "8589934592"}


def executed_kernels(counts):
    """Plain names of the kernels in a file of LLMC_PTX_COUNTS that executed an instruction."""
    lines = [line.split(" ", 4) for line in counts.read_text().splitlines()]
    return set(plain_names([name for _, instructions, _, _, name in lines if int(instructions) > 0]))


def test_every_kernel_with_a_budget_runs_at_the_published_widths(build, folder):
    launches = build / "launches"
    if not launches.exists():
        raise Skip(f"{launches} is not built")
    _, table = read_table(ROOT / f"dev/resources/sm_{PTX.name}.txt")
    expect(len(table) > 300, f"the table has only {len(table)} kernels")
    environment = {**os.environ, **SETTINGS, "LLMC_PTX": str(PTX), "LLMC_PTX_COUNTS": str(folder / "counts")}
    done = subprocess.run([str(launches)], env=environment, capture_output=True, text=True, timeout=900)
    expect(done.returncode == 0, f"{launches}: exit code {done.returncode}: {done.stderr[-800:]}")
    missing = sorted(set(table) - executed_kernels(folder / "counts"))
    expect(not missing, f"{len(missing)} of {len(table)} kernels did not run: {'; '.join(missing)}; add launches to dev/launches.cu")


def instructions_of(text):
    """The lines of PTX without those that only say where the source is."""
    text = re.sub(r"\n\t?\.section\s+\.debug_\w+\s*\{.*?\n\t?\}", "", text, flags=re.DOTALL)
    return [line for line in text.splitlines() if line.strip() and not re.match(r"\s*(\.loc|\.file|//|\$L__func)\b", line)]


def test_lines_of_the_source_change_no_instruction(build, folder):
    units = sorted((PTX / "unlined").glob("*.ptx"))
    if not units:
        raise Skip(f"{PTX / 'unlined'} has no files: no nvcc compiled them")
    for unit in units:
        lined, unlined = (path.read_text() for path in (PTX / unit.name, unit))
        expect("\t.loc" in lined and "\t.loc" not in unlined, f"{unit.name}: lines are not where they should be")
        ours, others = instructions_of(lined), instructions_of(unlined)
        expect(len(others) > 1000, f"{unit} has only {len(others)} lines")
        for number, (one, other) in enumerate(zip(ours, others)):
            expect(one == other, f"{unit.name}: instruction {number} is '{one.strip()}', without lines '{other.strip()}'")
        expect(len(ours) == len(others), f"{unit.name}: {len(ours)} instructions, without lines {len(others)}")


if __name__ == "__main__":
    sys.exit(run_tests(globals(), lambda folder: [Path(sys.argv[1]).resolve(), folder], *sys.argv[2:3]))
