"""GPT-2 in current PyTorch style: SDPA, the tanh GELU, a padded vocabulary, tied embeddings."""
import json
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from files import read_safetensors


class Config(NamedTuple):
    vocabulary: int
    context: int
    layers: int
    heads: int
    channels: int

    @property
    def padded_vocabulary(self):
        return -(-self.vocabulary // 128) * 128


def read_config(directory):
    """Reads the config of a Hugging Face directory. Throws unless its model is a GPT-2: this program computes no other."""
    path = Path(directory) / "config.json"
    raw = json.loads(path.read_text())
    allowed = {"activation_function": ("gelu_new", "gelu_pytorch_tanh"), "n_inner": (None, 4 * raw["n_embd"]),
               "layer_norm_epsilon": (1e-5,), "scale_attn_weights": (True,), "scale_attn_by_inverse_layer_idx": (False,),
               "tie_word_embeddings": (True,)}
    for key, values in allowed.items():
        if raw.get(key, values[0]) not in values:
            raise SystemExit(f"{path}: {key} = {raw[key]}; this program computes only GPT-2's {values[0]}")
    return Config(raw["vocab_size"], raw["n_positions"], raw["n_layer"], raw["n_head"], raw["n_embd"])


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.heads
        self.c_attn = nn.Linear(config.channels, 3 * config.channels)
        self.c_proj = nn.Linear(config.channels, config.channels)

    def forward(self, x):  # (B, T, C)
        B, T, C = x.shape
        q, k, v = self.c_attn(x).view(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, NH, T, HS)
        return self.c_proj(out.transpose(1, 2).reshape(B, T, C))


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Linear(config.channels, 4 * config.channels)
        self.c_proj = nn.Linear(4 * config.channels, config.channels)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(config.channels), Attention(config)
        self.ln_2, self.mlp = nn.LayerNorm(config.channels), Mlp(config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2(nn.Module):
    """Parameters have the names of Hugging Face's files. The rows that pad the vocabulary are zero.
    `exact_loss` excludes them from the softmax, as the definition requires. Without it they take part, which
    saves PyTorch an unaligned view of the logits. The speed of our engine does not depend on it.
    """

    def __init__(self, config, exact_loss=True):
        super().__init__()
        self.config, self.exact_loss = config, exact_loss
        self.wte = nn.Embedding(config.padded_vocabulary, config.channels)
        self.wpe = nn.Embedding(config.context, config.channels)
        self.h = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(config.channels)

    def forward(self, tokens, targets):
        """Returns the mean loss over (B, T) tokens."""
        x = self.wte(tokens) + self.wpe.weight[:tokens.shape[1]]
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)  # (B, T, padded V)
        if self.exact_loss:
            logits = logits[..., :self.config.vocabulary]
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def load(directory, exact_loss=True):
    """Loads the fp32 model in a Hugging Face directory."""
    model = Gpt2(read_config(directory), exact_loss)
    tensors = read_safetensors(Path(directory) / "model.safetensors")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.tensor(tensors.pop("transformer." + name))
            if ".c_" in name and values.dim() == 2:
                values = values.T  # stored as (in, out), nn.Linear has (out, in)
            if name == "wte.weight":
                values = F.pad(values, (0, 0, 0, parameter.shape[0] - values.shape[0]))
            parameter.copy_(values)
    if tensors:
        raise SystemExit(f"{directory} has unknown tensors: {', '.join(sorted(tensors))}")
    return model
