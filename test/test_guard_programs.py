#!/usr/bin/env python3
"""Tests that train_gpt2 and infer_gpt2 compute the same bits with LLMC_GUARD=1, where host code cannot access device
memory and streams run their work late: the programs wait for all that they use, and access only their own side.

    python3 test/test_guard_programs.py build/host [PATTERN]

Two programs; with LLMC_LONG=1, those of every dtype, mode and layout of ranks. Prints and exits as test_programs.py
does.
"""
import os
import sys

from runner import expect
from stored_tensors import read_safetensors
from test_programs import Program, run_program_tests
from test_rank_programs import mpirun

IS_LONG = os.environ.get("LLMC_LONG", "0") not in ("", "0")
STEPS = 8
KINDS = ("optimizer", "gradients", "parameters", "activations")
# Evaluations, samples and checkpoints also read results of the device.
TRAIN = ("--layers", 4, "--heads", 2, "--channels", 32, "--context", 32, "--batch-size", 4, "--grad-accum", 2,
         "--steps", STEPS, "--eval-every", 4, "--eval-batches", 2, "--sample-every", 4, "--checkpoint-every", 4,
         "--peak-tflops", 1, "--dropout", 0.1)


def offload_to(place):
    return ("--offload", ",".join(f"{kind}={place}" for kind in KINDS))


TRAINING = {
    "bf16": ("--dtype", "bf16", "--grad-clip", 0.5),
    "fp32": ("--dtype", "fp32"),
    "fp16": ("--dtype", "fp16"),
    "stochastic rounding": ("--dtype", "bf16", "--stochastic-rounding"),
    "standard attention": ("--attention", "standard"),
    "recomputation": ("--recompute", "full"),
    "profile": ("--profile", 3),
    "quantization": ("--qat", "w8a8"),
    "adapters": ("--init-from", "base", "--train", "text.txt", "--lora", 4),
    "optimizer on the CPU": ("--offload", "optimizer", "--optimizer-on", "cpu"),
    "state on the host": offload_to("host"),
    "state on a disk": (*offload_to("scratch"), "--recompute", "full"),
}
RANKS = {
    "data": (2, ()),
    "ZeRO 1": (2, ("--zero", 1, "--dtype", "bf16")),
    "ZeRO 3": (2, ("--zero", 3)),
    "tensors": (2, ("--tp", 2, "--sequence-parallel")),
    "pipeline": (2, ("--pp", 2)),
    "chunks of a pipeline": (2, ("--pp", 2, "--pp-chunks", 2)),
    "all": (4, ("--tp", 2, "--pp", 2, "--dtype", "bf16")),
}
GENERATION = {
    "all in INT8": ("--dtype", "bf16", "--quant", "w8a8", "--kv-dtype", "int8"),
    "fp32": (), "bf16": ("--dtype", "bf16"), "fp16": ("--dtype", "fp16"),
    "INT8 weights": ("--quant", "w8"), "INT8 cache": ("--kv-dtype", "int8"),
    "batches": ("--samples", 5, "--batch", 3), "penalties": ("--repeat-penalty", 1.3, "--top-p", 0.8, "--seed", 7),
    "sliding": ("--slide", "-n", 100),
}


def selected(cases):
    return cases if IS_LONG else dict([next(iter(cases.items()))])


def steps_of(program, log):
    """What the log says of losses, gradients, evaluations and data; no times."""
    keys = ("step", "loss", "val_loss", "grad_norm", "token_hash")
    return [{key: line[key] for key in keys if key in line} for line in program.log(log)]


def expect_equal_runs(program, name, train):
    """train(flags, LLMC_GUARD) is run with and without the guard."""
    for guard in "01":
        train(("--out", guard, "--log", f"{guard}.jsonl"), guard)
    plain, guarded = steps_of(program, "0.jsonl"), steps_of(program, "1.jsonl")
    expect(sum("loss" in step for step in plain) == STEPS and any("val_loss" in step for step in plain), plain)
    expect(guarded == plain, f"{name}: {guarded} instead of {plain}")
    states = [{path.name: read_safetensors(path) for path in (program.folder / guard / f"step_{STEPS:06d}").glob("*.safetensors")}
              for guard in "01"]
    expect(len(states[0]) > 1 and states[1] == states[0], f"{name}: other weights or moments")
    for path in program.folder.glob("[01]/**/*"):
        path.is_file() and path.unlink()
    for guard in "01":
        (program.folder / f"{guard}.jsonl").unlink()


def test_training_gives_the_same_bits(program):
    if IS_LONG:
        program.run(*TRAIN, "--train", "text.txt", "--out", "base")
    for name, flags in selected(TRAINING).items():
        expect_equal_runs(program, name, lambda files, guard, flags=flags: program.run(
            *TRAIN, *flags, *files, environment={"LLMC_GUARD": guard}))
    for name, (ranks, flags) in RANKS.items() if IS_LONG else ():
        expect_equal_runs(program, name, lambda files, guard, ranks=ranks, flags=flags: mpirun(
            program, ranks, *TRAIN, *flags, *files, LLMC_GUARD=guard))


def test_generation_gives_the_same_texts(program):
    program.run(*TRAIN, "--out", "model")
    generator = Program(program.binary.with_name("infer_gpt2"), program.folder)
    for name, flags in selected(GENERATION).items():
        words = ("-m", "model", "-p", "the ", "--quiet", *(() if "-n" in flags else ("-n", 24)), *flags)
        plain, guarded = (generator.run(*words, environment={"LLMC_GUARD": guard}).stdout for guard in "01")
        expect(len(plain) > 20 and guarded == plain, f"{name}: {guarded!r} instead of {plain!r}")


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
