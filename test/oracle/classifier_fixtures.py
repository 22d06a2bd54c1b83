#!/usr/bin/env python3
"""Writes test/oracle/fixtures/classifier: a small GPT2ForSequenceClassification and its results on a padded batch.

    python3 test/oracle/classifier_fixtures.py [--out DIR]

    model/             the classifier with 3 labels, as save_pretrained writes it
    expected.fixture   the batch, logits, loss and gradients

Needs the modules that make_fixtures.py needs. README.md next to this file describes the files.
"""
import numpy as np
import torch
import transformers
from torch.nn.attention import SDPBackend, sdpa_kernel

import fixture_script
from fixture_writer import FixtureWriter
from hashed import hashed_parameter, hashed_tokens
from make_fixtures import (FP16_LOSS_SCALE, Case, loss_scale, mean_loss, parameter_names, recipe,
                           write_errors)

LABELS = ["negative", "neutral", "positive"]
LENGTHS = [13, 1, 5, 8, 11]  # tokens of each text
TARGETS = [2, 0, 1, 2, 0]  # label of each text


class ClassifierCase(Case):
    def __init__(self):
        super().__init__("classifier", 7, L=2, NH=2, HS=8, V=31, T_max=16, T=13, B=5, amplitude=0.5)
        self.pad = self.V - 1

    def config(self, **overrides):
        names = dict(id2label=dict(enumerate(LABELS)), label2id={name: i for i, name in enumerate(LABELS)})
        return super().config(**(dict(pad_token_id=self.pad, eos_token_id=self.pad) | names | overrides))

    def texts(self):
        """(B, T) tokens, padded on the right. The fourth text has the pad token in its middle, the last one also at
        its end: its label is predicted at the token before."""
        ids = hashed_tokens(self.seed, 0, self.B * self.T, self.pad).reshape(self.B, self.T)
        for row, length in zip(ids, LENGTHS):
            row[length:] = self.pad
        ids[3, 2] = ids[4, 3] = ids[4, LENGTHS[4] - 1] = self.pad
        return torch.from_numpy(ids.astype(np.int64))


def build(case, seed, dtype, **overrides):
    model = transformers.GPT2ForSequenceClassification(case.config(**overrides)).eval()
    with torch.no_grad():
        for index, (name, p) in enumerate(model.named_parameters()):
            p.copy_(torch.from_numpy(hashed_parameter(seed, index, p.shape, *recipe(case, name, p.shape))))
    return model if dtype == torch.float32 else model.to(dtype)


def run(case, seed, dtype, **overrides):
    """Runs forward and backward in `dtype`. Returns (loss, logits, {name: gradient}), arrays in fp64."""
    model, targets = build(case, seed, dtype, **overrides), torch.tensor(TARGETS)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        logits = model(case.texts()).logits
    loss = mean_loss(logits.unsqueeze(1), targets)
    scale = loss_scale(dtype)
    (loss * scale).backward()
    gradients = {n: p.grad.double().numpy() / scale for n, p in zip(parameter_names(model), model.parameters())}
    return loss.item(), logits.detach().double().numpy(), gradients


def check_definition(case):
    """transformers' own loss and a mask of the padding give the same numbers."""
    loss, logits, _ = run(case, case.seed * 16, torch.float64)
    tokens = case.texts()
    mask = torch.tensor([[int(t < length) for t in range(case.T)] for length in LENGTHS])
    with torch.no_grad():
        own = build(case, case.seed * 16, torch.float64)(tokens, attention_mask=mask, labels=torch.tensor(TARGETS))
    assert np.allclose(own.logits.numpy(), logits, rtol=0, atol=1e-13) and abs(own.loss.item() - loss) < 1e-13


def header(case):
    out = FixtureWriter()
    out.text("made_by", "test/oracle/classifier_fixtures.py")
    out.text("torch", torch.__version__)
    out.text("transformers", transformers.__version__)
    for key in ("L", "NH", "C", "V", "T_max", "T", "B", "pad"):
        out.number(key, getattr(case, key))
    out.number("seed", case.seed * 16)
    out.number("fp16_loss_scale", FP16_LOSS_SCALE)
    out.number("labels", len(LABELS))
    model = transformers.GPT2ForSequenceClassification(case.config())
    for index, (name, p) in enumerate(zip(parameter_names(model), model.parameters())):
        out.parameter(name, index, *recipe(case, name, p.shape), p.shape)
    return out


def make(case, directory):
    check_definition(case)
    build(case, case.seed * 16, torch.float32).save_pretrained(directory / "model")
    out = header(case)
    out.tensor("tokens", case.texts().numpy().astype(np.int32))
    out.tensor("lengths", np.array(LENGTHS, np.int32))
    out.tensor("targets", np.array(TARGETS, np.int32))
    loss, logits, gradients = run(case, case.seed * 16, torch.float64)
    out.number("loss", loss)
    out.tensor("logits", logits)
    for name, gradient in gradients.items():
        out.tensor(f"grad.{name}", gradient.astype(np.float32))
    write_errors(case, out, run)
    out.save(directory / "expected.fixture")


if __name__ == "__main__":
    make(ClassifierCase(), fixture_script.begin(__doc__.splitlines()[0], fixture_script.FIXTURES / "classifier").out)
