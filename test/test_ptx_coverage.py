#!/usr/bin/env python3
"""Tests what nvcc compiled as a whole: every kernel with a budget runs at the published widths, without a fault;
two runs of a seed have the same bits, and kernels in which the manual leaves nothing open have them in all seeds;
lines of the source in PTX change no instruction.

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

# With kernels of every kind: exact ones, with products of bytes, with products of floats, with exponentials.
DETERMINISTIC_SUITES = "layernorm,adamw,embedding,sampling,dropout,quantize,invariant_gemm_int8_kernels,cache_attention,classifier"


def executed_kernels(counts):
    """Plain names of the kernels in a file of LLMC_PTX_COUNTS that executed an instruction."""
    lines = [line.split(" ", 4) for line in counts.read_text().splitlines()]
    return set(plain_names([name for _, instructions, _, _, name in lines if int(instructions) > 0]))


def test_every_kernel_with_a_budget_runs_at_the_published_widths(build, folder):
    counts = PTX / "launches.counts"
    if not counts.exists():
        raise Skip(f"{counts} does not exist: make test DEVICE=ptx runs the launches")
    _, table = read_table(ROOT / f"dev/resources/sm_{PTX.name}.txt")
    expect(len(table) > 300, f"the table has only {len(table)} kernels")
    missing = sorted(set(table) - executed_kernels(counts))
    expect(not missing, f"{len(missing)} of {len(table)} kernels did not run: {'; '.join(missing)}; add launches to dev/launches.cu")


def digests(build, folder, name, seed):
    """The launches of a run of some suites: (kernel, "exact" or "open", hash before, hash after)."""
    path = folder / name
    environment = {**os.environ, "LLMC_TINY": "1", "LLMC_PTX": str(PTX), "LLMC_PTX_DIGESTS": str(path), "LLMC_PTX_SEED": str(seed),
                   "LLMC_PTX_RACES": "0", "LLMC_PTX_UNDEFINED": "0"}
    done = subprocess.run([str(build / "tests"), f"--test-suite={DETERMINISTIC_SUITES}"], env=environment, capture_output=True,
                          text=True, timeout=600)
    expect(done.returncode == 0, f"seed {seed}: exit code {done.returncode}: {done.stdout[-800:]}")
    return [line.split() for line in path.read_text().splitlines()]


def test_the_seed_decides_all_bits(build, folder):
    if not (build / "tests").exists():
        raise Skip(f"{build / 'tests'} is not built")
    first, again, other = (digests(build, folder, f"digests-{i}", seed) for i, seed in enumerate((1, 1, 2)))
    expect(len(first) > 500, f"only {len(first)} launches")
    # Gaps between the members of an argument are not initialised, so some launches differ before they begin.
    same = [one[3] == two[3] for one, two in zip(first, again) if one[:3] == two[:3]]
    expect(len(first) == len(again) and all(same), f"{same.count(False)} launches of two runs of a seed differ")
    expect(len(same) > 0.95 * len(first), f"only {len(same)} of {len(first)} launches began alike")
    after = {(kernel, before): result for kernel, kind, before, result in first if kind == "exact"}
    compared = 0
    for kernel, kind, before, result in other:
        if kind == "exact" and (kernel, before) in after:
            compared += 1
            expect(after[kernel, before] == result, f"{kernel}: another result with another seed")
    kernels = {kernel for kernel, kind, _, _ in other if kind == "exact"}
    expect(compared > 300 and len(kernels) > 60, f"only {compared} launches of {len(kernels)} kernels were compared")
    expect(first != other, "the seed decides nothing")


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
