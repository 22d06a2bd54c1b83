"""Two small Hugging Face model directories with the same weights, for tests of import and export.

hf_tiny          as GPT2LMHeadModel.save_pretrained writes it: names start with `transformer.`
hf_tiny_openai   as the files of the `gpt2` repository are: no prefix, the causal mask stored as
                 `h.N.attn.bias` (1, 1, T_max, T_max), a config.json with the keys of 2019

Both have the hashed parameters (hashed.py) of seed 96, all amplitudes 1/8, LayerNorm weights around
1. In addition, hf_tiny/tokens.txt has one window of T + 1 ids per line (the loss predicts each id
from the ids before it), and hf_tiny/expected.fixture has the losses that transformers computes.
"""

import json
import shutil

import numpy as np
import safetensors.torch
import torch
import transformers

from fixture_writer import FixtureWriter
from hashed import hashed_parameter, hashed_tokens

SEED, V, T_MAX, C, L, NH = 96, 61, 16, 24, 2, 3
B, T = 3, 11


def recipe(name, p):
    """(amplitude, offset): LayerNorm weights lie around 1, all other parameters around 0."""
    return 0.125, float(p.dim() == 1 and name.endswith("weight"))


def build():
    config = transformers.GPT2Config(
        vocab_size=V, n_positions=T_MAX, n_embd=C, n_layer=L, n_head=NH, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=V - 1, eos_token_id=V - 1)
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for index, (name, p) in enumerate(model.named_parameters()):
            p.copy_(torch.from_numpy(hashed_parameter(SEED, index, p.shape, *recipe(name, p))))
    return model


def loss_in(model, dtype, windows):
    logits = model.to(dtype)(windows[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten()).item()


def write_expected(model, windows, directory):
    lines = [" ".join(str(int(i)) for i in row) for row in windows]
    (directory / "tokens.txt").write_text("\n".join(lines) + "\n")
    out = FixtureWriter()
    out.text("made_by", "test/oracle/hf_fixtures.py")
    out.text("torch", torch.__version__)
    out.text("transformers", transformers.__version__)
    for key, value in dict(L=L, NH=NH, C=C, V=V, T_max=T_MAX, T=T, B=B, seed=SEED).items():
        out.number(key, value)
    for index, (name, p) in enumerate(model.named_parameters()):
        out.parameter(name.removeprefix("transformer."), index, *recipe(name, p), p.shape)
    out.tensor("tokens", windows[:, :-1].numpy().astype(np.int32))
    out.tensor("targets", windows[:, 1:].numpy().astype(np.int32))
    out.number("loss.fp32", loss_in(model, torch.float32, windows))
    out.number("loss", loss_in(model, torch.float64, windows))
    out.save(directory / "expected.fixture")


def write_openai_variant(tensors, directory):
    """Writes the same tensors with the names, the buffers and the config of the 2019 files."""
    directory.mkdir(exist_ok=True)
    renamed = {name.removeprefix("transformer."): t for name, t in tensors.items()}
    mask = torch.tril(torch.ones(T_MAX, T_MAX)).view(1, 1, T_MAX, T_MAX)
    for layer in range(L):
        renamed[f"h.{layer}.attn.bias"] = mask.clone()
    safetensors.torch.save_file(renamed, directory / "model.safetensors", metadata={"format": "pt"})
    config = dict(
        activation_function="gelu_new", architectures=["GPT2LMHeadModel"], attn_pdrop=0.1,
        bos_token_id=V - 1, embd_pdrop=0.1, eos_token_id=V - 1, initializer_range=0.02,
        layer_norm_epsilon=1e-05, model_type="gpt2", n_ctx=T_MAX, n_embd=C, n_head=NH, n_layer=L,
        n_positions=T_MAX, resid_pdrop=0.1, summary_activation=None, summary_first_dropout=0.1,
        summary_proj_to_labels=True, summary_type="cls_index", summary_use_proj=True,
        task_specific_params={"text-generation": {"do_sample": True, "max_length": T_MAX}},
        vocab_size=V)
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def make(fixtures):
    tiny, openai = fixtures / "hf_tiny", fixtures / "hf_tiny_openai"
    for directory in (tiny, openai):
        shutil.rmtree(directory, ignore_errors=True)
    model = build()
    model.save_pretrained(tiny)
    (tiny / "generation_config.json").unlink(missing_ok=True)  # no test reads it
    write_openai_variant(safetensors.torch.load_file(tiny / "model.safetensors"), openai)
    windows = torch.from_numpy(hashed_tokens(SEED, 0, B * (T + 1), V).reshape(B, T + 1))
    models = [transformers.GPT2LMHeadModel.from_pretrained(d).eval() for d in (tiny, openai)]
    losses = [loss_in(m, torch.float32, windows) for m in (model, *models)]
    assert losses[0] == losses[1] == losses[2], losses
    write_expected(model, windows, tiny)
    print(f"hf_tiny      loss {losses[0]:.6f}, the same from both directories")
