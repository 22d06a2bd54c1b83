#!/usr/bin/env python3
"""Checks the greedy texts of a small GPT-2 on a device against the definition of GPT-2, in NumPy and fp64.

    infer_text.py --program build/cuda/infer_gpt2 --device cuda --work DIR [--variants fp32,bf16,fp32+w8a8]

infer_gpt2 continues prompts of several lengths in each variant (variant.py), together in a batch. Every token must be
the likeliest one by the definition of the variant (gpt2_definition.py), or so near to it that rounding decides, and the
log-probabilities must agree, which shows smaller faults. The texts of the batch must be those of a prompt alone, to the
bit. Prints a `result: ` line per check; exits 1 if one is wrong.

In fp32 without INT8 activations and cache, all log-probabilities agree within rounding. A rounded activation can get the
next code, which changes a few log-probabilities by up to a hundredth; so with codes of activations the median must
agree. The texts must disagree with the definitions of the other fp32 variants, else the comparison shows nothing. In
bf16, rounding is as large as the effect of INT8, so only gross faults show.
"""
import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gpt2_definition import Definition
from variant import Variant, variants_of

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "dev/peers"))

SIZES = {"layers": 3, "heads": 4, "channels": 64, "context": 128, "vocabulary": 257}  # tokens are bytes
PROMPTS = ["a", "The quick brown fox", "GPT-2 " * 6, "0123456789" * 6]
TOKENS = 40
# Bytes in the order of their ids in GPT-2's vocabulary, which models of bytes use too: first the printable ones.
PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
BYTES = PRINTABLE + [byte for byte in range(256) if byte not in PRINTABLE]


class Tolerance(NamedTuple):
    lead: float  # of the likeliest token before the generated one, in logits
    median: float  # deviation of log-probabilities, in nats
    largest: float


# On a CPU the deviations are, in this order: 1e-6 at most; a median of 3e-7 and at most 0.013; a median of 0.01 and at
# most 0.05. Between definitions that differ in one part of INT8 the median is at least 0.004.
EXACT, ROUNDED, COARSE = Tolerance(1e-3, 1e-4, 1e-4), Tolerance(0.1, 1e-3, 0.1), Tolerance(0.2, 0.03, 0.2)


def tolerance_of(variant):
    if variant.dtype != "fp32":
        return COARSE
    return ROUNDED if variant.quant == "w8a8" or variant.kv8 else EXACT


def write_model(folder):
    """Writes the model, and returns its tensors. Blocks have larger weights than a model at the begin of its
    training, which would only repeat the last token."""
    from files import read_safetensors, write_safetensors
    import make_weights
    subprocess.run([sys.executable, make_weights.__file__, "--out", folder,
                    *(str(word) for key, value in SIZES.items() for word in (f"--{key}", value))],
                   check=True, stdout=subprocess.DEVNULL)
    tensors = {name: np.array(values) for name, values in read_safetensors(folder / "model.safetensors").items()}
    for name, values in tensors.items():
        if values.ndim == 2:
            values *= 8 if ".h." in name else 4
    write_safetensors(folder / "model.safetensors", tensors)
    return {name.removeprefix("transformer."): values for name, values in tensors.items()}


class Texts:
    """Runs infer_gpt2."""

    def __init__(self, options):
        self.options = options

    def generate(self, prompts, variant):
        """The generated (id, log-probability) pairs of each prompt."""
        o = self.options
        file = o.work / "prompts.jsonl"
        file.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
        done = subprocess.run([o.program, "-m", o.work / "small", "--device", o.device, *variant.flags, "--prompts", file,
                               "--jsonl", "--batch", str(len(prompts)), "-n", str(TOKENS), "--temp", "0", "--ignore-eos"],
                              capture_output=True, text=True)
        if done.returncode != 0:
            print(done.stderr)
            raise SystemExit(f"result: WRONG {variant}: infer_gpt2 failed")
        completions = map(json.loads, done.stdout.splitlines())
        return [list(zip(completion["ids"], completion["logprobs"], strict=True)) for completion in completions]


def scores_of(definition, texts):
    """Definition.scores() of each text."""
    return [definition.scores([BYTES.index(byte) for byte in prompt.encode()], [token for token, _ in text])
            for prompt, text in zip(PROMPTS, texts, strict=True)]


def verdict(scores, texts, tolerance):
    """(whether the texts agree with the definition's scores, explanation)."""
    deviations = []
    for prompt, expected, text in zip(PROMPTS, scores, texts, strict=True):
        place = f"prompt '{prompt[:12]}'"
        if len(text) != TOKENS:
            return False, f"{place}: {len(text)} tokens instead of {TOKENS}"
        for index, ((lead, expected_logprob), (token, logprob)) in enumerate(zip(expected, text, strict=True)):
            deviations.append(abs(logprob - expected_logprob))
            if not (lead <= tolerance.lead and deviations[-1] <= tolerance.largest):
                return False, (f"{place}, token {index}: {token} with log-probability {logprob:.6f} instead of "
                               f"{expected_logprob:.6f}, {lead:.6f} below the likeliest")
    median = statistics.median(deviations)
    explanation = f"log-probabilities deviate by {median:.1e} (median), at most {max(deviations):.1e}"
    return median <= tolerance.median, explanation


def report(right, name, reason):
    print(f"result: {'OK   ' if right else 'WRONG'} {name}{'' if right else ': ' + reason}")
    return right


def check(variant, texts, definitions):
    """Whether the texts are those of the variant's definition and, in fp32, of no other."""
    tolerance = tolerance_of(variant)
    scored = lambda other: verdict(scores_of(definitions[other], texts), texts, tolerance)
    good, explanation = scored(variant)
    right = report(good, f"{variant}: {TOKENS * len(PROMPTS)} greedy tokens as in the definition" +
                   (f", {explanation}" if good else ""), explanation)
    if variant.dtype == "fp32":
        same = [str(other) for other in definitions if other.dtype == "fp32" and other != variant and scored(other)[0]]
        right &= not same or report(False, f"{variant}: the texts are also those of {', '.join(same)}", "the mode has no effect")
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, type=Path)
    parser.add_argument("--device", required=True)
    parser.add_argument("--work", required=True, type=Path)
    parser.add_argument("--variants", default="fp32,bf16", type=variants_of, help="[fp32,bf16]")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    weights, texts = write_model(options.work / "small"), Texts(options)
    definitions = {variant: Definition(weights, SIZES["heads"], variant) for variant in [Variant("fp32"), *options.variants]}
    right, occurring = True, set()
    for variant in options.variants:
        batch = texts.generate(PROMPTS, variant)
        right &= check(variant, batch, definitions)
        shown = [batch[0], batch[-1]]  # every run has to start the device
        alone = [texts.generate([prompt], variant)[0] for prompt in (PROMPTS[0], PROMPTS[-1])]
        right &= report(shown == alone, f"{variant}: texts do not depend on the batch", f"{shown} and {alone}")
        occurring |= {token for text in batch for token, _ in text}
    few = report(len(occurring) > 10, f"{len(occurring)} different tokens occur", "the model shows too little")
    return 0 if right and few else 1


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    import standard_output
    standard_output.run(main)
