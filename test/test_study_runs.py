#!/usr/bin/env python3
"""Tests scripts/study with the real programs: an experiment from fresh runs, its continuation, and a second fresh one.

    python3 test/test_study_runs.py build/host [PATTERN]

GPT-2's vocabulary and texts are in LLMC_DATA [../shared/data]; without them, the tests are skipped. Prints `ok NAME`,
`FAILED NAME: why` or `[skipped] NAME: why`, then `N passed, N failed, N skipped`.
"""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from runner import Skip, expect, run_tests

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("LLMC_DATA", ROOT.parent / "shared/data"))
sys.path.insert(0, str(ROOT / "scripts"))
from studies.table_files import exact_part  # noqa: E402


def study(build, out, *words, minutes=0.2):
    environment = {**os.environ, "PROGRAMS": str(build)}
    command = [sys.executable, ROOT / "scripts/study", *words, "--peers", "no", "--repeats", 1, "--budget", minutes, "--out", out]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment, timeout=600)
    expect(done.returncode == 0, f"study {words}: exit code {done.returncode}: {done.stderr[-800:]}")
    return done.stderr


def require_programs(build):
    if not (DATA / "text").exists() or not (DATA / "gpt2").exists():
        raise Skip(f"{DATA} has no text or no gpt2 (LLMC_DATA names another folder)")
    if not shutil.which("mpirun") and not (ROOT / "deps/usr/bin/mpirun").exists():
        raise Skip("mpirun is not installed")


def exact_tables(out):
    return {path.name: exact_part(json.loads(path.read_text())) for path in out.glob("*/zero*.json")}


def test_counted_bytes_are_planned_and_a_second_study_has_the_same_numbers(build, folder):
    require_programs(build)
    text = DATA / "text/tinyshakespeare.txt"
    study(build, folder / "first", "zero", "--data", text, minutes=5)
    table = json.loads((folder / "first/zero/zero-counted.json").read_text())
    expect(not table["problems"] and len(table["rows"]) == 7, f"{table['problems']}")
    expect(all(row["difference"] == 0 and row["counted"] > 0 for row in table["rows"]), f"{table['rows']}")
    log = next((folder / "first/logs").glob("zero3-n4-group2-*/log.jsonl")).read_text().splitlines()
    last = json.loads(log[-1])
    expect(last["epoch"] == last["step"] * 32 / 320, f"epoch {last['epoch']} at step {last['step']}")
    for key in ("cpu_percent_ranks", "host_mem_mb_ranks"):
        expect(len(last[key].split()) == 4, f"{key}: {last[key]}")
    again = study(build, folder / "first", "zero", "--data", text, minutes=5)
    times = [line for line in again.splitlines() if "zero3-n4-group2" in line]
    expect(not times, f"a finished run is repeated: {times}")
    shutil.copytree(folder / "first/inputs", folder / "second/inputs")
    study(build, folder / "second", "zero", "--data", text, minutes=5)
    expect(exact_tables(folder / "second") == exact_tables(folder / "first") != {}, "exact columns differ")


def test_scaling_has_parts_that_add_up(build, folder):
    require_programs(build)
    study(build, folder / "out", "strong", "--ranks", "1,2", "--data", DATA / "text/tinyshakespeare.txt")
    times, parts = (json.loads((folder / f"out/strong/{name}.json").read_text()) for name in ("strong", "strong-parts"))
    expect(not times["problems"] and len(times["rows"]) >= 2, f"{times['problems']}")
    for time, row in zip(times["rows"], parts["rows"]):
        total = sum(row[key]["median"] for key in ("compute", "communication", "bubble", "other"))
        expect(abs(total - time["time"]["median"]) < 0.01 * total, f"{total} and {time['time']}")


if __name__ == "__main__":
    sys.exit(run_tests(globals(), lambda folder: [Path(sys.argv[1]).resolve(), folder], *sys.argv[2:3]))
