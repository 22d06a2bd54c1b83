#!/usr/bin/env python3
"""Tests train_gpt2 --plan: memory is that of --dry-run, layouts that are left out are slower, and mistakes are named.

    python3 test/test_plan_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does.
"""
import csv
import json
import random
import re
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from runner import expect  # noqa: E402
from test_programs import run_program_tests  # noqa: E402

MODEL = ["--layers", 8, "--heads", 8, "--channels", 128, "--context", 128, "--seq-len", 128, "--vocab-size", 512,
         "--dtype", "bf16"]
PLAN = [*MODEL, "--plan", "--machine", "h100"]


def plan(program, *arguments, name="plan.json"):
    text = program.run(*PLAN, *arguments, "--plan-out", name).stdout
    return json.loads((program.folder / name).read_text()), text


def largest_bytes(text):
    """The memory of the rank that needs the most, by --dry-run."""
    text = text.split(" per step:")[0]
    totals = re.findall(r"^  in all: (\d+) bytes", text, re.M) or re.findall(r"^  in all +(\d+) ", text, re.M)
    return max(map(int, totals))


def most_sent(text):
    """{kind of group: bytes of the rank that sends the most to it}, by --dry-run."""
    most = {"tensor": 0, "pipeline": 0, "data": 0}
    for rank in text.split(" per step:\n")[1:]:
        lines = {name: int(number) for name, number in re.findall(r"^  ([^:\n]+): (\d+) bytes", rank, re.M)}
        sums = {kind: sum(number for name, number in lines.items() if name.endswith(f"to {kind} ranks"))
                for kind in ("tensor", "pipeline")}
        sums["data"] = lines["gradients"] + lines["weights"] + lines["norm and loss"]
        most = {kind: max(number, sums[kind]) for kind, number in most.items()}
    return most


def test_memory_and_simulated_bytes_are_those_of_a_dry_run_in_30_layouts(program):
    result, _ = plan(program, "--ranks", 16, "--total-batch-tokens", 32 * 128, "--top", 3000)
    layouts = [row for row in result["layouts"] if row["status"] == "fits"]
    chosen = random.Random(1).sample(layouts, 30)
    expect({row["pp"] for row in chosen} != {1} and {row["tp"] for row in chosen} != {1}, chosen)
    for row in chosen:
        text = program.run(*MODEL, "--ranks", 16, *shlex.split(row["flags"]), "--dry-run").stdout
        expect(largest_bytes(text) == row["bytes"], (row["flags"], row["bytes"], text))
        simulated = {kind: row[f"{kind}_bytes"] for kind in ("tensor", "pipeline", "data")}
        expect(simulated == most_sent(text), (row["flags"], simulated, text))


def test_a_predicted_timeline_is_drawn(program):
    run = [*MODEL, "--ranks", 4, "--pp", 4, "--grad-accum", 8, "--dry-run"]
    messages = program.run(*run, "--dump-schedule", "plan.html", "--machine", "h100").stderr
    expect(re.search(r"bubble 37.5% if all passes take equal time, [\d.]+% predicted for llmc on DGX H100", messages), messages)
    expect("Predicted: llmc on DGX H100 (80 GB)" in (program.folder / "plan.html").read_text(), "no predicted timeline")
    program.run(*run, "--dump-schedule", "plan.json", "--machine", "h100")
    events = json.loads((program.folder / "plan.json").read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    expect("rank 3, predicted" in names and "rank 3, planned" in names, names)
    ends = [event["ts"] + event["dur"] for event in events if event["ph"] == "X"]
    expect(len(ends) > 2 * 4 * 16, "passes of both, and messages")


def test_a_layout_that_fits_runs_and_one_that_does_not_is_refused(program):
    result, text = plan(program, "--ranks", 8, "--total-batch-tokens", 2 ** 21, "--gpu-memory", 2.25, "--top", 20)
    by_status = {status: [row for row in result["layouts"] if row["status"] == status]
                 for status in ("fits", "does not fit")}
    expect(len(by_status["fits"]) >= 20 and by_status["does not fit"], text)
    for status, rows in by_status.items():
        for row in rows[:4]:
            program.run(*MODEL, "--ranks", 8, *shlex.split(row["flags"]), "--dry-run", "--gpu-memory", 2.25,
                        code=0 if status == "fits" else 1)


def test_bounds_leave_out_only_layouts_that_are_slower(program):
    arguments = ["--ranks", 16, "--total-batch-tokens", 64 * 128]
    few, _ = plan(program, *arguments, "--top", 5)
    most, _ = plan(program, *arguments, "--top", 10000)
    times = [row["step_ms"] for row in most["layouts"] if row["status"] == "fits"]
    expect(times == sorted(times) and len(times) > 100, len(times))
    expect([row["step_ms"] for row in few["layouts"] if row["status"] == "fits"][:5] == times[:5], few["layouts"][:5])
    expect(len(few["layouts"]) == len(most["layouts"]), "each layout is listed")
    for row in few["layouts"]:
        if row["status"] == "slower":
            expect(row["step_ms"] >= times[4], row)


def test_the_table_names_machine_software_and_reasons(program):
    text = program.run(*PLAN, "--ranks", 8, "--top", 2, "--tokens", 1e9, "--software", "megatron-2021",
                       "--plan-out", "plan.csv").stdout
    for phrase in ("plan of 8 ranks: software megatron-2021 on DGX H100 (80 GB)\n", "accuracy of times: 6% on average",
                   "days   GPU hours", "not ranked:\n", " are slower; the next takes at least "):
        expect(phrase in text, (phrase, text))
    rows = list(csv.DictReader((program.folder / "plan.csv").read_text().splitlines()))
    expect(sum(row["status"] == "fits" for row in rows) >= 2 and all(row["flags"] for row in rows), rows[:3])
    text = program.run(*PLAN, "--ranks", 6, "--tp", 3, code=1).stdout
    expect("--tp 3: it does not divide the 8 heads\n" in text and "no layout fits" in text, text)


def test_large_clusters_are_planned(program):
    big = ["--model", "d48", "--seq-len", 1024, "--dtype", "bf16", "--plan", "--machine", "h100"]
    text = program.run(*big, "--ranks", 4608, "--total-batch-tokens", 4608 * 1024).stdout
    expect("plan of 4608 ranks" in text and "\n   1 " in text, text)


def test_frozen_parts_and_adapters_take_less_time(program):
    times = {}
    for name, flags in {"all": [], "upper": ["--train-only", "h.[2-9].*"], "lora": ["--lora", 2],
                        "head": ["--train-only", "ln_f.*"]}.items():
        program.run(*MODEL, "--plan", "--ranks", 1, "--batch-size", 8, "--grad-accum", 1, "--recompute", "none",
                    "--machine", "cpu", "--plan-out", "plan.json", *flags)
        times[name] = next(row for row in json.loads((program.folder / "plan.json").read_text())["layouts"]
                           if row["status"] == "fits")["step_ms"]
    expect(0.3 * times["all"] < times["head"] < 0.5 * times["all"], times)
    expect(times["head"] < times["lora"] < 0.8 * times["all"], times)
    expect(times["head"] < times["upper"] < 0.95 * times["all"], times)


def test_mistakes_are_named(program):
    program.fails(*PLAN[:-1], "h300", phrases=["no machine is called 'h300'", "a100, a100-sheet, cpu, h100, h200, v100, v100-2019"])
    program.fails(*PLAN, "--software", "x", phrases=["no software is called 'x'", "llmc, megatron-2019"])
    program.fails(*MODEL, "--machine", "h100", phrases=["--machine needs --plan, --mesh auto or --dump-schedule"], code=2)
    program.fails(*MODEL, "--top", 3, phrases=["--top needs --plan"], code=2)
    program.fails(*PLAN, "--dry-run", phrases=["--plan and --dry-run exclude each other"], code=2)
    program.fails(*PLAN, "--plan-out", "x.txt", phrases=["'x.txt' does not end in .csv or .json"], code=2)
    program.fails(*PLAN, "--ranks", 4, "--total-batch-tokens", 100, phrases=["--total-batch-tokens"])
    program.fails(*PLAN, "--ranks", 4, "--gpu-memory", 2.001, phrases=["no layout of 4 ranks fits"])


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
