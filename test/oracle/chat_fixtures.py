#!/usr/bin/env python3
"""Writes test/oracle/fixtures/chat: conversations, a small GPT2LMHeadModel, and its loss and gradients on them with the
labels -100 of transformers in the place of everything that is not an answer.

    python3 test/oracle/chat_fixtures.py [--out DIR]

    conversations.jsonl   prompts with completions, and messages
    model/                the model, as save_pretrained writes it: 256 bytes and end-of-text
    expected.fixture      the tokens (B, T + 1) of the conversations, their labels, loss and gradients

The tokens and the labels are made here from the rules in llmc/io/data/conversations.h, without code of the engine. Needs
the modules that make_fixtures.py needs. README.md next to this file describes the files.
"""
import json
import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import fixture_script
from make_fixtures import Case, build, header, loss_scale, mean_loss, parameter_names, write_errors

END, IGNORED = 256, -100
# Ids of bytes, as in GPT-2's encoder.json: printable characters first.
PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
ID_OF_BYTE = {byte: index for index, byte in enumerate(PRINTABLE + [b for b in range(256) if b not in PRINTABLE])}
CONVERSATIONS = [
    {"prompt": "2 + 2 = ", "completion": "4"},
    {"messages": [{"role": "system", "content": "short"}, {"role": "user", "content": "Hi"},
                  {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Bye"},
                  {"role": "assistant", "content": "So long."}, {"role": "user", "content": "(left out)"}]},
    {"prompt": "caf\u00e9?", "completion": " a place to drink coffee"},
    {"messages": [{"role": "assistant", "content": "Yes?"}]},
]


def segments(conversation):
    """[(text, whether it counts)]; an end-of-text token follows each text that counts."""
    if "prompt" in conversation:
        return [(conversation["prompt"], False), (conversation["completion"], True)]
    parts, text = [], ""
    for message in conversation["messages"]:
        text += message["role"] + ":"
        if message["role"] == "assistant":
            parts += [(text, False), (" " + message["content"], True)]
            text = "\n"
        else:
            text += " " + message["content"] + "\n"
    return parts


def tokens_and_labels(conversation):
    tokens, labels = [], []
    for text, counts in segments(conversation):
        ids = [ID_OF_BYTE[byte] for byte in text.encode()] + ([END] if counts else [])
        tokens += ids
        labels += ids if counts else [IGNORED] * len(ids)
    return tokens, labels


def padded(rows, value):
    width = max(map(len, rows))
    return torch.tensor([row + [value] * (width - len(row)) for row in rows])


class ChatCase(Case):
    def __init__(self):
        pairs = [tokens_and_labels(one) for one in CONVERSATIONS]
        self.ids, self.labels = padded([ids for ids, _ in pairs], END), padded([labels for _, labels in pairs], IGNORED)
        B, width = self.ids.shape
        super().__init__("chat", 9, L=2, NH=2, HS=8, V=257, T_max=80, T=width - 1, B=B, amplitude=0.5, store=np.float32)

    def config(self, **overrides):
        return super().config(**(dict(eos_token_id=END, bos_token_id=END) | overrides))


def run(case, seed, dtype, **overrides):
    """Runs forward and backward in `dtype`. Returns (loss, logits, {name: gradient}), arrays in fp64."""
    model = build(case, seed, dtype, **overrides)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        logits = model(case.ids).logits
    loss = mean_loss(logits[:, :-1], case.labels[:, 1:])  # which ignores the target -100
    scale = loss_scale(dtype)
    (loss * scale).backward()
    gradients = {n: p.grad.double().numpy() / scale for n, p in zip(parameter_names(model), model.parameters())}
    return loss.item(), logits.detach().double().numpy(), gradients


def check_definition(case):
    """transformers' own loss, with a mask of the padding, is the same number."""
    loss, _, _ = run(case, case.seed * 16, torch.float64)
    lengths = torch.tensor([len(tokens_and_labels(one)[0]) for one in CONVERSATIONS])
    mask = (torch.arange(case.T + 1) < lengths[:, None]).long()
    with torch.no_grad():
        own = build(case, case.seed * 16, torch.float64)(case.ids, attention_mask=mask, labels=case.labels)
    # Its loss casts logits to fp32.
    assert abs(own.loss.item() / loss - 1) < 1e-6, (own.loss.item(), loss)


def make(case, directory):
    check_definition(case)
    (directory / "conversations.jsonl").write_text("".join(json.dumps(one) + "\n" for one in CONVERSATIONS))
    build(case, case.seed * 16, torch.float32).save_pretrained(directory / "model")
    out = header(case, "test/oracle/chat_fixtures.py")
    out.tensor("tokens", case.ids.numpy().astype(np.int32))
    out.tensor("labels", case.labels.numpy().astype(np.int32))
    loss, _, gradients = run(case, case.seed * 16, torch.float64)
    out.number("loss", loss)
    out.number("grad_norm", float(np.sqrt(sum(np.sum(g ** 2) for g in gradients.values()))))
    for name, gradient in gradients.items():
        out.tensor(f"grad.{name}", gradient.astype(np.float32))
    write_errors(case, out, run)
    out.save(directory / "expected.fixture")


if __name__ == "__main__":
    make(ChatCase(), fixture_script.begin(__doc__.splitlines()[0], fixture_script.FIXTURES / "chat").out)
