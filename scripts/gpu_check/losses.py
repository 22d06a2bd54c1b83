#!/usr/bin/env python3
"""Compares the losses of two training runs from the same weights on the same batches.

    losses.py OURS.jsonl THEIRS.jsonl --steps N --last M --limit X --out FILE.jsonl

Writes both losses of every step, one line per step. Fails (exit code 1) unless both runs have a finite loss
in all N steps, ours falls, and the mean absolute difference over the last M steps is at most X nats.
"""
import argparse
import json
import math
import sys
from pathlib import Path


def read_losses(path):
    """{step: loss}."""
    lines = [json.loads(line) for line in open(path)]
    return {line["step"]: line["loss"] for line in lines if "loss" in line}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ours", metavar="OURS.jsonl", help="log of train_gpt2")
    parser.add_argument("theirs", metavar="THEIRS.jsonl", help="log of train_pytorch.py")
    parser.add_argument("--steps", type=int, required=True, metavar="N", help="steps of both runs")
    parser.add_argument("--last", type=int, required=True, metavar="M", help="number of last steps to compare")
    parser.add_argument("--limit", type=float, required=True, metavar="X",
                        help="allowed mean absolute difference over these steps, in nats")
    parser.add_argument("--out", required=True, metavar="FILE.jsonl", help="write both losses of each step to this file")
    arguments = parser.parse_args()
    ours, theirs = read_losses(arguments.ours), read_losses(arguments.theirs)
    steps = list(range(1, arguments.steps + 1))
    with open(arguments.out, "w") as out:
        for step in steps:
            out.write(json.dumps({"step": step, "ours": ours.get(step), "pytorch": theirs.get(step)}) + "\n")
    for name, losses in (("our", ours), ("PyTorch's", theirs)):
        missing = [step for step in steps if losses.get(step) is None or not math.isfinite(losses[step])]
        if missing:
            print(f"result: {name} run has no finite loss at step {missing[0]} ({len(missing)} steps in all)")
            return 1
    gaps = [abs(ours[step] - theirs[step]) for step in steps[-arguments.last:]]
    mean = sum(gaps) / len(gaps)
    good = mean <= arguments.limit
    last = steps[-1]
    print(f"result: loss {ours[1]:.4f} -> {ours[last]:.4f}, PyTorch's {theirs[1]:.4f} -> {theirs[last]:.4f}")
    print(f"result: mean |difference| over the last {len(gaps)} of {last} steps: {mean:.5f}, largest {max(gaps):.5f}: "
          f"{'passed' if good else 'FAILED'} (at most {arguments.limit})")
    if not ours[last] < ours[1]:
        print("result: FAILED: our loss did not fall, so the comparison means nothing")
        good = False
    return 0 if good else 1


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    import standard_output
    standard_output.run(main)
