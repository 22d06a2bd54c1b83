#!/usr/bin/env python3
"""Measures the processor time of the control threads, which look after the ranks of a run (llmc/control).

    python3 dev/control_cost.py TEXT [--program build/host/train_gpt2] [--ranks 2] [--steps 10] [more flags of train_gpt2]

Trains GPT-2 124M (--model d12) for some steps and prints, for each rank, the processor time of its control thread as a part
of the time that passed. Needs Open MPI and Linux.
"""
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "scripts"))
import standard_output  # noqa: E402
from train_command import arguments_of, train_command  # noqa: E402

SMALL = {"--model": "d12", "--batch-size": 1, "--seq-len": 64, "--grad-accum": 1, "--zero": 1}


def control_threads(session):
    """{process: seconds of its control thread} of the ranks in a session."""
    seconds = {}
    for thread in Path("/proc").glob("[0-9]*/task/[0-9]*"):
        try:
            name, fields = (thread / "comm").read_text().strip(), (thread / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has ended
        if name == "control" and int(fields[3]) == session:
            ticks = int(fields[11]) + int(fields[12])
            seconds[int(thread.parts[2])] = ticks / os.sysconf("SC_CLK_TCK")
    return seconds


def steps_of(log):
    return sum('"loss"' in line for line in log.read_text(encoding="utf-8").splitlines()) if log.exists() else 0


def main():
    def add_flags(parser):
        parser.add_argument("--ranks", type=int, default=2, help="default: 2")
        parser.add_argument("--steps", type=int, default=10, help="default: 10")

    arguments = arguments_of(__doc__.splitlines()[0], add_flags)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        words = train_command(arguments, arguments.ranks, ["--log", log, "--steps", arguments.steps + 1], SMALL)
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                   start_new_session=True)
        samples = {}
        while process.poll() is None:
            count = steps_of(log)
            if count > 0 and count not in samples:
                samples[count] = time.monotonic(), control_threads(process.pid)
            time.sleep(0.01)
        if process.returncode != 0:
            sys.exit(f"control_cost.py: {' '.join(words)} failed:\n{process.stderr.read()}")
        first, last = min(samples), max(count for count in samples if count <= arguments.steps)
        (begin, before), (end, after) = samples[first], samples[last]
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        step_ms = [line["step_ms"] for line in lines if "loss" in line][first:last]
        print(f"{last - first} steps of {sum(step_ms) / len(step_ms):.0f} ms on {arguments.ranks} ranks")
        for rank, pid in enumerate(sorted(before)):
            used = after[pid] - before[pid]
            print(f"process {rank}: control thread: {used:.2f} s of {end - begin:.1f} s, {100 * used / (end - begin):.2f}%")


if __name__ == "__main__":
    standard_output.run(main)
