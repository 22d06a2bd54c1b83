#!/usr/bin/env python3
"""Measures how well train_gpt2 predicts the end of a run: six runs with validation, samples and saves.

    python3 test/eta_accuracy.py build/host [SECONDS]

Prints one line per run: the relative error of the first ETA, and the largest error from the second minute on (or from
a third of SECONDS on, the length of a run, if that is earlier; 150 by default). An error is (predicted end - real
end) / real duration. Two runs go at the same time.
"""
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TEXT = "".join(f"line {i}: the quick brown fox jumps over the lazy dog.\n" for i in range(20_000))
SIZES = ["--layers", 2, "--heads", 2, "--channels", 64, "--context", 64, "--batch-size", 8]
# The flags of the runs; the first value is a number of steps per 100 of which a kind of work is due.
RUNS = {"validation": ["--eval-every", 5, "--eval-batches", 30, "--sample-every", 0],
        "samples": ["--eval-every", 10, "--eval-batches", 5, "--sample-every", 5],
        "saves": ["--eval-every", 0, "--sample-every", 20, "--checkpoint-every", 2],
        "all": ["--eval-every", 5, "--eval-batches", 10, "--sample-every", 5, "--checkpoint-every", 5],
        "rare": ["--eval-every", 25, "--eval-batches", 0, "--sample-every", 25, "--checkpoint-every", 25],
        "late": ["--eval-every", 50, "--eval-batches", 200, "--sample-every", 0, "--checkpoint-every", 50,
                 "--final-samples-out", "samples.txt"]}
UNITS = {"s": 1, "min": 60, "h": 3600}


def seconds_of(text):
    """The seconds of a text such as '2 min 05 s'."""
    return sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+) (s|min|h)\b", text))


def run(binary, flags, steps):
    """Runs `steps` steps. Returns (seconds, [(seconds since the start, predicted end)])."""
    scaled = [flag if isinstance(flag, str) or previous in ("--eval-batches",) else max(flag * steps // 100, flag and 1)
              for previous, flag in zip([""] + flags, flags)]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "text.txt").write_text(TEXT)
        start = time.monotonic()
        process = subprocess.Popen([str(binary), *map(str, ["--train", "text.txt", *SIZES, "--steps", steps, "--out",
                                                            "run", "--keep-checkpoints", 2, "--peak-tflops", 1,
                                                            *scaled])],
                                   cwd=folder, text=True, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                   env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
        predictions = []
        for line in process.stderr:
            if line.startswith("MFU:"):
                start = time.monotonic()
            match = re.match(r"step \d+/.*\| ETA (.*)", line)
            if match:
                now = time.monotonic() - start
                predictions.append((now, now + seconds_of(match[1])))
        if process.wait() != 0:
            raise RuntimeError(f"exit code {process.returncode}")
        return time.monotonic() - start, predictions


def measure(binary, name, flags, target):
    duration, _ = run(binary, flags, 200)
    duration, predictions = run(binary, flags, max(200, int(200 * target / duration) // 100 * 100))
    errors = [(now, (end - duration) / duration) for now, end in predictions]
    late = [error for now, error in errors if now >= min(60, target / 3)]
    return (f"{name:12} {duration:6.1f} s  first {100 * errors[0][1]:+6.1f}% (after {errors[0][0]:.1f} s)  "
            f"later, of {len(late):3}: {100 * min(late):+6.1f}% to {100 * max(late):+6.1f}%")


def main():
    binary = (Path(sys.argv[1]) / "train_gpt2").resolve()
    target = float(sys.argv[2]) if len(sys.argv) > 2 else 150
    with ThreadPoolExecutor(2) as pool:
        for line in pool.map(lambda item: measure(binary, *item, target), RUNS.items()):
            print(line, flush=True)


if __name__ == "__main__":
    main()
