#!/usr/bin/env python3
"""Small GPT-2s with properties of GPT2Config that are not those of OpenAI's models, and what transformers computes
with them, for test_family_programs.py.

    family.py --remake          writes fixtures/family.json: the results of the models with the seed FIXTURE_SEED
    family.py save FOLDER       for each kind, writes FOLDER/KIND/saved with save_pretrained, and prints the results
    family.py compare FOLDER    compares FOLDER/KIND/saved with FOLDER/KIND/checkpoint and with the log-probabilities
                                in FOLDER/KIND/texts.jsonl, which infer_gpt2 --jsonl printed

All need torch, transformers and numpy. write_model() and TEXT need only the standard library.
"""
import json
import os
import sys
import tempfile
from pathlib import Path

import greedy

FIXTURE = Path(__file__).resolve().parent / "fixtures" / "family.json"
FIXTURE_SEED, LIVE_SEED = 3, 4
SHAPE = {"layers": 3, "heads": 2, "channels": 16, "context": 48}
PROMPTS = ["The king", "x"]
TOKENS = 30
TEXT = "".join(f"line {i}: the quick brown fox jumps over the lazy dog.\n" for i in range(40))
TRAINING = {"batch_size": 4, "grad_accum": 2, "steps": 20, "lr": 1e-3, "warmup": 1, "seed": 7}

# Settings of GPT2Config by the kind of model. The first kinds have one property; the others have the combinations of
# published models, and all properties. reorder_and_upcast_attn changes only the rounding.
BY_LAYER = {"scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True}
KINDS = {
    "epsilon": {"layer_norm_epsilon": 0.01},
    "inner": {"n_inner": 96},
    "unscaled": {"scale_attn_weights": False},
    "relu": {"activation_function": "relu"},
    "tanh": {"activation_function": "gelu_pytorch_tanh"},
    "untied": {"tie_word_embeddings": False},
    "codeparrot": {**BY_LAYER, "scale_attn_weights": True, "activation_function": "gelu_new"},
    "cerebras": {"activation_function": "gelu", "n_inner": 4 * SHAPE["channels"]},
    "stanford": {**BY_LAYER, "scale_attn_weights": False},
    "everything": {"layer_norm_epsilon": 0.001, "n_inner": 32, "scale_attn_weights": False, "activation_function": "relu",
                   "scale_attn_by_inverse_layer_idx": True, "tie_word_embeddings": False},
}
# The fields of config.json that describe the model.
FIELDS = ["activation_function", "n_inner", "layer_norm_epsilon", "scale_attn_weights", "scale_attn_by_inverse_layer_idx",
          "tie_word_embeddings", "vocab_size", "n_positions", "n_embd", "n_layer", "n_head"]


def write_model(folder, kind, seed=FIXTURE_SEED):
    return greedy.write_model(folder, **SHAPE, seed=seed, **KINDS[kind])


# ---- results of transformers ---------------------------------------------------------------


def load(folder, attention="sdpa"):
    """The model in fp32."""
    from transformers import GPT2LMHeadModel
    return GPT2LMHeadModel.from_pretrained(folder, attn_implementation=attention).eval()


def load_exact(folder):
    """The model in fp64. With eager attention, transformers would compute reorder_and_upcast_attn in fp32."""
    return load(folder).double()


def loss_of(model, tokens, targets):
    import torch
    logits = model(torch.from_numpy(tokens)).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(targets).flatten())


def windows(seed):
    """dev/peers/windows.py: the batches of train_gpt2 on TEXT."""
    import numpy as np
    from windows import ShuffledWindows
    return ShuffledWindows(np.array(greedy.encode(TEXT)), SHAPE["context"], seed)


def training_losses(model):
    """The losses of train_gpt2 with the settings TRAINING."""
    import torch
    from train_pytorch import learning_rate
    s, batches, losses = TRAINING, windows(TRAINING["seed"]), []
    groups = [{"params": [p for p in model.parameters() if (p.dim() == 2) == decays], "weight_decay": 0.1 * decays}
              for decays in (True, False)]
    adamw = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8)
    for step in range(s["steps"]):
        losses.append(0.0)
        for m in range(s["grad_accum"]):
            loss = loss_of(model, *batches.batch((step * s["grad_accum"] + m) * s["batch_size"], s["batch_size"]))
            (loss / s["grad_accum"]).backward()
            losses[-1] += loss.item() / s["grad_accum"]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in adamw.param_groups:
            group["lr"] = learning_rate(step, s["lr"], s["warmup"], s["steps"])
        adamw.step()
        adamw.zero_grad()
    return losses


def own_errors(folder, exact):
    """Yields the largest relative error of PyTorch's training losses in fp32: of both attentions, and of weights that
    differ by about one rounding. A relu that changes its sign by rounding gives a weight another update."""
    import torch
    for draw, attention in enumerate(["eager"] + 4 * ["sdpa"]):
        model, random = load(folder, attention), torch.Generator().manual_seed(draw)
        if draw > 1:
            with torch.no_grad():
                for p in model.parameters():
                    p.mul_(1 + 2 ** -24 * torch.randn(p.shape, generator=random))
        yield max(abs(a / b - 1) for a, b in zip(training_losses(model), exact))


def results(folder):
    """What the tests compare: greedy texts, the loss of TEXT, and the losses of a training run with PyTorch's own
    error."""
    import torch
    model, batches = load_exact(folder), windows(0)
    with torch.no_grad():
        loss = loss_of(model, *batches.batch(0, batches.count)).item()
    exact = training_losses(model)
    return {"greedy": greedy.transformers_greedy(folder, [greedy.encode(prompt) for prompt in PROMPTS], TOKENS),
            "loss": loss, "training": exact, "training_error": max(own_errors(folder, exact))}


def remake():
    with tempfile.TemporaryDirectory() as folder:
        lines = [f"{json.dumps(kind)}: {json.dumps(results(write_model(Path(folder) / kind, kind)))}" for kind in KINDS]
    FIXTURE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def save(folder):
    from transformers import GPT2LMHeadModel
    report = {}
    for kind in KINDS:
        source = write_model(folder / kind / "source", kind, LIVE_SEED)
        GPT2LMHeadModel.from_pretrained(source).save_pretrained(folder / kind / "saved")
        report[kind] = results(folder / kind / "saved")
    print(json.dumps(report))


# ---- comparison with our files and texts ---------------------------------------------------


def logprob_error(model, texts):
    """The relative L2 error of all log-probabilities in `texts`, the lines of infer_gpt2 --jsonl."""
    import torch
    ours, theirs = [], []
    for line in map(json.loads, texts.splitlines()):
        prompt = greedy.encode(line["prompt"])
        with torch.no_grad():
            rows = model(torch.tensor([prompt + line["ids"]])).logits[0, len(prompt) - 1:-1].log_softmax(-1)
        theirs += rows.gather(1, torch.tensor(line["ids"])[:, None])[:, 0].tolist()
        ours += line["logprobs"]
    ours, theirs = torch.tensor(ours, dtype=torch.float64), torch.tensor(theirs, dtype=torch.float64)
    return ((ours - theirs).norm() / theirs.norm()).item(), len(ours)


def compare(folder):
    import torch
    from check_transformers import load_strictly
    tokens, report = torch.from_numpy(windows(0).batch(0, 2)[0]), {}
    for kind in KINDS:
        (saved, _), (checkpoint, problems) = (load_strictly(folder / kind / name) for name in ("saved", "checkpoint"))
        for model in (saved, checkpoint):  # eager attention would round as reorder_and_upcast_attn states
            model.set_attn_implementation("sdpa")
        with torch.no_grad():
            equal = torch.equal(saved(tokens).logits, checkpoint(tokens).logits)
        fields = {name: [getattr(model.config, name) for model in (saved, checkpoint)] for name in FIELDS}
        error, count = logprob_error(load_exact(folder / kind / "saved"), (folder / kind / "texts.jsonl").read_text())
        report[kind] = {"problems": problems, "equal_logits": equal, "logprob_error": error, "logprobs": count,
                        "fields": {name: pair for name, pair in fields.items() if pair[0] != pair[1]}}
    print(json.dumps(report))


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "dev/peers"))
    os.environ["OMP_NUM_THREADS"] = "1"  # more threads are slower for such small tensors
    if sys.argv[1:] == ["--remake"]:
        remake()
    elif len(sys.argv) == 3 and sys.argv[1] in ("save", "compare"):
        {"save": save, "compare": compare}[sys.argv[1]](Path(sys.argv[2]))
    else:
        sys.exit(__doc__)
