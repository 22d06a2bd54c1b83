#!/usr/bin/env python3
"""Writes the tables of dev/results/memory.md: the cheapest settings with which each model fits a GPU, and the longest
sequences. It only plans (--dry-run --gpu-memory) and needs no GPU.

    python3 dev/memory_tables.py build/host > dev/results/memory.md
"""
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CARDS = (8, 16, 24, 40, 80, 141)  # GiB, of which 1 stays free
RANKS = (1, 8, 64)
MODELS = {"d12": "124M", "d24": "355M", "d36": "774M", "d48": "1558M", "megatron-1.2b": "1.2B", "megatron-2.5b": "2.5B",
          "megatron-4.2b": "4.2B", "megatron-8.3b": "8.3B"}
PLANNED_RESERVE, RESERVE = 2, 1  # GiB that --gpu-memory keeps free, and that stay free here
COMMON = ["--vocab-size", 50257, "--dtype", "bf16", "--batch-size", 1, "--dry-run"]


def plan(build, *arguments):
    """Returns (exit code, text on stdout and stderr)."""
    done = subprocess.run([str(Path(build) / "train_gpt2"), *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def with_card(card):
    return ["--gpu-memory", card - RESERVE + PLANNED_RESERVE]


def total(text, place):
    """GiB of a place in the last row of a plan's table, or all of a plan without one."""
    row = re.search(r"in all, MiB +([\d.]+) +([\d.]+) +([\d.]+)", text)
    if row is None:
        plain = re.search(r"in all: \d+ bytes \(([\d.]+) MiB\)", text)
        return float(plain[1]) / 1024 if place == 0 else 0.0
    return float(row[place + 1]) / 1024


def cell(build, model, ranks, card):
    """The cheapest settings that fit, with device and host memory in GiB."""
    run = ["--model", model, "--seq-len", 1024, "--ranks", ranks, "--zero", 0, "--grad-accum", 1, *COMMON]
    code, text = plan(build, *run, *with_card(card))
    flags = []
    if code != 0:
        hint = re.search(r"hint: use (.*?), which fits", text)
        if hint is None or "--seq-len" in hint[1]:
            return "does not fit"
        flags = hint[1].split()
    changed = [word for word in run if word not in ("--zero", 0)] if "--zero" in flags else run
    code, text = plan(build, *changed, *flags, *with_card(card))
    if code != 0:
        raise SystemExit(f"memory_tables.py: {flags} does not fit: {text[-400:]}")
    names = " ".join(flags).replace("--", "").replace("recompute ", "") or "as it is"
    host = total(text, 1)
    return f"{names}: {total(text, 0):.1f}" + (f" + {host:.1f} host" if host else "")


def longest(build, model, card, attention, recompute):
    """The longest sequence, in multiples of 1024 tokens, that fits."""
    def fits(length):
        return plan(build, "--model", model, "--context", 1024 * length, "--seq-len", 1024 * length, "--attention",
                    attention, "--recompute", recompute, *COMMON, *with_card(card))[0] == 0
    low, high = 0, 1
    while high <= 8192 and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return f"{1024 * low:,}" if low else "-"


def row(cells):
    return "| " + " | ".join(map(str, cells)) + " |"


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    build = sys.argv[1]
    print("# What fits\n\nWritten by `python3 dev/memory_tables.py build/host > dev/results/memory.md`, from plans: nothing "
          "ran.\n\n## Settings\n\nThe first settings, in the order of the hint of a run that does not fit, with which a rank "
          "trains on one sequence\nof 1024 tokens in bf16, on N data ranks, from `--zero 0` on; with the memory on the device "
          "(of which 1 GiB of each card\nstays free) and of the host, per rank, in GiB.\n")
    print(row(["model", "N", *(f"{card} GiB" for card in CARDS)]))
    print(row(["---"] * (len(CARDS) + 2)))
    with ThreadPoolExecutor(2) as threads:
        for model, name in MODELS.items():
            for ranks in RANKS:
                cells = threads.map(lambda card: cell(build, model, ranks, card), CARDS)
                print(row([name, ranks, *cells]), flush=True)
    print("\n## Longest sequences\n\nTokens of one sequence that fit one GPU, in multiples of 1024.\n")
    kinds = [(attention, mode) for attention in ("standard", "flash") for mode in ("none", "selective", "full")]
    print(row(["model", "GiB", *(f"{attention}, {mode}" for attention, mode in kinds)]))
    print(row(["---"] * (len(kinds) + 2)))
    with ThreadPoolExecutor(2) as threads:
        for model in ("d12", "d48"):
            for card in CARDS:
                cells = threads.map(lambda kind: longest(build, model, card, *kind), kinds)
                print(row([MODELS[model], card, *cells]), flush=True)


if __name__ == "__main__":
    main()
