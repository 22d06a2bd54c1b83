#!/usr/bin/env python3
"""Writes a Hugging Face directory with an initialised GPT-2, from which both engines start.

    dev/peers/make_weights.py --out DIR [--layers L --heads NH --channels C --context T --vocabulary V] [--seed N]

Standard deviations are OpenAI's: 0.02, positions 0.01, the two projections into the residual stream divided
by sqrt(2 L). The default is GPT-2 124M. The weights of a seed can change with NumPy's version; both
engines read the same file.
"""
import argparse
import json
import sys
from pathlib import Path

import numpy as np

from files import replace_file, write_safetensors


def initial_tensors(L, C, T, V, seed):
    """Returns a dict of name -> array; linear layers are stored as (in, out)."""
    random = np.random.default_rng(seed)
    tensors = {}

    def normal(name, shape, stddev):
        tensors["transformer." + name] = stddev * random.standard_normal(shape, dtype=np.float32)

    def constant(name, size, value):
        tensors["transformer." + name] = np.full(size, value, dtype=np.float32)

    residual_stddev = np.float32(0.02 / np.sqrt(2 * L))
    normal("wte.weight", (V, C), np.float32(0.02))
    normal("wpe.weight", (T, C), np.float32(0.01))
    for l in range(L):
        for name, inputs, outputs, stddev in (
                ("attn.c_attn", C, 3 * C, np.float32(0.02)), ("attn.c_proj", C, C, residual_stddev),
                ("mlp.c_fc", C, 4 * C, np.float32(0.02)), ("mlp.c_proj", 4 * C, C, residual_stddev)):
            normal(f"h.{l}.{name}.weight", (inputs, outputs), stddev)
            constant(f"h.{l}.{name}.bias", outputs, 0)
    for norm in [f"h.{l}.{name}" for l in range(L) for name in ("ln_1", "ln_2")] + ["ln_f"]:
        constant(f"{norm}.weight", C, 1)
        constant(f"{norm}.bias", C, 0)
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder to write")
    for flag, value, text in (("layers", 12, "number of blocks"), ("heads", 12, "attention heads per block"),
                              ("channels", 768, "hidden size"), ("context", 1024, "largest sequence length"),
                              ("vocabulary", 50257, "number of token ids"), ("seed", 1, "seed of the weights")):
        parser.add_argument(f"--{flag}", type=int, default=value, help=f"{text} [{value}]")
    a = parser.parse_args()
    if a.channels % a.heads != 0:
        parser.error(f"--channels {a.channels} is not a multiple of --heads {a.heads}")
    tensors = initial_tensors(a.layers, a.channels, a.context, a.vocabulary, a.seed)
    write_safetensors(a.out / "model.safetensors", tensors)
    config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new",
              "vocab_size": a.vocabulary, "n_positions": a.context, "n_embd": a.channels, "n_layer": a.layers,
              "n_head": a.heads, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True, "attn_pdrop": 0.0,
              "embd_pdrop": 0.0, "resid_pdrop": 0.0, "bos_token_id": None, "eos_token_id": None}
    replace_file(a.out / "config.json", lambda file: file.write(json.dumps(config, indent=2).encode() + b"\n"))
    print(f"{a.out}: {sum(t.size for t in tensors.values())} parameters, seed {a.seed}")


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "scripts"))
    import standard_output
    standard_output.run(main)
