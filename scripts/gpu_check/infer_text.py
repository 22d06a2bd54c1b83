#!/usr/bin/env python3
"""Checks the greedy texts of a small GPT-2 on a device against the definition of GPT-2, in NumPy and fp64.

    infer_text.py --program build/cuda/infer_gpt2 --device cuda --work DIR

infer_gpt2 continues prompts of several lengths in fp32, together in a batch. All ids must be those of the definition,
as far as the likeliest token is certain: a text is compared until the two largest logits differ by less than fp32 can
resolve. The log-probabilities of these tokens must agree, too, which shows smaller faults. In fp32 and bf16, the texts
of the batch must be those of a prompt alone, to the bit. Prints a `result: ` line per check; exits 1 if one is wrong.
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "dev/peers"))

SIZES = {"layers": 3, "heads": 4, "channels": 64, "context": 128, "vocabulary": 257}  # tokens are bytes
PROMPTS = ["a", "The quick brown fox", "GPT-2 " * 6, "0123456789" * 6]
TOKENS = 40
# Bytes in the order of their ids in GPT-2's vocabulary, which models of bytes use too: first the printable ones.
PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
BYTES = PRINTABLE + [byte for byte in range(256) if byte not in PRINTABLE]
GAP = 1e-3  # between logits; the rounding errors of fp32 are about a hundred times smaller
TOLERANCE = 1e-4  # of log-probabilities, in nats


def write_model(folder):
    """Writes the model, and returns its tensors in fp64. Blocks have larger weights than a model at the begin of
    its training, which would only repeat the last token."""
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
    return {name.removeprefix("transformer."): values.astype(np.float64) for name, values in tensors.items()}


def layer_norm(x, w, name):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]


def linear(x, w, name):
    return x @ w[f"{name}.weight"] + w[f"{name}.bias"]


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))


def attention(qkv, heads):
    """Causal attention of (T, 3C)."""
    T = len(qkv)
    q, k, v = qkv.reshape(T, 3, heads, -1).transpose(1, 2, 0, 3)  # (NH, T, HS)
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    scores[:, np.triu(np.ones((T, T), bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return (weights @ v).transpose(1, 0, 2).reshape(T, -1)


def last_logits(ids, w):
    """Logits after the last of the tokens."""
    x = w["wte.weight"][ids] + w["wpe.weight"][:len(ids)]
    for block in (f"h.{l}" for l in range(SIZES["layers"])):
        qkv = linear(layer_norm(x, w, f"{block}.ln_1"), w, f"{block}.attn.c_attn")
        x = x + linear(attention(qkv, SIZES["heads"]), w, f"{block}.attn.c_proj")
        x = x + linear(gelu(linear(layer_norm(x, w, f"{block}.ln_2"), w, f"{block}.mlp.c_fc")), w, f"{block}.mlp.c_proj")
    return layer_norm(x[-1], w, "ln_f") @ w["wte.weight"].T


def greedy_text(prompt, w):
    """The (id, log-probability) pairs that the definition generates, up to the first that rounding could change."""
    ids = [BYTES.index(byte) for byte in prompt.encode()]
    text = []
    while len(text) < TOKENS:
        logits = last_logits(ids, w)
        second, first = np.sort(logits)[-2:]
        if first - second < GAP:
            break
        ids.append(int(logits.argmax()))
        text.append((ids[-1], float(first - np.log(np.exp(logits).sum()))))
    return text


class Texts:
    """Runs infer_gpt2."""

    def __init__(self, options):
        self.options = options

    def generate(self, prompts, dtype):
        """The generated (id, log-probability) pairs of each prompt."""
        o = self.options
        file = o.work / "prompts.jsonl"
        file.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
        done = subprocess.run([o.program, "-m", o.work / "small", "--device", o.device, "--dtype", dtype, "--prompts", file,
                               "--jsonl", "--batch", str(len(prompts)), "-n", str(TOKENS), "--temp", "0", "--ignore-eos"],
                              capture_output=True, text=True)
        if done.returncode != 0:
            print(done.stderr)
            raise SystemExit(f"result: WRONG {dtype}: infer_gpt2 failed")
        completions = map(json.loads, done.stdout.splitlines())
        return [list(zip(completion["ids"], completion["logprobs"], strict=True)) for completion in completions]


def verdict(expected, texts):
    """(whether all texts begin with the expected pairs, number of compared tokens, explanation)."""
    for prompt, tokens, text in zip(PROMPTS, expected, texts, strict=True):
        for index, (a, b) in enumerate(zip(tokens, text)):
            if a[0] != b[0] or not abs(a[1] - b[1]) <= TOLERANCE:
                return False, index, f"prompt '{prompt[:12]}', token {index}: (id, log-probability) {b} instead of {a}"
        if len(text) != TOKENS:
            return False, len(text), f"prompt '{prompt[:12]}': {len(text)} tokens instead of {TOKENS}"
    compared = sum(map(len, expected))
    return compared >= 0.5 * TOKENS * len(PROMPTS), compared, "too few tokens are certain"


def report(right, name, reason):
    print(f"result: {'OK   ' if right else 'WRONG'} {name}{'' if right else ': ' + reason}")
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, type=Path)
    parser.add_argument("--device", required=True)
    parser.add_argument("--work", required=True, type=Path)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    weights, texts = write_model(options.work / "small"), Texts(options)
    expected = [greedy_text(prompt, weights) for prompt in PROMPTS]
    together = {dtype: texts.generate(PROMPTS, dtype) for dtype in ("fp32", "bf16")}
    good, compared, reason = verdict(expected, together["fp32"])
    right = report(good, f"fp32, {len(PROMPTS)} prompts together: {compared} greedy tokens as in the definition", reason)
    for dtype, batch in together.items():
        shown = [batch[0], batch[-1]]  # every run has to start the device
        alone = [texts.generate([prompt], dtype)[0] for prompt in (PROMPTS[0], PROMPTS[-1])]
        right &= report(shown == alone, f"{dtype}: texts do not depend on the batch", f"{shown} and {alone}")
    distinct = len({token for text in expected for token, _ in text})
    return 0 if report(distinct > 10, f"{distinct} different tokens occur", "the model shows too little") and right else 1


if __name__ == "__main__":
    sys.exit(main())
