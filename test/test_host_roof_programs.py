#!/usr/bin/env python3
"""Tests dev/host_roof.py and its program, which time a training step next to its roof.

    python3 test/test_host_roof_programs.py build/host [PATTERN]

Prints `ok NAME`, `FAILED NAME: reason` or `[skipped] NAME: reason` for each test, then
`N passed, N failed, N skipped`; exits with 1 if a test failed.
"""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from runner import Skip, expect, run_tests

ROOT = Path(__file__).resolve().parent.parent
SPREADS = ("step_ms", "products_ms", "traffic_ms", "attention_roof_ms", "product_gflop_s", "copy_gb_s")
FIELDS = {"model", "batch_size", "seq_len", "vocabulary", "dtype", "threads", "matrix_library", "steps_ms",
          "code_gop_s", "share_of_roof", "share_of_products", "operations", "products", *SPREADS}
TINY = ["--model", "tiny", "--batch-size", 2, "--seq-len", 32, "--steps", 20, "--product-ms", 2, "--memory-mib", 16]


def run(command, folder, code=0, **environment):
    done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True, timeout=600,
                          env={**os.environ, **environment})
    expect(done.returncode == code, f"{command}: exit code {done.returncode}, not {code}: {done.stderr[-800:]}")
    return done


def script(program, folder, *arguments, code=0):
    return run([sys.executable, ROOT / "dev/host_roof.py", "--program", program, *arguments], folder, code)


def report_of(program, folder, *arguments, **environment):
    report = json.loads(run([program, *TINY, *arguments], folder, **environment).stdout)
    expect(set(report) == FIELDS, f"fields {sorted(set(report) ^ FIELDS)}")
    return report


def check_total(total_ms, steps_ms):
    """The time of all operations is the mean of some of the steps, of which other programs may disturb any."""
    expect(0.999 * min(steps_ms) < total_ms < 1.001 * max(steps_ms), f"operations: {total_ms} ms, steps: {steps_ms}")


def check_sums(report):
    """The roofs of the operations add up to those of the step, and their times to that of the step."""
    sums = {}
    for operation in report["operations"]:
        sums[operation["kind"]] = sums.get(operation["kind"], 0) + operation["roof_ms"]
    for kind, key in (("product", "products_ms"), ("traffic", "traffic_ms"), ("attention", "attention_roof_ms")):
        expect(sums[kind] > 0 and abs(sums[kind] / report[key] - 1) < 1e-6, f"{kind}: {sums[kind]}, {report[key]}")
    check_total(sum(operation["ms"] for operation in report["operations"]), report["steps_ms"])
    roof = (report["products_ms"] + report["traffic_ms"] + report["attention_roof_ms"]) / report["step_ms"]
    expect(0 < report["share_of_products"] < report["share_of_roof"], f"shares {report['share_of_products']}")
    expect(abs(report["share_of_roof"] / roof - 1) < 1e-6, f"shares {report['share_of_roof']}, {roof}")


def test_program_reports_a_step_and_its_roof(program, folder):
    for dtype in ("fp32", "bf16"):
        report = report_of(program, folder, "--dtype", dtype, LLMC_HOST_THREADS="1")
        expect((report["dtype"], report["threads"], report["seq_len"]) == (dtype, 1, 32), f"{report}")
        expect(len(report["steps_ms"]) == 20, f"{len(report['steps_ms'])} steps")
        check_sums(report)


def test_products_are_those_of_the_profile(program, folder):
    """The FLOP of the products alone are those that the operations of the step have counted."""
    report = report_of(program, folder, "--vocabulary", 300, "--dtype", "fp32")
    expect(len(report["products"]) == 4 * 3 + 3, f"{len(report['products'])} products")
    counted = {o["name"].split("/")[-1]: o["flops"] for o in report["operations"] if o["kind"] == "product"}
    expect(len(counted) == 6, f"operations {sorted(counted)}")
    for name, flops in counted.items():
        products = [p for p in report["products"] if p["operation"] == name]
        total = sum(2 * p["calls"] * p["m"] * p["k"] * p["n"] for p in products)
        expect(total == flops > 0, f"{name}: {total} FLOP, not {flops}")
        expect(all(p["ms"] > 0 and p["gflop_s"] > 0 for p in products), f"{name}: {products}")


def test_script_writes_tables_and_numbers(program, folder):
    done = script(program, folder, "--dry", "--json", "roof.json")
    record = json.loads((folder / "roof.json").read_text())
    expect(record["rounds"] == 2 and record["machine"]["matrix_library"], f"{record['machine']}")
    names = [(s["dtype"], s["seq_len"], s["threads"]) for s in record["settings"]]
    expect(len(set(names)) == len(names) and {(s[0], s[1]) for s in names} ==
           {(dtype, T) for dtype in ("fp32", "bf16") for T in (16, 64)}, f"settings {names}")
    for s in record["settings"]:
        for key in (*SPREADS, "share_of_roof", "share_of_products"):
            spread = s[key]
            expect(0 < spread["min"] <= spread["median"] <= spread["max"], f"{names}: {key}: {spread}")
            expect(len(spread["rounds"]) == 2, f"{key}: {spread}")
        for turn, steps_ms in enumerate(s["steps_ms"]):
            check_total(sum(spread["rounds"][turn] for spread in s["measured_ms"].values()), steps_ms)
    for phrase in ("machine: ", "tiny bf16", "operations of tiny bf16", "backward/attention backward", "roof/step"):
        expect(phrase in done.stdout, f"'{phrase}' is not in: {done.stdout}")


def test_script_draws_a_picture(program, folder):
    if not shutil.which("gnuplot"):
        raise Skip("gnuplot is missing")
    script(program, folder, "--dry", "--dtypes", "fp32", "--rounds", 1, "--plot", "roof.svg")
    picture = (folder / "roof.svg").read_text()
    for phrase in ("roof", "attention", "products", "rest", "2x16", "1x64", "tiny fp32"):
        expect(phrase in picture, f"'{phrase}' is not in the picture")


def test_wrong_flags_are_reported_in_one_line(program, folder):
    cases = [(["--rounds", "0"], "--rounds: '0'; allowed"), (["--dtypes", "fp8"], "'fp8'; allowed: fp32 and bf16"),
             (["--models", "gpt2"], "'gpt2'; allowed"), (["--seq-lens", "64,x"], "'64,x'; allowed"),
             (["--threads", "9999"], "'9999'; allowed"), (["--steps", "2,3"], "'2,3'; allowed"),
             (["--unknown"], "--unknown"), (["--plot", "roof.pdf"], "must end in .svg or .png"),
             (["--json", "no/roof.json"], "no such folder"), (["--program", "no"], "--program no: no such file"),
             (["--seq-lens", "64", "--operations-at", "65"], "allowed: 64")]
    for arguments, phrase in cases:
        message = script(program, folder, *arguments, code=2).stderr
        expect(message.count("\n") == 1 and phrase in message, f"{arguments}: {message}")
    for arguments, phrase in ((["--x", "1"], "--x is not a flag; allowed"), (["--steps"], "--steps has no value"),
                              (["--steps", "0"], "--steps 0; allowed: 1 to"), (["--seq-len", "6x"], "6x; allowed"),
                              (["--dtype", "fp16"], "--dtype fp16; allowed: fp32, bf16")):
        message = run([program, *arguments], folder, code=2).stderr
        expect(message.count("\n") == 1 and phrase in message, f"{arguments}: {message}")


def threads_text():
    cores = len(os.sched_getaffinity(0))
    return f"{cores} thread{'' if cores == 1 else 's'}"


def test_failed_run_is_reported_with_its_setting(program, folder):
    failing = folder / "failing"
    failing.write_text("#!/bin/sh\necho 'host_roof: no memory' >&2\nexit 1\n")
    failing.chmod(0o755)
    message = script(failing, folder, "--dry", code=1).stderr
    expect(message == "host_roof.py: tiny 2x16 fp32, " + threads_text() + ": host_roof: no memory\n", message)


if __name__ == "__main__":
    build_folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/host").resolve()
    sys.exit(run_tests(globals(), lambda folder: (build_folder / "host_roof", folder), *sys.argv[2:3]))
