#!/usr/bin/env python3
"""Trains the same steps under several meshes and prints how far their losses are from those of one rank.

    python3 dev/mesh_losses.py TEXT [--program build/host/train_gpt2] [--steps 10] [more flags of train_gpt2]

Needs Open MPI. The table has the largest relative difference of the loss in steps 1 to N for some N, and the difference of
the gradient norm in the last step. Every mesh has the same tokens per step; the script checks token_hash.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "scripts"))
import standard_output  # noqa: E402
from train_command import arguments_of, train_command  # noqa: E402

BATCHES = 8  # micro-batches per step, of all data ranks
ONE_RANK = (1, 1, 1, 1, 0, 0, False)
# Ranks, tensor ranks, pipeline ranks, chunks, ZeRO stage, shard group (0: all), sequence parallelism.
MESHES = [(2, 1, 1, 1, 1, 0, False), (4, 1, 1, 1, 3, 2, False), (2, 2, 1, 1, 0, 0, False), (4, 4, 1, 1, 0, 0, True),
          (8, 2, 1, 1, 2, 2, True), (8, 8, 1, 1, 0, 0, True),
          (2, 1, 2, 1, 0, 0, False), (2, 1, 2, 2, 0, 0, False), (4, 1, 4, 1, 0, 0, False), (4, 1, 2, 1, 1, 0, False),
          (4, 1, 2, 2, 3, 0, False), (4, 2, 2, 1, 0, 0, False), (4, 2, 2, 2, 0, 0, True), (6, 2, 3, 1, 0, 0, True),
          (8, 1, 4, 1, 2, 0, False), (8, 2, 2, 1, 1, 0, True), (8, 2, 2, 2, 3, 0, False), (8, 4, 2, 1, 0, 0, True)]
SMALL = {"--layers": 4, "--heads": 8, "--channels": 128, "--context": 64, "--seq-len": 64, "--batch-size": 2}


def train(mesh, arguments, folder):
    """Returns the log lines of the steps."""
    ranks, tensor_ranks, pipeline_ranks, chunks, zero, group, spread = mesh
    log = Path(folder) / f"{'-'.join(map(str, mesh))}.jsonl"
    flags = ["--steps", arguments.steps, "--log", log, "--grad-accum", BATCHES * tensor_ranks * pipeline_ranks // ranks]
    if ranks > 1:
        flags += ["--tp", tensor_ranks, "--pp", pipeline_ranks, "--zero", zero, "--shard-group", group]
        flags += ["--pp-chunks", chunks] if chunks > 1 else []
        flags += ["--sequence-parallel"] if spread else []
    command = train_command(arguments, ranks, flags, SMALL)
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"mesh_losses.py: {' '.join(command)} failed:\n{result.stderr}")
    with open(log, encoding="utf-8") as file:
        return [line for line in map(json.loads, file) if "loss" in line]


def difference(lines, one, step, key):
    return abs(lines[step - 1][key] / one[step - 1][key] - 1)


def main():
    arguments = arguments_of(__doc__.splitlines()[0], lambda parser: parser.add_argument(
        "--steps", type=int, default=10, help="default: 10"))
    milestones = {1, 10, 100, arguments.steps} | ({3} if arguments.steps <= 10 else set())
    shown = sorted(step for step in milestones if step <= arguments.steps)
    print("| ranks | `--tp` | `--pp` | chunks | `--zero` | shard group | sequence parallel | " +
          " | ".join(f"loss, steps 1 to {step}" if step > 1 else "loss, step 1" for step in shown) +
          f" | norm, step {shown[-1]} |")
    print("|---" * (8 + len(shown)) + "|")
    with tempfile.TemporaryDirectory() as folder:
        one = train(ONE_RANK, arguments, folder)
        for mesh in MESHES:
            lines = train(mesh, arguments, folder)
            if [line["token_hash"] for line in lines] != [line["token_hash"] for line in one]:
                sys.exit(f"mesh_losses.py: {mesh} trained on other tokens")
            numbers = [max(difference(lines, one, i, "loss") for i in range(1, step + 1)) for step in shown]
            numbers.append(difference(lines, one, shown[-1], "grad_norm"))
            ranks, tensor_ranks, pipeline_ranks, chunks, zero, group, spread = mesh
            group = group or ranks // tensor_ranks // pipeline_ranks if zero > 0 else "-"
            cells = [ranks, tensor_ranks, pipeline_ranks, chunks, zero, group, "yes" if spread else "no"]
            print("| " + " | ".join([*map(str, cells), *(f"{number:.1e}" for number in numbers)]) + " |", flush=True)


if __name__ == "__main__":
    standard_output.run(main)
