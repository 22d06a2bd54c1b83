#!/usr/bin/env python3
"""Measures what checkpoints cost: the time that training waits, the time of a save, and host memory.

    python3 dev/save_times.py TEXT [--program build/host/train_gpt2] [--folder DIR] [--ranks 1 2 4] [more flags of train_gpt2]

Trains GPT-2 124M (--model d12) for nine steps: without saves, with --save sync (rank 0 writes), with --save async (all
ranks write), and resumed from the last of these checkpoints for no step. Needs Open MPI and 3 GB of disk. A save that
begins before the last one has ended waits for it, so steps must be long enough (--grad-accum). A row per layout:

  step         the median step of the run without saves
  added        the time between the end of the step that saves and the start of the next one, less the same time after
               other steps; next to it save_gather_ms + save_copy_ms of the log
  write        save_write_ms: until the files are durable
  peak         the largest resident memory of a rank, MiB: without saves, with each kind of save, and of a run that
               only loads
"""
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "scripts"))
import standard_output  # noqa: E402
from train_command import arguments_of, train_command  # noqa: E402

LAYOUTS = {1: [[]], 2: [["--zero", 1]], 4: [["--zero", 1], ["--tp", 2, "--zero", 1]], 8: [["--tp", 2, "--zero", 2]]}
STEPS, EVERY = 9, 4
SMALL = {"--model": "d12", "--batch-size": 1, "--seq-len": 64, "--grad-accum": 1}


def measured(words):
    """Runs a rank, and appends its peak of resident memory to the file that is the first word."""
    code = subprocess.run(words[1:], check=False).returncode
    with open(words[0], "a", encoding="utf-8") as file:
        file.write(f"{resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024}\n")
    return code


class Watch(threading.Thread):
    """Notes when each line of a log that is being written arrives."""

    def __init__(self, log):
        super().__init__(daemon=True)
        self.log, self.ended, self.lines = log, False, []

    def run(self):
        while not self.log.exists():
            if self.ended:
                return
            time.sleep(0.001)
        rest = ""
        with open(self.log, encoding="utf-8") as file:
            while True:
                was_last = self.ended
                rest += file.read()
                *lines, rest = rest.split("\n")
                self.lines += [(time.monotonic(), json.loads(line)) for line in lines]
                if was_last:
                    return
                time.sleep(0.001)


class Run:
    def __init__(self, arguments, folder, ranks, flags, steps=STEPS):
        log, peaks = folder / "log.jsonl", folder / "peaks"
        for old in (log, peaks):
            old.unlink(missing_ok=True)
        words = train_command(arguments, ranks, ["--log", log, "--steps", steps, *flags], SMALL,
                              starter=[sys.executable, __file__, "--measured", peaks])
        watch = Watch(log)
        watch.start()
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})
        watch.ended = True
        watch.join()
        if done.returncode != 0:
            sys.exit(f"save_times.py: {' '.join(words)} failed:\n{done.stderr}")
        self.peak = max(map(float, peaks.read_text(encoding="utf-8").split()))
        self.steps = {line["step"]: (at, line) for at, line in watch.lines if "loss" in line}
        self.saves = {line["step"]: line for _, line in watch.lines if "saved" in line}

    def step(self):
        return statistics.median(line["step_ms"] for step, (_, line) in self.steps.items() if step > 1)

    def added(self):
        """For each save but the last: the time it added between two steps, ms."""
        between = {}
        for step in range(1, STEPS):
            (end, _), (next_end, line) = self.steps[step], self.steps[step + 1]
            between[step] = 1e3 * (next_end - end) - line["step_ms"]
        plain = statistics.median(ms for step, ms in between.items() if step % EVERY != 0)
        return [between[step] - plain for step in between if step % EVERY == 0]

    def part(self, *names):
        return [sum(line[f"save_{name}_ms"] for name in names) for step, line in self.saves.items() if step < STEPS]


def seconds(values):
    return " ".join(f"{value / 1e3:.2f}" for value in values)


def row(cells):
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def measure(arguments, folder, ranks, layout):
    out = folder / "out"
    save = ["--out", out, "--checkpoint-every", EVERY, "--keep-checkpoints", 1]
    runs = {"none": Run(arguments, folder, ranks, layout)}
    for kind in ("sync", "async"):
        shutil.rmtree(out, ignore_errors=True)
        runs[kind] = Run(arguments, folder, ranks, [*layout, *save, "--save", kind])
    loaded = Run(arguments, folder, ranks, [*layout, "--out", out, "--resume"])  # no step is left
    shutil.rmtree(out)
    for kind in ("sync", "async"):
        run = runs[kind]
        row([ranks, " ".join(map(str, layout)) or "-", kind, f"{runs['none'].step() / 1e3:.2f}", seconds(run.added()),
             seconds(run.part("gather", "copy")), seconds(run.part("write")), f"{runs['none'].peak:.0f}", f"{run.peak:.0f}",
             f"{loaded.peak:.0f}" if kind == "async" else ""])


def main():
    def add_flags(parser):
        parser.add_argument("--folder", help="folder for checkpoints; default: a temporary one")
        parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4], choices=LAYOUTS, help="default: 1 2 4")

    arguments = arguments_of(__doc__.splitlines()[0], add_flags)
    row(["ranks", "layout", "save", "step, s", "added, s", "gather + copy, s", "write, s", "peak, MiB", "peak with saves",
         "peak of loading"])
    row(["---"] * 10)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for ranks in arguments.ranks:
            for layout in LAYOUTS[ranks]:
                measure(arguments, Path(folder), ranks, layout)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measured"]:
        sys.exit(measured(sys.argv[2:]))
    standard_output.run(main)
