#!/usr/bin/env python3
"""Compares the training speed with PyTorch's, on the same GPU in the same minutes.

First each side's best micro-batch is determined (for PyTorch also the better way to train in bf16 and the
better attention kernel, if there is time). Then both run in turns, and each round yields the ratio of their
speeds. The median ratio shows which side is faster; the smallest and the largest ratio show how certain that
is.

    speed.py --program build/cuda/train_gpt2 --init-from DIR --train FILE.bin --words FILE --out speed.json

PyTorch's process lives through all rounds, so that it compiles each variant once; between its turns it frees
its activations. The time of our steps is from train_gpt2's log, which waits for the device in every step.
PyTorch's is the wall time of all timed steps, with a single wait at their end.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from train_log import first_match, speed_of

ROOT = Path(__file__).resolve().parent.parent.parent
MIN_ROUNDS = 3


class MemoryWatch:
    """Records the maximum device memory in use while it is open, in MiB, from nvidia-smi; None without nvidia-smi."""

    COMMAND = ["nvidia-smi", "-i", os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0",
               "--query-gpu=memory.used", "--format=csv,noheader,nounits"]

    def __enter__(self):
        self.max_mib, self.stop = None, threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def _watch(self):
        while not self.stop.wait(0.3):
            try:
                done = subprocess.run(self.COMMAND, capture_output=True, text=True, timeout=10)
                self.max_mib = max(self.max_mib or 0, int(done.stdout.split()[0]))
            except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
                return

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


class EngineRuns:
    """Runs of train_gpt2, each in a new process."""

    def __init__(self, options):
        self.options = options

    def run(self, B):
        """Starts a new train_gpt2; returns the figures of its log and its messages."""
        o, start = self.options, time.monotonic()
        with tempfile.TemporaryDirectory() as folder, MemoryWatch() as watch:
            log = Path(folder) / "log.jsonl"
            done = subprocess.run(
                [o.program, "--device", o.device, "--dtype", "bf16", "--init-from", o.init_from, "--train", o.train, "--val",
                 o.train, "--tokenizer", f"words:{o.words}", "--batch-size", str(B), "--grad-accum", "1",
                 "--steps", str(o.warmup + o.steps), "--lr", "1e-4", "--eval-every", "0", "--sample-every", "0", "--log", str(log)],
                capture_output=True, text=True)
            print(done.stderr, flush=True)
            if done.returncode != 0:
                return {"batch_size": B, "error": done.stderr.strip().splitlines()[-1][:300]}
            lines = [line for line in map(json.loads, log.read_text().splitlines()) if "loss" in line][o.warmup:]
        return {"batch_size": B, **speed_of(lines, done.stderr), "wall_s": time.monotonic() - start,
                "memory_used_mib": watch.max_mib, "mfu_convention": first_match(r"^MFU: (.*)$", done.stderr)}


class PyTorchRuns:
    """Runs of train_pytorch.py, all in one process."""

    def __init__(self, options):
        o = self.options = options
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "dev/peers/train_pytorch.py"), "--init-from", o.init_from, "--train", o.train,
             "--dtype", "bf16", "--device", o.torch_device, "--serve"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, variant):
        B, recipe, attention = variant
        request = {"batch_size": B, "recipe": recipe, "attention": attention, "steps": self.options.steps,
                   "warmup": self.options.warmup}
        with MemoryWatch() as watch:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"train_pytorch.py ended with exit code {self.process.wait()}")
        return {**json.loads(answer), "memory_used_mib": watch.max_mib}

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


def fastest(runs):
    good = [run for run in runs if "error" not in run]
    if not good:
        raise SystemExit(f"no run succeeded: {runs[-1]['error'] if runs else 'no run was started'}")
    return max(good, key=lambda run: run["tok_per_s"])


def variant_of(run):
    return run["batch_size"], run["recipe"], run["attention"]


class Comparison:
    def __init__(self, options):
        self.options = options
        self.end = time.monotonic() + options.seconds
        self.record = {"ours": [], "pytorch": [], "rounds": [], "steps_timed": options.steps, "warmup": options.warmup}

    def seconds_left(self):
        return self.end - time.monotonic()

    def save(self):
        """Writes the file atomically, so that it is complete after every run."""
        out = Path(self.options.out)
        temporary = out.with_name(out.name + ".tmp")
        temporary.write_text(json.dumps(self.record, indent=1) + "\n")
        os.replace(temporary, out)

    def scan_ours(self, ours):
        for B in self.options.batches:
            self.record["ours"].append(ours.run(B))
            self.save()
        return fastest(self.record["ours"])

    def seconds_of_rounds(self, ours, theirs):
        steps = self.options.steps + self.options.warmup
        return self.options.rounds * (ours["wall_s"] + 1e-3 * theirs["step_ms"] * steps + 2)

    def scan_theirs(self, theirs, ours):
        """Runs all micro-batches with one recipe, then the other choices if there is time for one more
        compilation and all rounds. `ours` is our best run.
        """
        runs, longest = self.record["pytorch"], 0.0
        for B in self.options.batches:
            start = time.monotonic()
            runs.append(theirs.run((B, "masters", "auto")))
            longest = max(longest, time.monotonic() - start)
            self.save()
        B = fastest(runs)["batch_size"]
        for recipe, attention in (("autocast", "auto"), ("masters", "cudnn")):
            if attention == "cudnn" and self.options.torch_device == "cpu":
                continue
            if self.seconds_left() > longest + self.seconds_of_rounds(ours, fastest(runs)):
                runs.append(theirs.run((B, recipe, attention)))
                self.save()
        return fastest(runs)

    def rounds(self, ours, theirs, B, variant):
        longest = 0.0
        for index in range(self.options.rounds):
            if self.seconds_left() < longest:
                break
            start = time.monotonic()
            turns = {"ours": lambda: ours.run(B), "pytorch": lambda: theirs.run(variant)}
            order = list(turns) if index % 2 == 0 else list(reversed(turns))
            result = {side: turns[side]() for side in order}
            for side, run in result.items():
                if "error" in run:
                    raise SystemExit(f"round {index + 1}, {side}: {run['error']}")
            longest = max(longest, time.monotonic() - start)
            self.record["rounds"].append({"ours_tok_per_s": result["ours"]["tok_per_s"],
                                          "pytorch_tok_per_s": result["pytorch"]["tok_per_s"],
                                          "ratio": result["ours"]["tok_per_s"] / result["pytorch"]["tok_per_s"]})
            self.save()

    def summary(self, ours, theirs):
        rounds = self.record["rounds"]
        if len(rounds) < MIN_ROUNDS:
            raise SystemExit(f"{len(rounds)} rounds in {self.options.seconds:.0f} s are too few to compare")
        spread = {}
        for key in ("ours_tok_per_s", "pytorch_tok_per_s", "ratio"):
            values = [r[key] for r in rounds]
            spread[key] = {"median": statistics.median(values), "min": min(values), "max": max(values)}
        for side in ("ours", "pytorch"):
            spread[f"{side}_mfu"] = spread[f"{side}_tok_per_s"]["median"] * ours["mfu_per_tok_per_s"]
        self.record["summary"] = spread
        self.record["mfu_convention"] = ours["mfu_convention"]
        self.save()
        print(f"result: ours, B {ours['batch_size']}: {line_of(spread, 'ours')}, memory {ours['memory_planned']} planned, "
              f"{memory_of(ours)}")
        print(f"result: PyTorch {theirs['torch']}, B {theirs['batch_size']}, {theirs['recipe']}, attention "
              f"{theirs['attention']}: {line_of(spread, 'pytorch')}, memory {memory_of(theirs)}")
        ratio = spread["ratio"]
        print(f"result: ratio ours / PyTorch: median {ratio['median']:.3f}, {ratio['min']:.3f} to {ratio['max']:.3f} "
              f"in {len(rounds)} rounds")
        print(f"result: MFU: {ours['mfu_convention']}")


def line_of(spread, side):
    speed = spread[f"{side}_tok_per_s"]
    return (f"{speed['median']:.0f} tok/s ({speed['min']:.0f} to {speed['max']:.0f}), "
            f"MFU {100 * spread[f'{side}_mfu']:.1f}%")


def memory_of(run):
    used = run["memory_used_mib"]
    return "in use unknown (no nvidia-smi)" if used is None else f"{used} MiB in use"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag, text in (("program", "the program train_gpt2"), ("init-from", "Hugging Face directory with the weights"),
                       ("train", "token file"), ("words", "file with the words of the vocabulary"),
                       ("out", "JSON file to write")):
        parser.add_argument(f"--{flag}", required=True, help=text)
    parser.add_argument("--device", default="cuda", help="--device of train_gpt2 [cuda]")
    parser.add_argument("--torch-device", default="cuda", help="--device of train_pytorch.py [cuda]")
    parser.add_argument("--batches", default="16,32,64", type=lambda text: [int(B) for B in text.split(",")],
                        help="micro-batches to try, comma-separated [16,32,64]")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of both sides in turns [5]")
    parser.add_argument("--steps", type=int, default=30, help="timed steps per run, at least 2 [30]")
    parser.add_argument("--warmup", type=int, default=10, help="steps before them that are not timed [10]")
    parser.add_argument("--seconds", type=float, default=280, help="time limit in seconds [280]")
    options = parser.parse_args()
    if options.steps < 2:
        parser.error(f"--steps {options.steps}; allowed: 2 or more")
    comparison, ours = Comparison(options), EngineRuns(options)
    best = comparison.scan_ours(ours)  # before PyTorch's process takes memory
    theirs = PyTorchRuns(options)
    best_theirs = comparison.scan_theirs(theirs, best)
    comparison.rounds(ours, theirs, best["batch_size"], variant_of(best_theirs))
    theirs.close()
    comparison.summary(best, best_theirs)


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    import standard_output
    standard_output.run(main)
