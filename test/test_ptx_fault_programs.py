#!/usr/bin/env python3
"""Runs the faults of kernels in test/faults as nvcc compiled them, on a CPU: each must be reported at one of its
marked lines, and its corrected version must not. Then changes the compiled instructions of a correct kernel: each
change must be reported in its source file, or give a wrong result.

    python3 test/test_ptx_fault_programs.py build/host-ptx [PATTERN]

LLMC_PTX is the folder of PTX; that of the faults is in it. The host executor runs build/host/faults, which passes
most of them. Prints `ok NAME`, `FAILED NAME: why` or `[skipped] NAME: why`, then `N passed, N failed, N skipped`.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

from runner import Skip, expect, run_tests

ROOT = Path(__file__).resolve().parent.parent
HOST = ROOT / "build/host/faults"
MARKED = [ROOT / f"test/faults/{name}" for name in ("faults.cu", "access_faults.h", "overlap_faults.h", "compiled_faults.h")]

# Launches overlap from compute_90 on.
OVERLAPS = Path(os.environ.get("LLMC_PTX", "90a")).name != "80"
EARLY = "before the wait for the launches before"

# Name of a fault -> a part of its report.
FAULTS = {
    "race_in_block": "a race: ", "race_in_warp": "a race: ", "race_between_blocks": "a race: ",
    "race_with_next_block": "a race: ", "race_with_block_before": "a race: ",
    "reduction_0": "a race: ", "reduction_1": "a race: ",
    "pipeline_0": "stored undefined by", "pipeline_1": "a race: ", "pipeline_2": "a race: ",
    "out_of_bounds_global": "of the tensor, which has ", "out_of_bounds_shared": "a race: ",
    "out_of_bounds_copy": "of the tensor, which has ", "next_tensor": "of the tensor, which has ",
    "missing_copy_wait": "stored undefined by", "wait_for_too_few": "stored undefined by",
    "copy_never_waited_for": "copies of cp.async are pending at the end",
    "uninitialised_shared": "stored undefined by", "uninitialised_global": "stored undefined by",
    "undefined_index": "an undefined address", "undefined_branch": "an undefined predicate",
    "misaligned_load": "a misaligned access of 16 bytes", "misaligned_store": "a misaligned access of 16 bytes",
    "divergent_barrier": "a barrier of the block, reached by a part of a warp",
    "divergent_collective": "waits for a lane that is elsewhere", "lane_returned": "waits for a lane that is elsewhere",
    "early_read": EARLY, "early_next": EARLY, "early_older": EARLY, "early_own": EARLY, "early_write": EARLY, "early_graph": EARLY,
    "merge_plain": "a race: ", "merge_early": "a race: ", "merge_uncounted": "a race: ",
    "merge_reset": "a race: ", "early_arrival": EARLY,
}
# The host executor reports these itself, and a CPU faults at a misaligned store of 16 bytes.
REPORTED_BY_HOST = {"divergent_barrier", "divergent_collective", "lane_returned", "copy_never_waited_for", "misaligned_store",
                    "early_arrival"}

# Name -> (pattern in the compiled product_kernel, replacement, a part of the report).
MMA = r"(mma\.sync[^{]*\{[^}]*\}, )\{(%\w+), (%\w+), (%\w+), (%\w+)\}, \{(%\w+), (%\w+)\}"
CHANGES = {
    "fragments of A in another order": (MMA, r"\1{\2, \4, \3, \5}, {\6, \7}", "a wrong result"),
    "fragments of B in another order": (MMA, r"\1{\2, \3, \4, \5}, {\7, \6}", "a wrong result"),
    "another type of elements": (r"f32\.bf16\.bf16\.f32", "f32.f16.f16.f32", "a wrong result"),
    "no transposition": (r"\.x4\.trans\.", ".x4.", "a wrong result"),
    "no wait for copies": (r"cp\.async\.wait_group \d+;", "", "are pending at the end"),
    "a wait for too few copies": (r"cp\.async\.wait_group 0;", "cp.async.wait_group 1;", "are pending at the end"),
    "copies that are not committed": (r"cp\.async\.commit_group;", "", "are pending at the end"),
    "copies of nothing": (r"(cp\.async\.cg[^;]*), %\w+;", r"\1, 0;", "a wrong result"),
    "a misaligned copy": (r"(cp\.async\.cg\S* \[%\w+\], \[%\w+)\]", r"\1+4]", "a misaligned access of 16 bytes"),
    "a copy beyond its tensor": (r"(cp\.async\.cg\S* \[%\w+\], \[%\w+)\]", r"\1+1024]", "of the tensor, which has"),
    "no barrier of the warp": (r"bar\.warp\.sync\s+-1;", "", "a race: "),
    "a mask without the last lane": (r"(mov\.u32\s+%r\d+), -1;", r"\1, 2147483647;", "by a lane that its mask lacks"),
    "no wait for the launch before": (r"griddepcontrol\.wait;", "", "no thread of the block waited"),
    "a store beyond its tensor": (r"(st\.global\.f32\s+\[%rd\d+)\+512\]", r"\1+516]", "of the tensor, which has"),
    "a sum that begins undefined": (r"mov\.f32\s+%f\d+, 0f0+;", "", "undefined"),
    "ldmatrix beyond shared memory": (r"(ldmatrix\S* \{[^}]*\}, \[%\w+)\]", r"\1+4096]", "of the block's shared memory"),
    "a misaligned row of ldmatrix": (r"(ldmatrix\S* \{[^}]*\}, \[%\w+)\]", r"\1+8]", "a misaligned access of 16 bytes"),
}


def run(program, name, *flags, ptx=None):
    """Returns (exit code, output)."""
    if not program.exists():
        raise Skip(f"{program} is not built")
    folder = ptx or Path(os.environ["LLMC_PTX"]) / "faults"
    done = subprocess.run([program, name, *flags], env={**os.environ, "LLMC_PTX": str(folder)}, text=True, timeout=120,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def lines_of(name):
    """The lines that are marked with a fault, as file:line."""
    return [f"{source.name}:{number}" for source in MARKED
            for number, text in enumerate(source.read_text().splitlines(), 1)
            if (mark := re.search(r"// (?:FAULT|COMPILED): (.*)$", text)) and name in mark[1].split()]


def test_each_fault_is_reported_at_its_line(build, _):
    for name, part in FAULTS.items():
        if part == EARLY and not OVERLAPS:
            continue
        code, report = run(build / "faults", name)
        expect(code == 1 and part in report, f"{name}: not reported as '{part}': exit code {code}: {report}")
        expect(any(re.search(rf"\b{re.escape(line)}\b", report) for line in lines_of(name)),
               f"{name}: the report names none of {lines_of(name)}: {report}")


def test_corrected_kernels_have_no_report(build, _):
    for name in (*FAULTS, "product"):
        code, report = run(build / "faults", name, "--fixed")
        expect(code == 0 and not report, f"{name}: exit code {code}: {report}")


def test_the_host_executor_passes_most_of_them(_, __):
    passed = [name for name in FAULTS if run(HOST, name) == (0, "")]
    expect(set(FAULTS) - set(passed) == REPORTED_BY_HOST, f"reported by the host: {set(FAULTS) - set(passed)}")
    expect(len(passed) >= 10, f"only {len(passed)} pass")


def test_each_change_of_compiled_instructions_is_reported(build, folder):
    text = (Path(os.environ["LLMC_PTX"]) / "faults/faults.ptx").read_text()
    begin = text.index("product_kernel")
    end = text.index("\n}", begin)
    for number, (name, (pattern, replacement, part)) in enumerate(CHANGES.items()):
        if "griddepcontrol" in pattern and not OVERLAPS:
            continue
        kernel, count = re.subn(pattern, replacement, text[begin:end])
        expect(count > 0, f"{name}: the kernel has nothing to change:\n{text[begin:end]}")
        changed = folder / str(number)
        changed.mkdir()
        (changed / "faults.ptx").write_text(text[:begin] + kernel + text[end:])
        code, report = run(build / "faults", "product", ptx=changed)
        expect(code == 1 and part in report, f"{name}: not reported as '{part}': exit code {code}: {report}")
        expect("wrong" in part or "undefined" in part or "compiled_faults.h:" in report, f"{name}: no line: {report}")


if __name__ == "__main__":
    sys.exit(run_tests(globals(), lambda folder: [Path(sys.argv[1]).resolve(), folder], *sys.argv[2:3]))
