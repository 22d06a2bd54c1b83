#!/usr/bin/env python3
"""A Hugging Face directory with a freshly initialised GPT-2, for two engines to start from.

    dev/peers/make_weights.py --out DIR [--layers L --heads NH --channels C --context T --vocabulary V] [--seed N]

Deviations are OpenAI's: 0.02, positions 0.01, the two projections into the residual stream divided
by sqrt(2 L). The default is GPT-2 124M. What one seed gives can change with NumPy's version; both
engines read the same file.
"""
import argparse
import json
from pathlib import Path

import numpy as np

from files import replace_file, write_safetensors


def initial_tensors(L, C, T, V, seed):
    """Returns a dict of name -> array; linear layers are stored as (in, out)."""
    random = np.random.default_rng(seed)
    tensors = {}

    def normal(name, shape, deviation):
        tensors["transformer." + name] = deviation * random.standard_normal(shape, dtype=np.float32)

    def constant(name, size, value):
        tensors["transformer." + name] = np.full(size, value, dtype=np.float32)

    residual = np.float32(0.02 / np.sqrt(2 * L))
    normal("wte.weight", (V, C), np.float32(0.02))
    normal("wpe.weight", (T, C), np.float32(0.01))
    for l in range(L):
        for name, inputs, outputs, deviation in (("attn.c_attn", C, 3 * C, np.float32(0.02)), ("attn.c_proj", C, C, residual),
                                                 ("mlp.c_fc", C, 4 * C, np.float32(0.02)), ("mlp.c_proj", 4 * C, C, residual)):
            normal(f"h.{l}.{name}.weight", (inputs, outputs), deviation)
            constant(f"h.{l}.{name}.bias", outputs, 0)
    for norm in [f"h.{l}.{name}" for l in range(L) for name in ("ln_1", "ln_2")] + ["ln_f"]:
        constant(f"{norm}.weight", C, 1)
        constant(f"{norm}.bias", C, 0)
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path)
    for flag, value in (("layers", 12), ("heads", 12), ("channels", 768), ("context", 1024), ("vocabulary", 50257), ("seed", 1)):
        parser.add_argument(f"--{flag}", type=int, default=value)
    a = parser.parse_args()
    if a.channels % a.heads != 0:
        parser.error(f"--channels {a.channels} is no multiple of --heads {a.heads}")
    tensors = initial_tensors(a.layers, a.channels, a.context, a.vocabulary, a.seed)
    write_safetensors(a.out / "model.safetensors", tensors)
    config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new",
              "vocab_size": a.vocabulary, "n_positions": a.context, "n_embd": a.channels, "n_layer": a.layers,
              "n_head": a.heads, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True, "attn_pdrop": 0.0,
              "embd_pdrop": 0.0, "resid_pdrop": 0.0, "bos_token_id": None, "eos_token_id": None}
    replace_file(a.out / "config.json", lambda file: file.write(json.dumps(config, indent=2).encode() + b"\n"))
    print(f"{a.out}: {sum(t.size for t in tensors.values())} parameters, seed {a.seed}")


if __name__ == "__main__":
    main()
