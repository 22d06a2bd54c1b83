#!/usr/bin/env python3
"""Short training runs under compute-sanitizer: memcheck, racecheck, synccheck and initcheck, in fp32 and bf16.

    sanitize.py --program build/cuda/train_gpt2 [--device cuda] [--seconds N]

Fails (exit code 1) if a tool finds an error, or if the run under it fails. Some results are reported but are
no fault of the program: the tool is missing or rejects this device, the run was too slow under it, or the
report is about NVIDIA's own GEMM kernels (except out-of-bounds accesses).
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
ERROR_EXIT_CODE = 9  # of the tool, if it detects an error
RUN_SECONDS = 60
# Kernels that are not ours, by their names in cuBLAS and cuBLASLt.
LIBRARY_KERNEL = re.compile(r"cublas|cutlass|gemm|gemv|xmma|nvjet|splitK", re.IGNORECASE)
REFUSALS = ("Device not supported", "not supported on this", "Unable to find injection library", "Failed to initialize")


def reports(output):
    """The errors and hazards in a tool's output, each with all of its lines."""
    blocks, block = [], None
    for line in output.splitlines():
        if not line.startswith("========="):
            continue
        text = line.lstrip("=").rstrip()
        if re.match(r" (?:ERROR SUMMARY|RACECHECK SUMMARY|LEAK SUMMARY|COMPUTE-SANITIZER)", text) or not text.strip():
            block = None
        elif re.match(r" (?:Error|Warning|Invalid|Uninitialized|Barrier|Program hit|Fatal|Out-of-|Misaligned)", text):
            block = [text.strip()]
            blocks.append(block)
        elif block is not None:
            block.append(text.strip())
    return ["\n".join(block) for block in blocks]


def is_library_report(tool, report):
    """Whether the report is about the inside of an NVIDIA kernel; our kernels are in namespace llmc. An
    out-of-bounds access is ours in any case, because our code passed the pointer.
    """
    return tool != "memcheck" and "llmc::" not in report and LIBRARY_KERNEL.search(report) is not None


def judge(tool, code, output):
    """(good, text of the result) of a finished run."""
    for refusal in REFUSALS:
        if refusal in output:
            return True, f"not run: {refusal}"
    all_reports = reports(output)
    ours = [report for report in all_reports if not is_library_report(tool, report)]
    note = f", {len(all_reports) - len(ours)} reports about library kernels ignored" if len(ours) < len(all_reports) else ""
    summary = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", output)
    if ours:
        return False, f"{len(ours)} reports, the first: {ours[0].splitlines()[0]}{note}"
    if not summary:
        return False, f"no summary, exit code {code}"
    if code == ERROR_EXIT_CODE and all_reports:
        return True, f"clean{note}"
    if code != 0 or not re.match(r"0 (?:errors|hazards)", summary[1]):
        return False, f"exit code {code}, {summary[1]}"
    return True, "clean" + note


def find_tool():
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    sibling = os.path.join(os.path.dirname(os.path.realpath(nvcc)), "compute-sanitizer")
    return shutil.which("compute-sanitizer") or (sibling if os.access(sibling, os.X_OK) else None)


def training_run(program, device, dtype):
    """The command of three steps that use every kernel of training; odd sizes leave tiles partly filled."""
    return [program, "--device", device, "--dtype", dtype, "--layers", "2", "--heads", "3", "--channels", "72", "--context",
            "50", "--batch-size", "2", "--grad-accum", "2", "--steps", "3", "--eval-every", "0", "--sample-every", "0"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the program train_gpt2")
    parser.add_argument("--device", default="cuda", help="its --device; the tools run only with cuda [cuda]")
    parser.add_argument("--seconds", type=float, default=240, metavar="N",
                        help="time limit for all runs together, in seconds [240]")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    tool_path = find_tool() if arguments.device == "cuda" else None
    bad = 0
    for tool in TOOLS:
        for dtype in ("bf16", "fp32"):
            run = training_run(arguments.program, arguments.device, dtype)
            if tool_path is None:
                reason = "compute-sanitizer is not installed" if arguments.device == "cuda" else "no GPU in a dry run"
                print(f"result: {tool} {dtype}: not run: {reason}", flush=True)
                continue
            limit = min(RUN_SECONDS, end - time.monotonic())
            if limit < 5:
                reason = f"the time limit of {arguments.seconds:.0f} s is reached"
                print(f"result: {tool} {dtype}: not run: {reason}", flush=True)
                continue
            command = [tool_path, "--tool", tool, "--error-exitcode", str(ERROR_EXIT_CODE), "--print-limit", "20",
                       *(["--report-api-errors", "no"] if tool == "memcheck" else []), *run]
            print(f"---- {' '.join(command)}", flush=True)
            start = time.monotonic()
            try:
                done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit)
            except subprocess.TimeoutExpired:
                print(f"result: {tool} {dtype}: stopped after {limit:.0f} s", flush=True)
                continue
            print(done.stdout, flush=True)
            good, text = judge(tool, done.returncode, done.stdout)
            bad += not good
            print(f"result: {tool} {dtype}: {text} ({time.monotonic() - start:.0f} s)", flush=True)
    if arguments.device != "cuda":  # no tool without a GPU: only the run is tried
        done = subprocess.run(training_run(arguments.program, arguments.device, "bf16"), timeout=RUN_SECONDS)
        print(f"result: the run that would be checked: exit code {done.returncode}", flush=True)
        bad += done.returncode != 0
    return 1 if bad else 0


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    import standard_output
    standard_output.run(main)
