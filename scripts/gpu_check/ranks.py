#!/usr/bin/env python3
"""Trains a small GPT-2 with one rank and with several on the same samples, and compares their losses.

    ranks.py --program build/cuda/train_gpt2 --device cuda --gpus 1 --work DIR

One rank that mpirun starts with --comm nccl must have the bits of one rank without a launcher. 2 and 4 ranks that share
a GPU through MPI, and with several GPUs one rank per GPU through NCCL, may differ by rounding: fp32 by 2e-6, bf16 by
2^-8, relative to the loss. Prints a `result: ` line per run; exits 1 if a difference is larger.
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path

RUN = Path(__file__).resolve().parent.parent / "run.sh"
TOLERANCE = {"fp32": 2e-6, "bf16": 2 ** -8}
STEPS = 5
# A tiny eps would turn differences of rounding into steps of +-lr.
TRAIN = ["--layers", 4, "--heads", 4, "--channels", 128, "--context", 128, "--batch-size", 2, "--steps", STEPS, "--seed", 7,
         "--eps", 1e-4, "--eval-every", 0, "--sample-every", 0, "--peak-tflops", 1]


def layouts(gpus):
    """(ranks, backend, --zero, --shard-group) of the runs with several ranks."""
    shared = [(ranks, "mpi", zero, group) for ranks in (2, 4) for zero, group in ((1, 0), (3, 0), (2, 2))]
    most = 1 << min(3, max(1, gpus).bit_length() - 1)  # a number of ranks that divides the micro-batches
    own = [(most, "nccl", zero, 0) for zero in (0, 1, 2, 3)] if most > 1 else []
    return shared + own


def losses(command, log):
    """The losses and gradient norms of a run, or None with its last messages on stdout."""
    log.unlink(missing_ok=True)
    done = subprocess.run([str(word) for word in [*command, "--log", log]], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(done.stderr[-2000:])
        return None
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [(line["loss"], line["grad_norm"]) for line in lines if "loss" in line]


def difference(a, b):
    return max(abs(x - y) / abs(y) for ours, theirs in zip(a, b, strict=True) for x, y in zip(ours, theirs))


def report(name, ours, theirs, tolerance):
    """Whether the run is right."""
    if ours is None or len(ours) != STEPS:
        print(f"result: WRONG {name}: the run failed")
        return False
    largest = difference(ours, theirs)
    right = largest <= tolerance
    print(f"result: {'OK   ' if right else 'WRONG'} {name}: largest relative difference {largest:.1e}, allowed {tolerance:.1e}")
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, type=Path)
    parser.add_argument("--device", required=True)
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--work", required=True, type=Path)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    log, text = options.work / "ranks.jsonl", options.work / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog and runs away\n" * 2000)
    program = [options.program, *TRAIN, "--train", text, "--device", options.device]
    right = True
    for dtype, tolerance in TOLERANCE.items():
        run = [*program, "--dtype", dtype]
        one = losses([*run, "--grad-accum", 8], log)
        if one is None:
            print(f"result: WRONG {dtype}, one rank: the run failed")
            return 1
        if options.device == "cuda":
            alone = losses([RUN, "-np", 1, *run, "--grad-accum", 8, "--comm", "nccl"], log)
            right &= report(f"{dtype}, one rank, NCCL", alone, one, 0)
        for ranks, backend, zero, group in layouts(options.gpus):
            several = losses([RUN, "-np", ranks, *run, "--grad-accum", 8 // ranks, "--comm", backend, "--zero", zero,
                              "--shard-group", group], log)
            right &= report(f"{dtype}, {ranks} ranks, {backend}, --zero {zero} --shard-group {group}", several, one, tolerance)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
