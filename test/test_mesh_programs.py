#!/usr/bin/env python3
"""Tests --mesh auto and --measure-machine of train_gpt2: ranks that choose their layout, and the file it is chosen from.

    python3 test/test_mesh_programs.py build/host [PATTERN]

LLMC_LONG=1 also runs 30 layouts. Prints and exits as test_programs.py does.
"""
import json
import os
import random
import re
import shlex
import sys

from runner import Skip, expect
from test_checkpoint_programs import QUIET
from test_programs import ROOT, run_program_tests
from test_rank_programs import mpirun

LONG = os.environ.get("LLMC_LONG", "0") != "0"
MODEL = ["--train", "text.txt", "--layers", 4, "--heads", 4, "--channels", 32, "--context", 8]
LARGER = ["--train", "text.txt", "--layers", 4, "--heads", 4, "--channels", 128, "--context", 32]
TRAIN = [*MODEL, *QUIET, "--eps", 1e-4, "--seed", 5, "--steps", 4]
AUTO = [*TRAIN, "--mesh", "auto"]


def lines_of(program, name):
    return [line for line in map(json.loads, (program.folder / name).read_text().splitlines()) if "loss" in line]


def flags_of(messages):
    return shlex.split(re.search(r"^mesh: (--tp .*)$", messages, re.M)[1])


def test_8_ranks_choose_a_layout_say_why_and_train_as_the_same_flags_do(program):
    messages = mpirun(program, 8, *AUTO, "--log", "auto.jsonl")[1]
    flags = flags_of(messages)
    for phrase in (r"predicted to be the fastest on .*: [\d.]+ ms per step, [\d.]+ GiB of [\d.]+ per rank",
                   r"the next takes [\d.]+% longer: --tp", r"\d+ layouts compared"):
        expect(re.search(phrase, messages), (phrase, messages))
    mpirun(program, 8, *TRAIN, *flags, "--log", "flags.jsonl")
    mpirun(program, 8, *TRAIN, "--log", "plain.jsonl")
    auto, same, plain = (lines_of(program, f"{name}.jsonl") for name in ("auto", "flags", "plain"))
    expect(len(auto) == 4 and [line["tokens"] for line in auto] == [line["tokens"] for line in plain], auto)
    expect([line["loss"] for line in auto] == [line["loss"] for line in same], "the printed flags are those of the run")
    for ours, theirs in zip(auto, plain):
        expect(abs(ours["loss"] / theirs["loss"] - 1) <= 2e-6, (ours["loss"], theirs["loss"]))


def test_typed_flags_stay(program):
    typed = ["--tp", 2, "--pp", 2, "--batch-size", 1, "--zero", 2, "--recompute", "full"]
    text = program.run(*AUTO, *typed, "--ranks", 8, "--dry-run").stderr
    words = flags_of(text)
    for flag, value in zip(typed[::2], typed[1::2]):
        expect(words[words.index(flag) + 1] == str(value), (flag, words))
    accumulated = flags_of(program.run(*AUTO, "--grad-accum", 4, "--ranks", 4, "--dry-run").stderr)
    expect(accumulated[accumulated.index("--grad-accum") + 1] == "4", accumulated)


def test_a_resumed_run_chooses_again_and_keeps_its_tokens(program):
    mpirun(program, 4, *AUTO, "--stop-after", 2, "--out", "run", "--log", "run.jsonl")
    messages = mpirun(program, 2, "--out", "run", "--resume", "--log", "run.jsonl")[1]
    expect(flags_of(messages) and "--ranks was 4, it is 2 now" in messages, messages)
    tokens = [line["tokens"] for line in lines_of(program, "run.jsonl")]
    expect(tokens == [(step + 1) * tokens[0] for step in range(4)], tokens)
    # Seven ranks cannot divide the sequences of a step, nor four layers.
    error = mpirun(program, 7, "--out", "run", "--resume", "--steps", 6, code=1)[1]
    expect("--mesh auto: no layout of 7 ranks has steps of" in error, error)
    expect("data ranks do not divide the" in error and "hint: type another --total-batch-tokens" in error, error)
    messages = mpirun(program, 2, "--out", "run", "--resume", "--mesh", "flags", "--tp", 2, "--steps", 5)[1]
    expect("\nmesh: --tp" not in messages and '--mesh was "auto", it is "flags" now' in messages, messages)


def test_the_memory_is_that_of_a_plan(program):
    for words in (["--machine", "h100"], ["--machine", "h100", "--gpu-memory", 3], ["--machine", "cpu"], ["--gpu-memory", 3]):
        machine = [] if "--machine" in words else ["--machine", "cpu"]
        plan = program.run(*MODEL, "--plan", "--ranks", 2, *words, *machine).stdout
        auto = program.run(*AUTO, "--ranks", 2, "--dry-run", *words).stderr
        gibibytes = float(re.search(r"GiB of ([\d.]+) per rank", auto)[1])
        expect(f"{gibibytes:.1f} GiB per rank" in plan, (words, gibibytes, plan[:300]))


def test_what_does_not_fit_is_refused(program):
    program.fails(*AUTO, "--ranks", 2, "--dry-run", "--gpu-memory", 2.0001, phrases=["--mesh auto: no layout of 2 ranks fits"])
    program.fails(*AUTO, "--ranks", 2, "--dry-run", "--tp", 3, phrases=["--tp 3"], code=2)
    program.fails(*AUTO, "--plan", phrases=["--mesh and --plan exclude each other"], code=2)
    program.fails(*TRAIN, "--machine", "h100", phrases=["--machine needs --plan, --mesh auto or --dump-schedule"], code=2)
    program.fails(*AUTO, "--machine", "none.json", phrases=["none.json"])


def test_a_measured_machine_is_planned_for(program):
    messages = mpirun(program, 2, "--measure-machine", "machine.json")[0]
    expect("written to machine.json after " in messages, messages)
    machine = json.loads((program.folder / "machine.json").read_text())
    values = {name: one["value"] for name, one in machine["constants"].items()}
    expect("2 ranks per machine, fp32" in machine["machine"] and values["ranks_per_node"] == 2, machine["machine"])
    for name in ("peak_flops_fp32", "product_rate", "memory_bandwidth", "node_bandwidth", "message_bandwidth",
                 "collective_start", "optimizer_scale", "attention_rate"):
        expect(values[name] > 0, (name, values[name]))
    expect(values["hides_communication"] == 0, "MPI occupies the processors that compute")
    origins = {name: one["origin"] for name, one in machine["constants"].items()}
    expect(origins["network_bandwidth"] == "not measured: one machine" and
           origins["product_rate"].startswith("measured by --measure-machine in fp32 with 2 ranks"), origins)
    text = program.run(*MODEL, "--plan", "--ranks", 2, "--machine", "machine.json").stdout
    expect(machine["machine"] in text and "\n   1 " in text, text)
    program.fails("--measure-machine", "machine.txt", phrases=["'machine.txt' does not end in .json"], code=2)


def test_30_real_runs_reserve_what_is_planned(program):
    """Logs round to 0.1 MiB; test_plan_programs.py compares bytes with --dry-run."""
    if not LONG:
        raise Skip("only with LLMC_LONG=1")
    for ranks in (2, 4):
        program.run(*LARGER, "--plan", "--ranks", ranks, "--top", 1000, "--machine", "cpu", "--plan-out", "plan.json",
                    "--total-batch-tokens", 16 * 32)
        layouts = [row for row in json.loads((program.folder / "plan.json").read_text())["layouts"] if row["status"] == "fits"]
        for row in random.Random(ranks).sample(layouts, 15):
            flags = [*LARGER, *QUIET, *shlex.split(row["flags"]), "--steps", 1, "--log", "run.jsonl"]
            (program.folder / "run.jsonl").unlink(missing_ok=True)
            mpirun(program, ranks, *flags)
            reserved = json.loads((program.folder / "run.jsonl").read_text().splitlines()[0])["planned_mem_mb_ranks"]
            expect(max(map(float, reserved.split())) == round(row["bytes"] / 2 ** 20, 1), (row["flags"], row["bytes"], reserved))


def test_the_software_file_is_what_the_operations_count(program):
    sys.path.insert(0, str(ROOT / "dev"))
    from software_file import SOFTWARE, software  # pylint: disable=import-outside-toplevel
    counted, written = software(program.binary), json.loads(SOFTWARE.read_text(encoding="utf-8"))
    expect(counted == written, f"python3 dev/software_file.py writes other values: {counted}")


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
