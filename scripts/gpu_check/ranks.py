#!/usr/bin/env python3
"""Trains a small GPT-2 with one rank and with several on the same samples, and compares their losses.

    ranks.py --program build/cuda/train_gpt2 --device cuda --gpus 1 --work DIR

One rank that mpirun starts with --comm nccl must have the bits of one rank without a launcher. 2 and 4 ranks that share
a GPU through MPI, data, tensor and pipeline parallel, 8 with all three, and with several GPUs one rank per GPU through
NCCL, may differ by rounding: relative to the loss and the gradient norm, fp32 by 2e-6 in 5 steps, bf16 by 2^-9 and 2^-7 in 20 steps. Prints
a `result: ` line per run; exits 1 if a difference is larger.
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path

RUN = Path(__file__).resolve().parent.parent / "run.sh"
# The bounds for losses and for gradient norms. In bf16 one rank itself is 1e-3 and 1e-2 from fp32.
TOLERANCE = {"fp32": (2e-6, 2e-6), "bf16": (2 ** -9, 2 ** -7)}
STEPS = {"fp32": 5, "bf16": 20}
BATCHES = 8  # micro-batches of a step
# A tiny eps would turn differences of rounding into steps of +-lr.
TRAIN = ["--layers", 4, "--heads", 4, "--channels", 128, "--context", 128, "--batch-size", 2, "--seed", 7, "--eps", 1e-4,
         "--eval-every", 0, "--sample-every", 0, "--peak-tflops", 1]


class Layout:
    def __init__(self, ranks, backend, zero, group=0, tp=1, sequence_parallel=False, pp=1, chunks=1):
        self.ranks = ranks
        self.flags = ["--comm", backend, "--zero", zero, "--shard-group", group]
        self.name = f"{ranks} ranks, {backend}, --zero {zero} --shard-group {group}"
        more = ["--tp", tp, *(["--sequence-parallel"] if sequence_parallel else [])] if tp > 1 else []
        more += ["--pp", pp, *(["--pp-chunks", chunks] if chunks > 1 else [])] if pp > 1 else []
        self.flags += more
        self.name += " " + " ".join(map(str, more)) if more else ""
        self.flags += ["--grad-accum", BATCHES * tp * pp // ranks]


def layouts(gpus):
    """The runs with several ranks."""
    shared = [Layout(ranks, "mpi", zero, group) for ranks in (2, 4) for zero, group in ((1, 0), (3, 0), (2, 2))]
    shared += [Layout(2, "mpi", 0, tp=2), Layout(4, "mpi", 1, tp=2), Layout(4, "mpi", 3, tp=2, sequence_parallel=True)]
    shared += [Layout(2, "mpi", 0, pp=2), Layout(4, "mpi", 3, pp=2, chunks=2),
               Layout(8, "mpi", 1, tp=2, sequence_parallel=True, pp=2)]
    most = 1 << min(3, max(1, gpus).bit_length() - 1)  # a number of ranks that divides the micro-batches
    own = [Layout(most, "nccl", zero) for zero in (0, 1, 2, 3)] if most > 1 else []
    own += [Layout(most, "nccl", 1, tp=2, sequence_parallel=sequence) for sequence in (False, True)] if most > 1 else []
    own += [Layout(most, "nccl", 1, pp=2, chunks=chunks) for chunks in (1, 2)] if most > 1 else []
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


def differences(a, b):
    """The largest relative difference of losses, and of gradient norms."""
    return [max(abs(x[i] - y[i]) / abs(y[i]) for x, y in zip(a, b, strict=True)) for i in (0, 1)]


def report(name, ours, theirs, tolerance):
    """Whether the run is right."""
    if ours is None or len(ours) != len(theirs):
        print(f"result: WRONG {name}: the run failed")
        return False
    largest = differences(ours, theirs)
    right = all(value <= allowed for value, allowed in zip(largest, tolerance))
    print(f"result: {'OK   ' if right else 'WRONG'} {name}: largest relative difference of losses {largest[0]:.1e} "
          f"(allowed {tolerance[0]:.1e}), of gradient norms {largest[1]:.1e} ({tolerance[1]:.1e})")
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
        run = [*program, "--dtype", dtype, "--steps", STEPS[dtype]]
        alone = [*run, "--grad-accum", BATCHES]
        one = losses(alone, log)
        if one is None:
            print(f"result: WRONG {dtype}, one rank: the run failed")
            return 1
        if options.device == "cuda":
            right &= report(f"{dtype}, one rank, NCCL", losses([RUN, "-np", 1, *alone, "--comm", "nccl"], log), one,
                            (0, 0))
        for layout in layouts(options.gpus):
            several = losses([RUN, "-np", layout.ranks, *run, *layout.flags], log)
            right &= report(f"{dtype}, {layout.name}", several, one, tolerance)
    return 0 if right else 1


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    import standard_output
    standard_output.run(main)
