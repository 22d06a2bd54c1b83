#!/usr/bin/env python3
"""Writes test/oracle/fixtures/adapters: adapters of a small GPT-2 by PEFT, and 20 steps of training with each.

    python3 test/oracle/adapter_fixtures.py [--out DIR]

    base/            the GPT-2, as save_pretrained writes it
    CASE/            the adapter before training, as save_pretrained of PEFT writes it
    CASE/expected.fixture    batches, losses, gradients, adapters after training, logits
    choices.json     the layers, ranks and scales that PEFT derives from settings of adapter_config.json

Needs torch, transformers, peft, safetensors and numpy; takes a few seconds. README.md next to this file describes
the files. Matrices of fixtures have the engine's orientation: lora_A (R, inputs), lora_B (R, outputs).
"""
import json
import os
import shutil
import sys

if os.environ.get("PYTHONHASHSEED") != "0":  # it decides the order of sets, which PEFT writes as lists
    os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"PYTHONHASHSEED": "0", "HF_HUB_OFFLINE": "1"})

import numpy as np
import peft
import torch
import transformers

import fixture_script
from fixture_writer import FixtureWriter
from hashed import hashed_parameter, hashed_tokens

SEED, V, T_MAX, C, L, NH = 97, 61, 16, 32, 2, 4
B, T, STEPS, LABELS = 2, 16, 20, 3
LR, BETAS, EPS, WEIGHT_DECAY = 1e-3, (0.9, 0.95), 1e-4, 0.1
ALL_LAYERS = ["c_attn", "attn.c_proj", "c_fc", "mlp.c_proj"]

# Adapters with which the model is trained.
TRAINED = {
    "lora_c_attn": lambda: peft.LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=16, target_modules=["c_attn"]),
    "lora_all": lambda: peft.LoraConfig(task_type="CAUSAL_LM", r=8, lora_alpha=16, target_modules=ALL_LAYERS),
    "lora_rslora": lambda: peft.LoraConfig(
        task_type="CAUSAL_LM", r=4, lora_alpha=16, use_rslora=True, target_modules=ALL_LAYERS),
    "ia3": lambda: peft.IA3Config(task_type="CAUSAL_LM"),
}
# Adapters that are only read: other ways to choose layers, ranks and scales.
READ = {
    "classifier": lambda: peft.LoraConfig(task_type="SEQ_CLS", r=2, lora_alpha=3, target_modules=["c_proj"]),
    "patterns": lambda: peft.LoraConfig(
        task_type="CAUSAL_LM", r=2, lora_alpha=5, target_modules=["c_attn", "mlp.c_proj"], layers_to_transform=[1],
        layers_pattern="h", rank_pattern={"c_attn": 3}, alpha_pattern={r"h\.\d+\.mlp\.c_proj": 7}, lora_dropout=0.1),
    "expression": lambda: peft.LoraConfig(
        task_type="CAUSAL_LM", r=1, target_modules=r".*\.(0\.attn|1\.mlp)\.c_proj", fan_in_fan_out=True),
    "all_linear": lambda: peft.LoraConfig(task_type="CAUSAL_LM", r=1, target_modules="all-linear"),
}
# Settings that choose layers in different ways.
CHOICES = [
    {"target_modules": ["c_proj"]},
    {"target_modules": ["attn.c_proj", "h.1.mlp.c_fc"]},
    {"target_modules": ["transformer.h.0.attn.c_attn", "c_fc"], "layers_to_transform": 1},
    {"target_modules": ["c_attn", "proj", "n.c_proj"]},
    {"target_modules": None},
    {"target_modules": "All-Linear", "exclude_modules": ["c_fc", "transformer.h.1.attn.c_attn"]},
    {"target_modules": "all-linear", "exclude_modules": ".*0.*"},
    {"target_modules": r"transformer\.h\.(?P<block>[1-9])\.(attn|mlp)\.c_(?!fc).+"},
    {"target_modules": ["c_attn", "c_fc"], "layers_to_transform": [1, 5], "layers_pattern": ["x", "h"]},
    {"target_modules": ["c_attn", "transformer.h.0.mlp.c_fc"], "layers_to_transform": [0], "layers_pattern": ["x"]},
    {"target_modules": ["c_attn", "h.0.mlp.c_proj"], "layers_to_transform": [0], "layers_pattern": ""},
    {"target_modules": ["c_attn", "c_fc"], "layers_to_transform": []},
    {"target_modules": ["c_attn", "c_proj"], "rank_pattern": {"c_proj": 3, "attn.c_proj": 5},
     "alpha_pattern": {"h.0.mlp.c_proj": 2.5, "^transformer.h.1.*": 11, "c_attn": 3}},
    {"target_modules": ["c_attn", "mlp.c_proj"], "rank_pattern": {"transformer.h.0.attn.c_attn": 9},
     "use_rslora": True, "lora_alpha": 7.5},
]


def build_base():
    config = transformers.GPT2Config(
        vocab_size=V, n_positions=T_MAX, n_embd=C, n_layer=L, n_head=NH, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, bos_token_id=V - 1, eos_token_id=V - 1)
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for index, (name, p) in enumerate(model.named_parameters()):
            offset = float(p.dim() == 1 and name.endswith("weight"))
            p.copy_(torch.from_numpy(hashed_parameter(SEED, index, p.shape, 0.25, offset)))
    return model


def adapt(base, config, dtype=torch.float32):
    """The model with an adapter of hashed values, none of which is 0 or leaves the model unchanged."""
    kind = transformers.GPT2ForSequenceClassification if config.task_type == "SEQ_CLS" else transformers.GPT2LMHeadModel
    options = {"num_labels": LABELS} if config.task_type == "SEQ_CLS" else {}
    model = peft.get_peft_model(kind.from_pretrained(base, **options), config)
    with torch.no_grad():
        for index, (name, p) in enumerate(trained(model).items()):
            amplitude, offset = (0.25, 1.0) if name.endswith("ia3_l") else (0.0625, 0.0) if "lora_B" in name else (0.25, 0.0)
            p.copy_(torch.from_numpy(hashed_parameter(SEED, 256 + index, p.shape, amplitude, offset)))
    return model.to(dtype)


def trained(model):
    """{name in the engine: parameter} of the adapter."""
    return {name.removeprefix("base_model.model.").removeprefix("transformer.").replace(".default", ""): p
            for name, p in model.named_parameters() if p.requires_grad}


def in_engine(name, values):
    """A parameter or its gradient with the shape that the engine has."""
    values = values.detach().numpy()
    if name.endswith("lora_B.weight"):
        values = values.T
    return values.reshape(-1) if name.endswith("ia3_l") else values


def loss_of(model, tokens, targets):
    logits = model(tokens).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def train(model, tokens, targets, weight_decay):
    """Runs AdamW. Returns (losses, gradients of the first step); the model keeps the trained adapter."""
    model.train()
    parameters = trained(model)
    optimizer = torch.optim.AdamW(parameters.values(), lr=LR, betas=BETAS, eps=EPS, weight_decay=weight_decay)
    losses, gradients = [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, tokens[step], targets[step])
        loss.backward()
        if step == 0:
            gradients = {name: in_engine(name, p.grad).copy() for name, p in parameters.items()}
        optimizer.step()
        losses.append(loss.item())
    return losses, gradients


def relative_error(actual, expected):
    """The L2 error of all tensors as one vector, relative to the norm of the expected vector."""
    flat = [np.concatenate([np.ravel(tensor) for tensor in tensors.values()]).astype(np.float64)
            for tensors in (actual, expected)]
    return np.linalg.norm(flat[0] - flat[1]) / np.linalg.norm(flat[1])


def record_run(out, prefix, base, make_config, tokens, targets, weight_decay):
    """Trains in fp32 and, for the error of fp32, in fp64."""
    results = []
    for dtype in (torch.float32, torch.float64):
        model = adapt(base, make_config(), dtype)
        losses, gradients = train(model, tokens, targets, weight_decay)
        adapter = {name: in_engine(name, p) for name, p in trained(model).items()}
        results.append((np.array(losses), gradients, adapter))
    (losses, gradients, adapter), (exact_losses, exact_gradients, exact_adapter) = results
    out.tensor(f"{prefix}losses", losses)
    out.tensor(f"{prefix}losses.fp64", exact_losses)
    for name, values in adapter.items():
        out.tensor(f"{prefix}final.{name}", values)
    out.number(f"{prefix}error.final", relative_error(adapter, exact_adapter))
    if not prefix:
        for name, values in gradients.items():
            out.tensor(f"gradient.{name}", values)
        out.number("error.gradients", relative_error(gradients, exact_gradients))
    print(f"  {prefix or 'plain'}: loss {losses[0]:.5f} to {losses[-1]:.5f}")


def record_logits(out, base, make_config, tokens):
    """Logits of the first batch with the adapter before training, next to the base model and merged into it."""
    with torch.no_grad():
        model = adapt(base, make_config()).eval()
        exact = adapt(base, make_config(), torch.float64).eval()
        logits, exact_logits = model(tokens[0]).logits.numpy(), exact(tokens[0]).logits.numpy()
        merged = model.merge_and_unload()(tokens[0]).logits.numpy()
    assert np.allclose(logits, merged, atol=1e-4)
    out.tensor("logits", logits)
    out.tensor("merged_logits", merged)
    out.number("error.logits", relative_error({"": logits}, {"": exact_logits}))


def record_case(name, base, make_config, directory):
    tokens, targets = (torch.from_numpy(hashed_tokens(SEED, stream, STEPS * B * T, V).reshape(STEPS, B, T))
                       for stream in (0, 1))
    out = FixtureWriter()
    out.text("made_by", "test/oracle/adapter_fixtures.py")
    for module in (torch, transformers, peft):
        out.text(module.__name__, module.__version__)
    for key, value in dict(L=L, NH=NH, C=C, V=V, T_max=T_MAX, T=T, B=B, steps=STEPS, lr=LR, beta1=BETAS[0],
                           beta2=BETAS[1], eps=EPS, weight_decay=WEIGHT_DECAY).items():
        out.number(key, value)
    out.tensor("tokens", tokens.numpy().astype(np.int32))
    out.tensor("targets", targets.numpy().astype(np.int32))
    print(name)
    record_run(out, "", base, make_config, tokens, targets, 0.0)
    if name != "ia3":  # weight decay would pull its vectors to 0 instead of 1
        record_run(out, "decay.", base, make_config, tokens, targets, WEIGHT_DECAY)
    record_logits(out, base, make_config, tokens)
    out.save(directory / "expected.fixture")


def chosen_layers(base, choice):
    """[[name, rank, scale], ...] of the layers that PEFT adapts."""
    settings = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "fan_in_fan_out": True} | choice
    # PEFT changes the dictionaries of its arguments.
    model = peft.get_peft_model(transformers.GPT2LMHeadModel.from_pretrained(base),
                                peft.PeftConfig.from_peft_type(**json.loads(json.dumps(settings))))
    layers = [[name, module.r["default"], module.scaling["default"]]
              for name, module in model.base_model.model.transformer.named_modules() if hasattr(module, "lora_A")]
    return {"settings": settings, "layers": layers}


def main():
    out = fixture_script.begin(__doc__.splitlines()[0], fixture_script.FIXTURES / "adapters").out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    base = out / "base"
    build_base().save_pretrained(base)
    (base / "generation_config.json").unlink(missing_ok=True)  # no test reads it
    os.chdir(out)
    for name, make_config in (TRAINED | READ).items():
        model = adapt(base, make_config())
        # A path that is the same on every machine.
        model.peft_config["default"].base_model_name_or_path = "base"
        model.save_pretrained(out / name)
        (out / name / "README.md").unlink()  # a template of PEFT
        if name in TRAINED:
            record_case(name, base, make_config, out / name)
    lines = [json.dumps(chosen_layers(base, choice)) for choice in CHOICES]
    (out / "choices.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
