#!/usr/bin/env python3
"""Tests the programs with the kernels that nvcc compiled, run on a CPU: they train and generate as the host
build does. Two runs; with LLMC_LONG=1, those of every dtype and mode.

    python3 test/test_ptx_programs.py build/host-ptx [PATTERN]

LLMC_PTX is the folder of PTX. The host build is in build/host. Prints `ok NAME`, `FAILED NAME: why` or
`[skipped] NAME: why`, then `N passed, N failed, N skipped`.
"""
import json
import os
import subprocess
import sys
from pathlib import Path

from runner import Skip, expect, run_tests

ROOT = Path(__file__).resolve().parent.parent
HOST = ROOT / "build/host"
IS_LONG = os.environ.get("LLMC_LONG", "0") not in ("", "0")
STEPS = 10
# Relative difference of the losses of 10 steps. fp32: that of ranks against one rank. Half precision: tensor cores round the
# probabilities of attention, the host does not, so the losses differ by some units of 2^-8 or 2^-11 in single
# logits, of which a mean over 512 tokens keeps a part.
TOLERANCE = {"fp32": 2e-6, "bf16": 2e-3, "fp16": 3e-4}
# A number between two codes may get the other one, which is another number by a step of the quantizer.
QUANTIZED_TOLERANCE = 1e-4

TRAINING = {
    "fp32": ("fp32", ()), "bf16": ("bf16", ()), "fp16": ("fp16", ()),
    "dropout": ("fp32", ("--dropout", 0.1)), "dropout in bf16": ("bf16", ("--dropout", 0.1)),
    "standard attention": ("fp32", ("--attention", "standard")),
    "standard attention in bf16": ("bf16", ("--attention", "standard")),
    "stochastic rounding": ("bf16", ("--stochastic-rounding",)),
    "recomputation": ("bf16", ("--recompute", "full")),
    "quantization": ("fp32", ("--qat", "w8a8")),
    "document mask": ("fp32", ("--document-mask", "--split-on", "<|endoftext|>", "--train", "text.txt", "--tokenizer", "bytes")),
}
GENERATION = {
    "fp32": (), "bf16": ("--dtype", "bf16"), "fp16": ("--dtype", "fp16"), "INT8 weights": ("--quant", "w8"),
    "INT8 weights and activations": ("--quant", "w8a8"), "INT8 cache": ("--kv-dtype", "int8"),
    "all in INT8": ("--dtype", "bf16", "--quant", "w8a8", "--kv-dtype", "int8"),
    "batches": ("--samples", 5, "--batch", 3), "sliding": ("--slide", "-n", 100),
}
SHORT = {"training": ("bf16",), "generation": ("all in INT8",)}


def run(program, words, folder):
    done = subprocess.run([str(word) for word in (program, *words)], cwd=folder, capture_output=True, text=True, timeout=600)
    expect(done.returncode == 0, f"{program} {words}: exit code {done.returncode}: {done.stderr[-800:]}")
    return done.stdout


def losses(build, folder, dtype, flags):
    """The losses of a run. A low learning rate keeps the first steps from amplifying differences."""
    log = folder / f"{build.name}-{len(list(folder.iterdir()))}.jsonl"
    run(build / "train_gpt2", ("--steps", STEPS, "--dtype", dtype, "--lr", 1e-4, "--eval-every", 0, "--sample-every", 0,
                               "--log", log, *flags), folder)
    return [record["loss"] for record in map(json.loads, log.read_text().splitlines()) if "loss" in record and "step" in record]


def selected(kind, cases):
    return cases if IS_LONG else {name: cases[name] for name in SHORT[kind]}


def require_programs(build):
    for folder in (build, HOST):
        for name in ("train_gpt2", "infer_gpt2"):
            if not (folder / name).exists():
                raise Skip(f"{folder / name} is not built")


def test_training_has_the_losses_of_the_host(build, folder):
    require_programs(build)
    (folder / "text.txt").write_text("".join(f"One line, number {i}.\n" + ("<|endoftext|>\n" if i % 7 == 0 else "")
                                             for i in range(2000)))
    for name, (dtype, flags) in selected("training", TRAINING).items():
        ours, host = losses(build, folder, dtype, flags), losses(HOST, folder, dtype, flags)
        expect(len(ours) == len(host) == STEPS and host[-1] < host[0], f"{name}: {host}")
        allowed = QUANTIZED_TOLERANCE if "--qat" in flags else TOLERANCE[dtype]
        worst = max(abs(a / b - 1) for a, b in zip(ours, host))
        expect(worst <= allowed, f"{name}: losses differ by {worst:.2g}; allowed {allowed}")


def test_generation_has_the_texts_of_the_host(build, folder):
    require_programs(build)
    run(HOST / "train_gpt2", ("--steps", 60, "--eval-every", 0, "--sample-every", 0, "--out", "model"), folder)
    model = next((folder / "model").glob("step_*"))
    for name, flags in selected("generation", GENERATION).items():
        words = ("-m", model, "-p", "the ", "--temp", 0, "--quiet", *(() if "-n" in flags else ("-n", 40)), *flags)
        ours, host = run(build / "infer_gpt2", words, folder), run(HOST / "infer_gpt2", words, folder)
        expect(len(host) > 20 and ours == host, f"{name}: {ours!r} and {host!r}")


if __name__ == "__main__":
    sys.exit(run_tests(globals(), lambda folder: [Path(sys.argv[1]).resolve(), folder], *sys.argv[2:3]))
