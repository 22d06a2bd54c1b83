#!/usr/bin/env python3
"""Tests peers on several ranks: every strategy of dev/peers/train_distributed.py has the losses and norms of ours, and
transformers classifies on two ranks as on one.

    PYTHON=python3 python3 test/test_distributed_peers.py build/host [PATTERN]

PYTHON names an interpreter with PyTorch and NumPy; without them, the tests are skipped. Prints
`ok NAME`, `FAILED NAME: why` or `[skipped] NAME: why`, then `N passed, N failed, N skipped`.
"""
import json
import sys
from pathlib import Path

from made_up_sentences import write_sentences
from runner import Skip, expect, run_tests
from test_peers import DATA, PEERS, PYTHON, ROOT, make_inputs, require_modules, run


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


def test_two_ranks_of_transformers_classify_like_one(program, folder):
    """DDP divides each batch; without dropout, the sums differ only by rounding."""
    require_modules("torch, transformers")
    if not (DATA / "gpt2").exists():
        raise Skip(f"{DATA} has no gpt2 (LLMC_DATA names another folder)")
    run([sys.executable, ROOT / "dev/experiments/small_gpt2.py", "tokenizer", DATA / "gpt2", "tokenizer"], folder)
    write_sentences(folder / "sentences")
    run([program, "--train", "sentences/positive.txt", "--no-cache", "--tokenizer", "tokenizer", "--layers", 2, "--heads", 2,
         "--channels", 32, "--context", 64, "--batch-size", 4, "--grad-accum", 1, "--steps", 1, "--eval-every", 0,
         "--sample-every", 0, "--peak-tflops", 1, "--out", "model"], folder)
    results = []
    for ranks in (1, 2):
        start = [ROOT / "scripts/run.sh", "-np", ranks] if ranks > 1 else []
        run([*start, PYTHON, ROOT / "scripts/finetune_sentiment/peers.py", "--reference", "model/step_000001", "--data",
             "sentences", "--method", "all", "--lr", 3e-3, "--steps", 30, "--evaluations", 2, "--batch-size", 8, "--length", 32,
             "--seed", 1, "--weight-decay", 0.01, "--dropout", 0, "--rank", 8, "--rendezvous", folder / f"meet{ranks}", "--out",
             f"out{ranks}.json"], folder)
        results.append(json.loads((folder / f"out{ranks}.json").read_text()))
    one, two = results
    expect(one["epoch_steps"] == two["epoch_steps"] > 30 and one["test"]["accuracy"] > 0.6, f"{one}")
    changed = sum(abs(a - b) for row, other in zip(one["test"]["confusion_matrix"], two["test"]["confusion_matrix"])
                  for a, b in zip(row, other)) // 2
    expect(changed <= 1, f"{changed} of {one['test']['examples']} sentences have another class: {one['test']}, {two['test']}")


if __name__ == "__main__":
    sys.exit(run_tests(globals(), lambda folder: [Path(sys.argv[1]).resolve() / "train_gpt2", folder], *sys.argv[2:3]))
