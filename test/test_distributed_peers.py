#!/usr/bin/env python3
"""Tests dev/peers/train_distributed.py: every strategy of PyTorch has the losses and norms of ours.

    PYTHON=python3 python3 test/test_distributed_peers.py build/host [PATTERN]

PYTHON names an interpreter with PyTorch and NumPy; without them, the tests are skipped. Prints
`ok NAME`, `FAILED NAME: why` or `[skipped] NAME: why`, then `N passed, N failed, N skipped`.
"""
import json
import sys
from pathlib import Path

from runner import expect, run_tests
from test_peers import PEERS, PYTHON, ROOT, make_inputs, require_modules, run


def log_of(folder, program, strategy, ranks, clip):
    """The steps of train_gpt2 (strategy: flags), or of a strategy of train_distributed.py, on as many ranks."""
    per_rank = ["--batch-size", 8 // ranks, "--grad-accum", 1, "--steps", 20, "--lr", 1e-3, "--warmup", 0, "--schedule",
                "constant", "--seed", 7, "--grad-clip", clip]
    start = [ROOT / "scripts/run.sh", "-np", ranks] if ranks > 1 else []
    for name in ("log.jsonl", "meet"):
        (folder / name).unlink(missing_ok=True)
    if isinstance(strategy, list):
        run([*start, program, "--init-from", "gpt2", "--train", "data/tokens.bin", "--val", "data/tokens.bin", "--tokenizer",
             "words:data/words.txt", "--eval-every", 0, "--sample-every", 0, "--peak-tflops", 1, "--log", "log.jsonl",
             *per_rank, *strategy], folder)
    else:
        run([*start, PYTHON, PEERS / "train_distributed.py", "--strategy", strategy, "--rendezvous", folder / "meet",
             "--init-from", "gpt2", "--train", "data/tokens.bin", "--log", "log.jsonl", *per_rank], folder)
    return [line for line in map(json.loads, (folder / "log.jsonl").read_text().splitlines()) if "loss" in line]


# Our flags for each strategy, and the number of ranks.
STRATEGIES = {"plain": ([], 1), "ddp": (["--zero", 0], 2), "zero1": (["--zero", 1], 2), "fsdp-zero2": (["--zero", 2], 2),
              "fsdp-zero3": (["--zero", 3], 2), "fsdp-hybrid": (["--zero", 3, "--shard-group", 2], 4)}


def test_losses_of_all_strategies_equal_those_of_pytorch(program, folder):
    """Without clipping, and with a norm of clipping that both sides sum exactly."""
    require_modules("torch, numpy")
    make_inputs(folder, 24 * 32 + 5)
    for name, (flags, ranks) in STRATEGIES.items():
        for clip in (1e9, 0.5) if name in ("plain", "fsdp-zero3") else (1e9,):
            ours, theirs = log_of(folder, program, flags, ranks, clip), log_of(folder, program, name, ranks, clip)
            expect(len(ours) == len(theirs) == 20, f"{name}: {len(ours)} and {len(theirs)} steps")
            worst = max(abs(a["loss"] / b["loss"] - 1) for a, b in zip(ours, theirs))
            expect(worst < 2e-5, f"{name}, clipping at {clip}: losses differ by {worst:.1e}")
            norm = abs(ours[0]["grad_norm"] / theirs[0]["grad_norm"] - 1)
            expect(norm < 1e-5, f"{name}: norms of step 1 differ by {norm:.1e}")
            expect(clip > 1 or ours[0]["grad_norm"] > clip, f"the norm {ours[0]['grad_norm']} is not clipped")
            expect(abs(ours[-1]["epoch"] - theirs[-1]["epoch"]) < 1e-12, f"{ours[-1]['epoch']} and {theirs[-1]['epoch']}")


if __name__ == "__main__":
    sys.exit(run_tests(globals(), lambda folder: [Path(sys.argv[1]).resolve() / "train_gpt2", folder], *sys.argv[2:3]))
