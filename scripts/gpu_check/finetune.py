#!/usr/bin/env python3
"""Fine-tuning: the bits that must agree, and the time and memory of parts of a model, LoRA and IA3 next to all of it.

    finetune.py --program build/cuda/train_gpt2 --device cuda --work DIR --seconds 240 [--dry]

1. On a small model, LoRA and IA3 begin with the loss of the model itself, and have the same bits with full
   recomputation and with the optimizer in host memory.
2. GPT-2 124M in bf16: the time of a step and the planned memory of training all weights, the upper half, LoRA of rank 8
   on all layers, and IA3.
3. GPT-2 1558M in bf16: the same of LoRA with full recomputation.

Prints a `result: ` line per figure; exits 1 if a run fails or has other bits. --dry: tiny models.
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path

from memory import Runs, median_of

ADAPTERS = {"LoRA": ["--lora", 8, "--lora-targets", "all", "--lora-dropout", 0.1], "IA3": ["--ia3"]}
TINY = ["--layers", 2, "--heads", 2, "--channels", 32, "--context", 32]
WEIGHTS = Path(__file__).resolve().parent.parent.parent / "dev/peers/make_weights.py"


def write_weights(path, sizes):
    subprocess.run([sys.executable, str(WEIGHTS), "--out", str(path), *map(str, sizes)], check=True, capture_output=True)
    return path


def bits_of(steps):
    return [(step["loss"], step["grad_norm"]) for step in steps or []]


def check_bits(runs):
    base = write_weights(runs.options.work / "small", [*TINY, "--vocabulary", 257])
    small = ["--train", runs.text, "--init-from", base, "--batch-size", 2, "--grad-accum", 2, "--dtype", "bf16",
             "--steps", 5, "--peak-tflops", 1]
    first = bits_of(runs.steps(*small))
    right = bool(first)
    for name, flags in ADAPTERS.items():
        plain = bits_of(runs.steps(*small, *flags))
        begins = bool(plain) and plain[0][0] == first[0][0]
        others = [bits_of(runs.steps(*small, *flags, *more)) for more in (["--recompute", "full"], ["--offload", "optimizer"])]
        equal = bool(plain) and all(other == plain for other in others)
        print(f"result: {'OK   ' if begins and equal else 'WRONG'} {name}: the first loss of the model, the bits of "
              "recomputation and offloading")
        right &= begins and equal
    return right


def planned_mebibytes(runs):
    settings = next(json.loads(line) for line in runs.log.read_text().splitlines() if '"run"' in line)
    return float(str(settings["planned_mem_mb_ranks"]).split(",", maxsplit=1)[0])


def report_steps(runs, name, model, kinds):
    base = None
    for kind, flags in kinds.items():
        steps = runs.steps(*model, *flags)
        if steps is None:
            continue
        milliseconds = median_of(steps, "step_ms")
        base = base or milliseconds
        print(f"result: {name}, {kind}: {milliseconds:.1f} ms per step, {milliseconds / base:.3f} of {next(iter(kinds))}, "
              f"{planned_mebibytes(runs):.0f} MiB planned")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, type=Path)
    parser.add_argument("--device", required=True)
    parser.add_argument("--work", required=True, type=Path)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    runs = Runs(options)
    right = check_bits(runs)
    tiny = [*TINY, "--vocabulary", 50257] if options.dry else []
    layers = 2 if options.dry else 12
    half = "wte.*,wpe.*," + ",".join(f"h.{l}.*" for l in range(layers // 2))
    small = write_weights(options.work / "124M", tiny)
    model = ["--train", runs.tokens, "--dtype", "bf16", "--grad-accum", 1, "--steps", 8]
    shape = ["--seq-len", 32, "--batch-size", 1, "--peak-tflops", 1] if options.dry else ["--batch-size", 16]
    kinds = {"all weights": [], "upper half": ["--freeze", half], **ADAPTERS}
    report_steps(runs, "124M", [*model, *shape, "--init-from", small], kinds)
    large = small if options.dry else write_weights(options.work / "1558M", ["--layers", 48, "--heads", 25, "--channels", 1600])
    shape = shape if options.dry else ["--batch-size", 4]
    report_steps(runs, "1558M", [*model, *shape, "--init-from", large],
                 {"LoRA with full recomputation": [*ADAPTERS["LoRA"], "--recompute", "full"]})
    return 0 if right else 1


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    import standard_output
    standard_output.run(main)
