#!/usr/bin/env python3
"""Trains the same steps under several meshes and prints how far their losses are from those of one rank.

    python3 dev/mesh_losses.py TEXT [--program build/host/train_gpt2] [--steps 10] [more flags of train_gpt2]

Needs Open MPI. The table has the relative difference of the loss at some steps, and of the gradient norm at the last.
Every mesh has the same tokens per step; the script checks token_hash.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BATCHES = 8  # micro-batches per step, of all data ranks
# Ranks, tensor ranks, ZeRO stage, shard group (0: all), sequence parallelism.
MESHES = [(2, 1, 1, 0, False), (4, 1, 3, 2, False), (2, 2, 0, 0, False), (2, 2, 0, 0, True), (4, 4, 0, 0, True),
          (4, 2, 1, 0, False), (4, 2, 3, 0, True), (8, 2, 2, 2, True), (8, 4, 1, 0, False), (8, 8, 0, 0, True)]
SMALL = {"--layers": 4, "--heads": 8, "--channels": 128, "--context": 64, "--seq-len": 64, "--batch-size": 2}


def train(mesh, arguments, folder):
    """Returns the log lines of the steps."""
    ranks, tensor_ranks, zero, group, spread = mesh
    log = Path(folder) / f"{ranks}-{tensor_ranks}-{zero}-{group}-{spread}.jsonl"
    flags = [*arguments.more, "--train", arguments.text, "--steps", arguments.steps, "--log", log, "--eval-every", 0,
             "--sample-every", 0, "--grad-accum", BATCHES * tensor_ranks // ranks, "--quiet"]
    for flag, value in SMALL.items():
        if flag not in arguments.more:
            flags += [flag, value]
    if ranks > 1:
        flags += ["--tp", tensor_ranks, "--zero", zero, "--shard-group", group]
        flags += ["--sequence-parallel"] if spread else []
    command = [arguments.program, *flags] if ranks == 1 else [ROOT / "scripts/run.sh", "-np", ranks, arguments.program, *flags]
    result = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"mesh_losses.py: {' '.join(map(str, command))} failed:\n{result.stderr}")
    with open(log, encoding="utf-8") as file:
        return [line for line in map(json.loads, file) if "loss" in line]


def difference(lines, one, step, key):
    return abs(lines[step - 1][key] / one[step - 1][key] - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", help="text to train on")
    parser.add_argument("--program", default=ROOT / "build/host/train_gpt2", help="default: the host build")
    parser.add_argument("--steps", type=int, default=10, help="default: 10")
    arguments, arguments.more = parser.parse_known_args()
    shown = sorted({1, min(3, arguments.steps), arguments.steps})
    print("| ranks | `--tp` | `--zero` | shard group | sequence parallel | " +
          " | ".join(f"loss, step {step}" for step in shown) + f" | norm, step {shown[-1]} |")
    print("|---" * (6 + len(shown)) + "|")
    with tempfile.TemporaryDirectory() as folder:
        one = train((1, 1, 0, 0, False), arguments, folder)
        for mesh in MESHES:
            lines = train(mesh, arguments, folder)
            if [line["token_hash"] for line in lines] != [line["token_hash"] for line in one]:
                sys.exit(f"mesh_losses.py: {mesh} trained on other tokens")
            numbers = [difference(lines, one, step, "loss") for step in shown]
            numbers.append(difference(lines, one, shown[-1], "grad_norm"))
            ranks, tensor_ranks, zero, group, spread = mesh
            group = group or ranks // tensor_ranks if zero > 0 else "-"
            print(f"| {ranks} | {tensor_ranks} | {zero} | {group} | {'yes' if spread else 'no'} | " +
                  " | ".join(f"{number:.1e}" for number in numbers) + " |", flush=True)


if __name__ == "__main__":
    main()
