#!/usr/bin/env python3
"""Writes test/oracle/fixtures from PyTorch and transformers: small GPT-2s of odd shapes.

    python3 test/oracle/make_fixtures.py [--out DIR] [case ...]

Needs torch, transformers, safetensors and numpy; takes a minute or two on the CPU. README.md next to
this file describes the files and how tests use them.
"""

import numpy as np
import torch
import transformers
from torch.nn.attention import SDPBackend, sdpa_kernel

import fixture_script
import hf_fixtures
from fixture_writer import FixtureWriter
from hashed import hashed_parameter, hashed_tokens

# Factor on the loss before the fp16 backward pass, because the smallest positive fp16 number is 6e-8.
# Gradients are divided by it in fp64 or fp32. It is small enough that no draw overflows.
FP16_LOSS_SCALE = 1024.0
LOWER_PRECISIONS = (("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16))

DRAWS = 8  # parameter draws over which PyTorch's own error is measured

# PyTorch's two attention implementations; tolerances come from the larger error. They round in
# different places: flash attention computes D = rowsum(dO * O) from a rounded O, so the rows of its
# dS do not sum to zero.
ATTENTIONS = ("eager", "sdpa")


class Case:
    """A model shape, a batch shape, and the amplitude of the hashed parameters."""

    def __init__(self, name, seed, L, NH, HS, V, T_max, T, B, amplitude, store=np.float64):
        self.name, self.seed = name, seed
        self.L, self.NH, self.C, self.V, self.T_max, self.T, self.B = L, NH, NH * HS, V, T_max, T, B
        self.amplitude = amplitude  # of all matrices except wpe; keeps attention far from uniform
        self.sampled = V > 1000  # store only some rows of the vocabulary
        self.store = store  # dtype in which the fp64 gradients are stored

    def config(self, **overrides):
        settings = dict(
            vocab_size=self.V, n_positions=self.T_max, n_embd=self.C, n_layer=self.L, n_head=self.NH,
            activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
            layer_norm_epsilon=1e-5, attn_implementation="eager", use_cache=False,
            bos_token_id=None, eos_token_id=None)
        return transformers.GPT2Config(**(settings | overrides))

    def tokens(self, stream, rows):
        """(rows, T) token ids; every fourth is drawn from seven ids, so that ids repeat in a batch,
        and the first and last ids of the vocabulary occur."""
        ids = hashed_tokens(self.seed, stream, rows * self.T, self.V)
        ids[::4] %= 7
        ids[-1] = self.V - 1
        return torch.from_numpy(ids.reshape(rows, self.T).astype(np.int64))


CASES = [
    Case("odd", 1, L=3, NH=5, HS=8, V=211, T_max=24, T=17, B=3, amplitude=0.5),
    Case("wide_vocab", 2, L=2, NH=3, HS=8, V=50257, T_max=16, T=13, B=2, amplitude=0.5),
    Case("head64", 3, L=1, NH=2, HS=64, V=97, T_max=80, T=70, B=2, amplitude=0.25, store=np.float32),
    Case("one_row", 4, L=2, NH=1, HS=16, V=29, T_max=4, T=1, B=1, amplitude=0.5),
]


def parameter_names(model):
    """Hugging Face names without `transformer.`, in the order of the oracle's parameter_shapes."""
    return [name.removeprefix("transformer.") for name, _ in model.named_parameters()]


def recipe(case, name, shape):
    """(amplitude, offset) of a parameter's hashed values."""
    if len(shape) == 1:
        return 0.25, float(name.endswith("weight"))  # LayerNorm weights lie around one
    return (0.25 if name.endswith("wpe.weight") else case.amplitude), 0.0


def build(case, seed, dtype, **overrides):
    """The model with hashed parameters; rounding to `dtype` happens once, here."""
    model = transformers.GPT2LMHeadModel(case.config(**overrides)).eval()
    with torch.no_grad():
        for index, (name, p) in enumerate(model.named_parameters()):
            values = hashed_parameter(seed, index, p.shape, *recipe(case, name, p.shape))
            assert np.array_equal(values, values.astype(np.float32))
            p.copy_(torch.from_numpy(values))
    if dtype != torch.float32:
        model = model.to(dtype)
    return model


def logits_of(model, tokens):
    """The model's logits. With `sdpa` attention, only the flash kernel is allowed; otherwise it throws."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return model(tokens).logits


def mean_loss(logits, targets):
    """Mean cross-entropy in the logits' dtype, or in fp32 if that is bf16 or fp16. transformers' own loss
    always casts to fp32, which would lose the precision of the fp64 run."""
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def loss_scale(dtype):
    return FP16_LOSS_SCALE if dtype == torch.float16 else 1.0


def run(case, seed, dtype, **overrides):
    """Runs forward and backward in `dtype`. Returns (loss, logits, {name: gradient}), arrays in fp64."""
    model = build(case, seed, dtype, **overrides)
    tokens, targets = case.tokens(0, case.B), case.tokens(1, case.B)
    logits = logits_of(model, tokens)
    assert logits.dtype == dtype
    loss = mean_loss(logits, targets)
    scale = loss_scale(dtype)
    (loss * scale).backward()
    gradients = {n: p.grad.double().numpy() / scale
                 for n, p in zip(parameter_names(model), model.parameters())}
    assert all(np.isfinite(g).all() for g in gradients.values()), (case.name, dtype)
    return loss.item(), logits.detach().double().numpy(), gradients


def relative(actual, expected):
    """Relative L2 error, with 0/0 = 0."""
    error = np.linalg.norm(actual - expected)
    return 0.0 if error == 0 else error / np.linalg.norm(expected)


def block_norms(matrix):
    """L2 norm of each block of 256 rows of (V, n). Fixtures store it in place of most rows."""
    squares = np.sum(matrix ** 2, axis=1)
    return np.sqrt(np.add.reduceat(squares, np.arange(0, len(squares), 256)))


def log_sum_exp(logits):
    return torch.logsumexp(torch.from_numpy(logits), dim=-1).numpy()


def sampled_errors(logits, expected_logits, gradient, expected_gradient):
    """Errors of the sums that represent the rows of a wide vocabulary. The error of the column sums is
    relative to the norm of the whole tensor, since the terms of each sum nearly cancel. The error of
    the block norms is the rms of their relative errors."""
    V = len(expected_gradient)
    norms = [(block_norms(a), block_norms(b)) for a, b in
             ((logits.reshape(-1, V).T, expected_logits.reshape(-1, V).T), (gradient, expected_gradient))]
    blocks = [np.sqrt(np.mean((actual / expected - 1) ** 2)) for actual, expected in norms]
    columns = np.linalg.norm((gradient - expected_gradient).sum(axis=0)) / np.linalg.norm(expected_gradient)
    return {"logits.blocks": blocks[0], "wte.weight.blocks": blocks[1],
            "wte.weight.column_sums": columns,
            "logits.log_sum_exp": relative(log_sum_exp(logits), log_sum_exp(expected_logits))}


def own_errors(case, reference, other):
    """{quantity: error} of a run in lower precision against the fp64 run: relative L2 of the loss, the
    logits, every gradient, and all gradients as one vector (`all`). The key third of a QKV bias has
    a true gradient of zero, so the relative error excludes it; `.key` is its rms divided by the rms
    of the whole tensor."""
    loss, logits, gradients = reference
    errors = {"loss": abs(other[0] - loss) / abs(loss), "logits": relative(other[1], logits)}
    if case.sampled:
        errors |= sampled_errors(other[1], logits, other[2]["wte.weight"], gradients["wte.weight"])
    squares, total = 0.0, 0.0
    for name, expected in gradients.items():
        actual = other[2][name]
        if name.endswith("c_attn.bias"):
            key = slice(expected.size // 3, 2 * expected.size // 3)
            errors[name + ".key"] = np.sqrt(np.mean(actual[key] ** 2) / np.mean(expected ** 2))
            actual, expected = np.delete(actual, key), np.delete(expected, key)
        errors[name] = relative(actual, expected)
        squares += np.sum((actual - expected) ** 2)
        total += np.sum(expected ** 2)
    errors["all"] = np.sqrt(squares / total)
    return errors


def worse_attention(errors):
    """errors: (draws, ATTENTIONS), of one quantity. Returns its [error of draw 0, rms over draws,
    maximum over draws], each the larger of the two attention implementations."""
    return np.max([[draws[0], np.sqrt(np.mean(np.square(draws))), max(draws)]
                   for draws in zip(*errors)], axis=0)


def measure_errors(case, dtype, run=run):
    """{quantity: [this case's error, rms over draws, maximum over draws]}; draw 0 is the case itself.
    A small tensor may have a small error by luck, so tolerances use the rms over several draws too.
    `run` is the function of this name or one like it."""
    draws = []
    for d in range(DRAWS):
        seed = case.seed * 16 + d
        exact = run(case, seed, torch.float64)
        draws.append([own_errors(case, exact, run(case, seed, dtype, attn_implementation=attention))
                      for attention in ATTENTIONS])
    return {key: worse_attention([[errors[key] for errors in draw] for draw in draws])
            for key in draws[0][0]}


def header(case, made_by="test/oracle/make_fixtures.py"):
    out = FixtureWriter()
    out.text("made_by", made_by)
    out.text("torch", torch.__version__)
    out.text("transformers", transformers.__version__)
    for key in ("L", "NH", "C", "V", "T_max", "T", "B"):
        out.number(key, getattr(case, key))
    out.number("seed", case.seed * 16)
    out.number("fp16_loss_scale", FP16_LOSS_SCALE)
    model = transformers.GPT2LMHeadModel(case.config())
    for index, (name, p) in enumerate(zip(parameter_names(model), model.parameters())):
        out.parameter(name, index, *recipe(case, name, p.shape), p.shape)
    return out


def write_errors(case, out, run=run):
    """Writes and prints PyTorch's own errors in each lower precision."""
    for label, dtype in LOWER_PRECISIONS:
        errors = measure_errors(case, dtype, run)
        for key, values in errors.items():
            out.tensor(f"error.{label}.{key}", values)
        print(f"{case.name:12} {label} own error: all gradients {errors['all'][0]:.2e}, "
              f"rms of draws {errors['all'][1]:.2e}, worst tensor "
              f"{max(v[0] for k, v in errors.items()):.2e}, loss {errors['loss'][1]:.2e}")


def write_logits(case, out, logits, columns):
    """Writes all logits (B * T, V); for a wide vocabulary, some columns and sums over all of them."""
    flat = logits.reshape(-1, case.V)
    if columns is None:
        out.tensor("logits", flat.astype(case.store))
        return
    out.tensor("logits.columns", columns.astype(np.int32))
    out.tensor("logits", flat[:, columns].astype(case.store))
    out.tensor("logits.log_sum_exp", log_sum_exp(flat))
    out.tensor("logits.blocks", block_norms(flat.T))


def write_gradient(case, out, name, gradient, rows):
    """Writes a whole gradient; for a wide vocabulary, some rows and sums over all of them."""
    if rows is None or name != "wte.weight":
        out.tensor(f"grad.{name}", gradient.astype(case.store))
        return
    out.tensor(f"grad.{name}.rows", rows.astype(np.int32))
    out.tensor(f"grad.{name}", gradient[rows].astype(case.store))
    out.tensor(f"grad.{name}.column_sums", gradient.sum(axis=0))
    out.tensor(f"grad.{name}.blocks", block_norms(gradient))


def make_case(case, directory):
    out = header(case)
    tokens, targets = case.tokens(0, case.B).numpy(), case.tokens(1, case.B).numpy()
    out.tensor("tokens", tokens.astype(np.int32))
    out.tensor("targets", targets.astype(np.int32))
    loss, logits, gradients = run(case, case.seed * 16, torch.float64)
    out.number("loss", loss)
    rows = None
    if case.sampled:
        sample = hashed_tokens(case.seed, 2, 200, case.V)
        rows = np.unique(np.concatenate([tokens.ravel(), targets.ravel(), sample, [case.V - 1]]))
    write_logits(case, out, logits, rows)
    for name, gradient in gradients.items():
        write_gradient(case, out, name, gradient, rows)
    write_errors(case, out)
    out.save(directory / f"{case.name}.fixture")


# ---- training ----------------------------------------------------------------------------------

# The shape of `odd` with smaller weights. With larger ones the training path itself is chaotic, and
# two correct fp32 programs end 3e-6 apart.
TRAINED = Case("adamw50", 5, L=3, NH=5, HS=8, V=211, T_max=24, T=17, B=4, amplitude=0.25)
TRAINING = dict(steps=50, batches=5, micro_batches=4, lr=1e-3, beta1=0.9, beta2=0.95,
                eps=1e-8, weight_decay=0.1, max_norm=1.0)


def accumulate_gradients(worker, master, batches, scale):
    """Returns the mean loss over micro-batches run in `worker`, and adds their gradients to `master`:
    the same model, or one in higher precision. The loss is multiplied by `scale` before the backward
    pass, and the gradients are divided by it before they are added."""
    total = 0.0
    for x, y in batches:
        loss = mean_loss(logits_of(worker, x), y) / len(batches)
        (loss * scale).backward()
        total += loss.item()
        if worker is not master:
            for p, q in zip(master.parameters(), worker.parameters()):
                p.grad = q.grad.to(p.dtype) / scale + (0 if p.grad is None else p.grad)
                q.grad = None
    return total


def train(case, dtype, micro_batches, seed=None, **overrides):
    """Returns (losses, gradient norms, {name: update}) of the training run in `dtype`. bf16 and fp16 have
    fp32 master weights, gradients and optimizer state, and compute with a rounded copy of the weights."""
    s = TRAINING
    is_half_precision = dtype in (torch.bfloat16, torch.float16)
    seed = case.seed * 16 if seed is None else seed
    model = build(case, seed, torch.float32 if is_half_precision else dtype, **overrides)
    worker = build(case, seed, dtype, **overrides) if is_half_precision else model
    initial = {n: p.detach().double().numpy().copy()
              for n, p in zip(parameter_names(model), model.parameters())}
    groups = [dict(params=[p for p in model.parameters() if (p.dim() >= 2) == use_weight_decay],
                   weight_decay=s["weight_decay"] * use_weight_decay) for use_weight_decay in (True, False)]
    adamw = torch.optim.AdamW(groups, lr=s["lr"], betas=(s["beta1"], s["beta2"]), eps=s["eps"])
    losses, norms = [], []
    for step in range(s["steps"]):
        b = step % s["batches"]
        tokens = case.tokens(10 + 2 * b, case.B).chunk(micro_batches)
        targets = case.tokens(11 + 2 * b, case.B).chunk(micro_batches)
        losses.append(accumulate_gradients(worker, model, list(zip(tokens, targets)),
                                           loss_scale(dtype)))
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), s["max_norm"]).item())
        adamw.step()
        adamw.zero_grad()
        if is_half_precision:
            worker.load_state_dict(model.state_dict())
    updates = {n: p.detach().double().numpy() - initial[n]
               for n, p in zip(parameter_names(model), model.parameters())}
    return np.array(losses), np.array(norms), updates


def worst_ratio(actual, expected):
    return np.max(np.abs(actual / expected - 1))


def measure_training_errors(case, dtype):
    """{"losses", "grad_norms": [this case's error, rms over draws, maximum over draws]}. An error is the
    largest over all steps, of the runs with and without accumulation."""
    draws = []
    for d in range(DRAWS):
        seed = case.seed * 16 + d
        exact = train(case, torch.float64, 1, seed)
        draws.append([])
        for attention in ATTENTIONS:
            runs = [train(case, dtype, n, seed, attn_implementation=attention)
                    for n in (1, TRAINING["micro_batches"])]
            draws[-1].append([max(worst_ratio(r[i], exact[i]) for r in runs) for i in (0, 1)])
    return {key: worse_attention([[errors[i] for errors in draw] for draw in draws])
            for i, key in enumerate(("losses", "grad_norms"))}


def make_training(case, directory):
    s = TRAINING
    out = header(case)
    for key, value in s.items():
        out.number(key, value)
    for stream, key in ((10, "tokens"), (11, "targets")):
        ids = [case.tokens(stream + 2 * b, case.B).numpy() for b in range(s["batches"])]
        out.tensor(key, np.stack(ids).astype(np.int32))
    runs = {
        "fp64": train(case, torch.float64, 1),
        "fp64_accumulated": train(case, torch.float64, s["micro_batches"]),
        "fp32": train(case, torch.float32, 1),
        "fp32_accumulated": train(case, torch.float32, s["micro_batches"]),
        "bf16": train(case, torch.bfloat16, 1),
        "bf16_accumulated": train(case, torch.bfloat16, s["micro_batches"]),
        "fp16": train(case, torch.float16, 1),
        "fp16_accumulated": train(case, torch.float16, s["micro_batches"]),
    }
    reference = runs["fp64"]
    for label, (losses, norms, updates) in runs.items():
        out.tensor(f"losses.{label}", losses)
        out.tensor(f"grad_norms.{label}", norms)
        for name, update in updates.items():
            out.tensor(f"update.{label}.{name}",
                       np.array([np.linalg.norm(update), relative(update, reference[2][name])]))
        print(f"adamw50      {label:17} loss {losses[0]:.6f} -> {losses[-1]:.6f}, against fp64: loss "
              f"{worst_ratio(losses, reference[0]):.2e}, norm "
              f"{worst_ratio(norms, reference[1]):.2e}, worst update "
              f"{max(relative(u, reference[2][n]) for n, u in updates.items()):.2e}")
    for label, dtype in LOWER_PRECISIONS:
        errors = measure_training_errors(case, dtype)
        for key, values in errors.items():
            out.tensor(f"error.{label}.{key}", values)
        print(f"adamw50      {label} own error, largest of {DRAWS} draws: losses "
              f"{errors['losses'][2]:.2e}, gradient norms {errors['grad_norms'][2]:.2e}")
    out.save(directory / "adamw50.fixture")


def main():
    arguments = fixture_script.begin(__doc__.splitlines()[0], fixture_script.FIXTURES, with_cases=True)
    makers = {case.name: lambda case=case: make_case(case, arguments.out) for case in CASES}
    makers["adamw50"] = lambda: make_training(TRAINED, arguments.out)
    makers["hf_tiny"] = lambda: hf_fixtures.make(arguments.out)
    for name in arguments.cases or makers:
        makers[name]()


if __name__ == "__main__":
    main()
