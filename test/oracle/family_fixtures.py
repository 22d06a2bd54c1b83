#!/usr/bin/env python3
"""Writes test/oracle/fixtures/family: small GPT-2s with properties of GPT2Config that are not those of OpenAI's models.

    python3 test/oracle/family_fixtures.py [--out DIR] [case ...]

There is a case for each property alone, for each pair of properties, and for all of them. The cases of pairs have
PyTorch's logits and the norm of each gradient; the other cases also have the gradients.
Needs the modules that make_fixtures.py needs. README.md next to this file describes the files.
"""
import itertools

import numpy as np
import torch

import fixture_script
import make_fixtures
from make_fixtures import Case, measure_errors, run

# {name: settings of GPT2Config}. The values are far from the defaults, so that ignoring one is visible.
PROPERTIES = {
    "epsilon": {"layer_norm_epsilon": 0.01},
    "inner": {"n_inner": 48},
    "unscaled": {"scale_attn_weights": False},
    "by_layer": {"scale_attn_by_inverse_layer_idx": True},
    "gelu": {"activation_function": "gelu"},
    "relu": {"activation_function": "relu"},
    "untied": {"tie_word_embeddings": False},
}
TANH = {"activation_function": "gelu_pytorch_tanh"}  # another name of the default


def combinations():
    """{name of the case: its settings}, first the cases with one property."""
    cases = {name: dict(settings) for name, settings in PROPERTIES.items()}
    cases["tanh"] = TANH
    for first, second in itertools.combinations(PROPERTIES, 2):
        if {first, second} != {"gelu", "relu"}:
            cases[f"{first}-{second}"] = PROPERTIES[first] | PROPERTIES[second]
    everything = {key: value for settings in PROPERTIES.values() for key, value in settings.items()}
    cases["all"] = everything | PROPERTIES["gelu"]
    return cases


class FamilyCase(Case):
    def __init__(self, name, settings):
        super().__init__(name, 6, L=3, NH=2, HS=8, V=29, T_max=8, T=7, B=2, amplitude=0.5, store=np.float32)
        self.settings = settings

    def config(self, **overrides):
        return super().config(**(self.settings | overrides))


def header(case):
    """The header of make_fixtures.py, and the properties by the names of the oracle's Config."""
    out = make_fixtures.header(case)
    config = case.config()
    out.text("activation", config.activation_function)
    out.number("norm_epsilon", config.layer_norm_epsilon)
    out.number("scale_attention", config.scale_attn_weights)
    out.number("scale_attention_by_layer", config.scale_attn_by_inverse_layer_idx)
    out.number("tied_head", config.tie_word_embeddings)
    if config.n_inner is not None:
        out.number("inner", config.n_inner)
    return out


def make_case(case, directory):
    has_gradients = case.name in PROPERTIES or case.name == "all"
    out = header(case)
    out.tensor("tokens", case.tokens(0, case.B).numpy().astype(np.int32))
    out.tensor("targets", case.tokens(1, case.B).numpy().astype(np.int32))
    loss, logits, gradients = run(case, case.seed * 16, torch.float64)
    out.number("loss", loss)
    out.tensor("logits", logits.reshape(-1, case.V))
    out.tensor("gradient_norms", np.array([np.linalg.norm(gradient) for gradient in gradients.values()]))
    for label, dtype in make_fixtures.LOWER_PRECISIONS[:2]:
        errors = measure_errors(case, dtype)
        for key, values in errors.items():
            if has_gradients or key in ("loss", "logits", "all"):
                out.tensor(f"error.{label}.{key}", values)
        print(f"{case.name:20} {label} own error: all gradients {errors['all'][0]:.2e}, logits {errors['logits'][0]:.2e}")
    if has_gradients:
        for name, gradient in gradients.items():
            out.tensor(f"grad.{name}", gradient.astype(case.store))
    out.save(directory / f"{case.name}.fixture")


def main():
    cases = combinations()
    arguments = fixture_script.begin(__doc__.splitlines()[0], fixture_script.FIXTURES / "family", with_cases=True)
    for name in arguments.cases or cases:
        make_case(FamilyCase(name, cases[name]), arguments.out)


if __name__ == "__main__":
    main()
