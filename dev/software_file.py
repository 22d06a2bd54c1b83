#!/usr/bin/env python3
"""Counts what this engine's operations read and write, and writes it as scripts/machines/software/llmc.json.

    python3 dev/software_file.py [--program build/host/train_gpt2] [--out scripts/machines/software/llmc.json]

Four small models are trained for two steps in bf16 with --profile, whose rates times their durations are bytes. Counts
that depend on sizes in another way, such as the weights of a norm, cancel in differences. Rates and overlaps, which no
count gives, are listed below with their origin.
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "scripts"))
import standard_output  # noqa: E402

SOFTWARE = ROOT / "scripts/machines/software/llmc.json"
LAYERS, CONTEXT = 2, 64
CHANNELS, BATCHES = (128, 256), (2, 4)
HALF = 2  # bytes of a weight in bf16
UPDATE = ("optimizer/gradient norm", "optimizer/adamw")

NOT_COUNTED = {
    "score_values": (0, "attention keeps scores on chip"),
    "attention_rate": (0.179, "measured on one H100 at T = 1024 with 64 channels per head (dev/results/2026-11-27-h100-aaa6bc3-profile); "
                       "files of --measure-machine have their own"),
    "weight_bytes": (HALF, "bf16; --plan uses those of --dtype"),
    "accumulation_bytes": (0, "products add to gradients"),
    "overlaps_messages": (1, "messages have streams of their own"),
    "divides_messages": (0, "each tensor rank sends the whole message"),
    "overlaps_gradients": (1, "buckets are reduced during the last backward pass"),
    "overlaps_gathers": (1, "the next block's weights are gathered during a pass"),
    "counted_traffic": (1, "--plan takes the bytes that --dry-run prints, which are those that runs count"),
}
ORDER = ["score_values", "divided_values", "copied_values", "logit_values", "attention_rate", "weight_bytes",
         "gradient_bytes", "optimizer_bytes", "accumulation_bytes", "recompute_sums", "overlaps_messages", "divides_messages",
         "overlaps_gradients", "overlaps_gathers", "counted_traffic"]


def number(value):
    """Rounded; a whole number if it is one."""
    value = round(value, 6)
    return int(value) if value == int(value) else value


def run(program, *arguments):
    command = [str(word) for word in (program, *arguments)]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"software_file.py: {' '.join(command)} failed:\n{result.stderr}")
    return result.stdout


def model(channels, batch):
    return ["--layers", LAYERS, "--heads", 4, "--channels", channels, "--context", CONTEXT, "--batch-size", batch,
            "--dtype", "bf16"]


def profiled_bytes(program, text, channels, batch, folder):
    """{operation: bytes of a step} of those that count them."""
    profile = Path(folder) / f"{channels}-{batch}.jsonl"
    run(program, "--train", text, *model(channels, batch), "--tokenizer", "bytes", "--steps", 2, "--eval-every", 0,
        "--sample-every", 0, "--profile", 1, "--profile-out", profile)
    rows = map(json.loads, profile.read_text(encoding="utf-8").splitlines())
    return {row["operation"]: 1e-3 * row["bytes_per_s"] * row["ms_per_step"] for row in rows if "bytes_per_s" in row}


def sent(program, *flags):
    """{what: bytes} that one of two ranks sends in a step, by --dry-run."""
    text = run(program, *model(CHANNELS[0], 1), "--ranks", 2, "--dry-run", *flags)
    return {name: int(bytes_) for name, bytes_ in re.findall(r"^  ([a-z, -]+): (\d+) bytes", text, re.M)}


def counts(program, text, folder):
    """{constant: (value, origin)} of those that are counted."""
    steps = {(c, b): profiled_bytes(program, text, c, b, folder) for c in CHANNELS for b in BATCHES}
    rows = (BATCHES[1] - BATCHES[0]) * CONTEXT

    def per_value(*operations):
        """Per row and channel of each layer."""
        of = {key: sum(step[operation] for operation in operations) for key, step in steps.items()}
        (c0, c1), (b0, b1) = CHANNELS, BATCHES
        both = of[c1, b1] - of[c1, b0] - of[c0, b1] + of[c0, b0]
        return both / (rows * (c1 - c0)) / LAYERS / HALF

    # Tensor ranks divide 3 C and 4 C of the outputs that have a bias, and each has the other 2 C.
    bias = per_value("backward/bias gradient")
    divided = per_value("forward/gelu forward", "backward/gelu backward") + bias * 7 / 9
    copied = per_value("forward/residual layernorm forward", "backward/layernorm backward") + bias * 2 / 9
    key = CHANNELS[0], BATCHES[0]
    vocabulary = 384  # 257 tokens of bytes, with padding
    logits = steps[key]["head/classifier"] / (BATCHES[0] * CONTEXT * vocabulary * HALF)
    # The norm reads 4 bytes per parameter, padding included.
    update = 4 * sum(steps[key][name] for name in UPDATE) / steps[key][UPDATE[0]]
    stage_one = sent(program, "--zero", 1)  # reduces gradients, then gathers weights
    tensor, full = (sent(program, "--tp", 2, "--recompute", mode)["activations, to tensor ranks"]
                    for mode in ("none", "full"))
    one_sum = CONTEXT * CHANNELS[0] * HALF  # that a rank of two sends of an all-reduce
    return {
        "divided_values": (number(divided / 3), "counted by --profile, a third of both passes: GELU, gradients of biases"),
        "copied_values": (number(copied / 3), "counted by --profile, a third of both passes: two norms, gradients of "
                                              "biases"),
        "logit_values": (number(logits), "counted by --profile: the classifier reads logits and writes their gradient "
                                          "in place, loss included"),
        "optimizer_bytes": (number(update), "counted by --profile: the norm of gradients, AdamW with its "
                                             "moments, master and other weights"),
        "gradient_bytes": (number(HALF * stage_one["gradients"] / stage_one["weights"]), "counted by --dry-run: fp32"),
        "recompute_sums": (number((full - tensor) / (LAYERS * one_sum)),
                           "counted by --dry-run: the last sum of a block is not needed, but the pieces of its input "
                           "are gathered"),
    }


def software(program):
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        text.write_text("the quick brown fox jumps over the lazy dog. " * 400, encoding="utf-8")
        values = NOT_COUNTED | counts(program, text, folder)
    return {
        "software": "llmc",
        "note": "This engine on GPUs, in bf16 or fp32. python3 dev/software_file.py writes this file.",
        "accuracy": json.loads(SOFTWARE.read_text(encoding="utf-8"))["accuracy"],
        "constants": {name: {"value": values[name][0], "origin": values[name][1]} for name in ORDER},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=ROOT / "build/host/train_gpt2", help="default: the host build")
    parser.add_argument("--out", default=SOFTWARE, type=Path, help="default: the file that --plan reads")
    arguments = parser.parse_args()
    arguments.out.write_text(json.dumps(software(arguments.program), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    standard_output.run(main)
