#!/usr/bin/env python3
"""Runs each fault of test/faults/faults.cu and of the headers next to it. The host executor or a sanitizer must
report it at its marked lines, and must report nothing with --fixed, which corrects it.

    test/test_faults.py [NAME...]     runs make for the programs it needs; * is a wildcard

Prints `ok NAME` or `FAILED NAME: reason` and ends with `N passed, N failed, N skipped`.
"""
import fnmatch
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = [ROOT / f"test/faults/{name}" for name in
           ("faults.cu", "stream_faults.h", "overlap_faults.h", "transfer_faults.h", "access_faults.h", "guard_faults.h",
            "compiled_faults.h")]

# Name of a build: (value of SANITIZE for make, path of the program).
BUILDS = {
    "plain": ("", "build/host/faults"),
    "address": ("address,undefined", "build/host-asan/faults"),
    "thread": ("thread", "build/host-tsan/faults"),
}
RACE = ("thread", {}, "data race")
ACCESS = ("address", {}, "AddressSanitizer")
UNINITIALISED = ("address", {"TRAP_UNINITIALISED": "1"}, "uninitialised read")
MISALIGNED = [(build, {}, "of a vector of 16 bytes is not a multiple of 16") for build in ("address", "thread")]
GUARD = {"LLMC_GUARD": "1"}
# The host executor itself reports these, in every build.
DIVERGENCE = [(build, {}, "divergent barrier") for build in BUILDS]
UNFINISHED = [(build, {}, "never waited") for build in BUILDS]



def guard(text):
    return [("plain", GUARD, text)]


# Name of a fault: one (build that must report it, environment, text of the report) per build.
EXPECTED = {
    "race_in_block": [RACE],
    "race_in_warp": [RACE],
    "race_between_blocks": [RACE],
    "race_with_next_block": [RACE],
    "race_with_block_before": [RACE],
    "reduction_0": [RACE],
    "reduction_1": [RACE],
    "pipeline_0": [ACCESS],
    "pipeline_1": [RACE],
    "pipeline_2": [RACE],
    "out_of_bounds_global": [ACCESS],
    "out_of_bounds_shared": [ACCESS],
    "out_of_bounds_copy": [ACCESS],
    "missing_copy_wait": [ACCESS],
    "wait_for_too_few": [ACCESS],
    "copy_never_waited_for": UNFINISHED,
    "uninitialised_shared": [UNINITIALISED],
    "uninitialised_global": [UNINITIALISED],
    "misaligned_load": MISALIGNED,
    "misaligned_store": MISALIGNED,
    "divergent_barrier": DIVERGENCE,
    "divergent_collective": DIVERGENCE,
    "lane_returned": DIVERGENCE,
    "missing_event": [RACE],
    "missing_event_back": [RACE],
    "missing_synchronize": [RACE],
    "early_use": [RACE],
    "busy_slot": [RACE],
    "early_leave": [RACE],
    "early_reuse": [RACE],
    "early_update": [RACE],
    "early_weights": [RACE],
    "missing_event_before_collective": [RACE],
    "missing_event_after_collective": [RACE],
    "early_read": [RACE],
    "early_next": [RACE],
    "early_older": [RACE],
    "early_own": [RACE],
    "early_write": [RACE],
    "early_graph": [RACE],
    "missing_overlap_synchronize": [RACE],
    "host_read": guard("host code reads device memory"),
    "host_write": guard("host code writes device memory"),
    "host_read_of_rank": guard("host code reads device memory"),
    "wrong_side": guard("the destination of a copy is device memory, not host memory"),
    "long_copy": guard("runs past the end of device memory"),
    "stale_result": guard("wrong value"),
    "stale_event": guard("wrong value"),
    "early_source": guard("wrong value"),
    "stale_input": guard("wrong value"),
    "pageable_graph": guard("pageable memory cannot be copied while a graph records it"),
    "merge_plain": [RACE],
    "merge_early": [RACE],
    "merge_uncounted": [RACE],
    "merge_reset": [RACE],
}


# Only kernels as nvcc compiled them are checked for these (test_ptx_fault_programs.py).
COMPILED = {"early_arrival", "next_tensor", "undefined_index", "undefined_branch"}


def marked_lines():
    """Fault name -> the lines that are marked with it, as file:line."""
    lines = {}
    for source in SOURCES:
        for number, text in enumerate(source.read_text().splitlines(), 1):
            mark = re.search(r"// FAULT: (.*)$", text)
            for name in mark[1].split() if mark else ():
                lines.setdefault(name, []).append(f"{source.name}:{number}")
    return lines


def build(names):
    """Builds the programs that the faults need. Returns {build: command}, or the error as text."""
    commands = {}
    for name in sorted({kind[0] for fault in names for kind in EXPECTED[fault]}):
        sanitize, program = BUILDS[name]
        result = subprocess.run(["make", "--no-print-directory", f"SANITIZE={sanitize}", program],
                                cwd=ROOT, capture_output=True, text=True)
        if result.returncode != 0:
            return f"{program} was not built:\n{result.stdout}{result.stderr}"
        commands[name] = [str(ROOT / program)]
        # Older ThreadSanitizers cannot start if the kernel randomises many address bits: disable that.
        if subprocess.run(commands[name] + ["--list"], capture_output=True).returncode != 0:
            commands[name] = ["setarch", "-R"] + commands[name]
    return commands


def run(command, name, environment, *flags):
    """Returns (exit code, standard output and error)."""
    merged = {**os.environ, "LLMC_HOST_THREADS": "2", **environment}
    result = subprocess.run(command + [name, *flags], env=merged, text=True, timeout=120,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return result.returncode, result.stdout


def with_lines(program, report):
    """The report with the lines of its stack frames: a trace of the operating system has only offsets, and so have
    those of sanitizers for functions that several files may define."""
    offsets = re.findall(r"faults\(?\+(0x[0-9a-f]+)\)", report)
    if not offsets:
        return report
    lines = subprocess.run(["addr2line", "-i", "-e", program, *offsets], capture_output=True, text=True, check=True)
    return report + lines.stdout


def report_error(name, command, kind, lines):
    """Returns what is wrong with the report of a fault or with the output of its fixed version, or ''."""
    build_name, environment, text = kind
    code, report = run(command, name, environment)
    if code == 0:
        return f"{build_name}: not reported\n{report}"
    report = with_lines(command[-1], report)
    if text not in report:
        return f"{build_name}: reported, but not as '{text}'\n{report}"
    for line in lines:
        if not re.search(rf"\b{re.escape(line)}\b", report):
            return f"{build_name}: the report does not name {line}\n{report}"
    code, report = run(command, name, environment, "--fixed")
    if code != 0 or report:
        return f"{build_name}: the fixed version returns exit code {code} and prints\n{report}"
    return ""


def main(patterns):
    os.environ.pop("MAKEFLAGS", None)
    os.environ.pop("MAKELEVEL", None)
    lines = marked_lines()
    names = [name for name in EXPECTED if any(fnmatch.fnmatch(name, p) for p in patterns or ["*"])]
    commands = build(names)
    passed = failed = 0
    if isinstance(commands, str):
        print(f"FAILED: {commands}")
        names, failed = [], 1
    for name in names:
        reason = "" if name in lines else "no line is marked with it"
        for kind in [] if reason else EXPECTED[name]:
            reason = reason or report_error(name, commands[kind[0]], kind, lines[name])
        if reason:
            failed += 1
            print(f"FAILED {name}: {reason}", flush=True)
        else:
            passed += 1
            print(f"ok     {name}: {', '.join(kind[0] for kind in EXPECTED[name])}", flush=True)
    unknown = sorted(set(lines) - set(EXPECTED) - COMPILED)
    if unknown:
        failed += 1
        print(f"FAILED: marked, but missing in EXPECTED: {', '.join(unknown)}")
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
