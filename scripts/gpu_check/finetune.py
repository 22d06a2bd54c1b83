#!/usr/bin/env python3
"""Fine-tuning: the bits that must agree, and the time and memory of parts of a model, LoRA and IA3 next to all of it.

    finetune.py --program build/cuda/train_gpt2 --device cuda --work DIR --seconds 240 [--dry]

1. On a small model, LoRA and IA3 begin with the loss of the model itself, and have the same bits with full
   recomputation and with the optimizer in host memory.
2. So have a classifier, conversations, and LoRA on INT8 weights.
3. GPT-2 124M in bf16: the time of a step and the planned memory of training all weights, the upper half, LoRA of rank 8
   on all layers, and IA3.
4. GPT-2 1558M in bf16: the same of LoRA with full recomputation.

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


def small_flags(runs):
    base = write_weights(runs.options.work / "small", [*TINY, "--vocabulary", 257])
    return ["--init-from", base, "--batch-size", 2, "--grad-accum", 2, "--dtype", "bf16", "--steps", 5, "--peak-tflops", 1]


def keeps_its_bits(runs, flags, plain):
    """Whether recomputation and offloading have the losses and norms `plain`."""
    others = [bits_of(runs.steps(*flags, *more)) for more in (["--recompute", "full"], ["--offload", "optimizer"])]
    return bool(plain) and all(other == plain for other in others)


def check_bits(runs):
    small = ["--train", runs.text, *small_flags(runs)]
    first = bits_of(runs.steps(*small))
    right = bool(first)
    for name, flags in ADAPTERS.items():
        plain = bits_of(runs.steps(*small, *flags))
        good = keeps_its_bits(runs, [*small, *flags], plain) and plain[0][0] == first[0][0]
        print(f"result: {'OK   ' if good else 'WRONG'} {name}: the first loss of the model, the bits of "
              "recomputation and offloading")
        right &= good
    return right


def write_texts(folder):
    """Labelled texts and conversations of different lengths: the flags of each task."""
    words = ["sun", "rain", "snow", "wind", "fog"]
    lines = [f"{i} " + " ".join(words[(i + j) % 5] for j in range(1 + i % 5)) for i in range(40)]
    for name, part in (("long", lines[::2]), ("short", lines[1::2])):
        (folder / f"{name}.txt").write_text("".join(f"{name[0]} {line}\n" for line in part))
    pairs = [{"prompt": f"{i}:", "completion": " " + line} for i, line in enumerate(lines)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    return {"a classifier": ["--task", "classify", "--classes", f"long={folder / 'long.txt'},short={folder / 'short.txt'}"],
            "conversations": ["--task", "chat", "--train", folder / "pairs.jsonl"]}


def check_tasks(runs):
    small = small_flags(runs)
    kinds = {name: [*flags, "--lora", 8] for name, flags in write_texts(runs.options.work).items()}
    kinds["LoRA on INT8 weights"] = ["--train", runs.text, "--lora", 8, "--base-quant", "w8"]
    right = True
    for name, flags in kinds.items():
        good = keeps_its_bits(runs, [*small, *flags], bits_of(runs.steps(*small, *flags)))
        print(f"result: {'OK   ' if good else 'WRONG'} {name}: the bits of recomputation and offloading")
        right &= good
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
    right = check_bits(runs) & check_tasks(runs)
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
