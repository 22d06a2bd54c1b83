"""The definition of GPT-2 in NumPy and fp64, with INT8 weights, activations and cache as a Variant has them.

Whatever is not INT8 is fp64 for every dtype. INT8 follows llmc/ops/quantize.h: weights have a scale per output, the
inputs of linear layers a scale and a zero point per token, keys and values a scale per token and head.
"""
import numpy as np

# ---- the quantizer ---------------------------------------------------------------------------


def codes_of(x, scale, zero=0):
    """round(x / scale + zero), ties to even, with x and 1 / scale in fp32. fp64 holds what is rounded exactly."""
    inverse = np.float32(1) / scale
    return np.clip(np.rint(x.astype(np.float32) * inverse.astype(np.float64) + zero), -128, 127)


def valid(scale):
    return np.maximum(scale, np.finfo(np.float32).tiny)


def symmetric(x, axis):
    """What the codes of x stand for, with one scale along the axis."""
    scale = valid(np.abs(x.astype(np.float32)).max(axis, keepdims=True) / np.float32(127))
    return scale.astype(np.float64) * codes_of(x, scale)


def asymmetric(x):
    """What the codes of x (rows, K) stand for, with a scale and a zero point per row."""
    x = x.astype(np.float32)
    low, high = np.minimum(x.min(-1, keepdims=True), 0), np.maximum(x.max(-1, keepdims=True), 0)
    scale = valid(high / np.float32(255) - low / np.float32(255))
    zero = codes_of(-low, scale, -128)
    return scale.astype(np.float64) * (codes_of(x, scale, zero) - zero)


# ---- the model -------------------------------------------------------------------------------


def layer_norm(x, weight, bias):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight + bias


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))


class Definition:
    def __init__(self, weights, heads, variant):
        """`weights` are fp32 arrays by name."""
        self.heads, self.variant = heads, variant
        self.w = {name: self.stored(name, values) for name, values in weights.items()}
        self.layers = sum(name.endswith("ln_1.weight") for name in weights)

    def stored(self, name, values):
        if self.variant.quant == "none" or values.ndim < 2 or name == "wpe.weight":
            return values.astype(np.float64)
        return symmetric(values, 1 if name == "wte.weight" else 0)

    def norm(self, x, name):
        return layer_norm(x, self.w[f"{name}.weight"], self.w[f"{name}.bias"])

    def linear(self, x, name):
        if self.variant.quant == "w8a8":
            x = asymmetric(x)
        return x @ self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def attention(self, qkv):
        """Causal attention of (T, 3C)."""
        T = len(qkv)
        q, k, v = qkv.reshape(T, 3, self.heads, -1).transpose(1, 2, 0, 3)  # (NH, T, HS)
        if self.variant.kv8:
            k, v = symmetric(k, -1), symmetric(v, -1)
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
        scores[:, np.triu(np.ones((T, T), bool), 1)] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return (weights @ v).transpose(1, 0, 2).reshape(T, -1)

    def logits(self, ids):
        """Logits (T, V) after each of the tokens."""
        x = self.w["wte.weight"][ids] + self.w["wpe.weight"][:len(ids)]
        for block in (f"h.{l}" for l in range(self.layers)):
            qkv = self.linear(self.norm(x, f"{block}.ln_1"), f"{block}.attn.c_attn")
            x = x + self.linear(self.attention(qkv), f"{block}.attn.c_proj")
            hidden = gelu(self.linear(self.norm(x, f"{block}.ln_2"), f"{block}.mlp.c_fc"))
            x = x + self.linear(hidden, f"{block}.mlp.c_proj")
        return self.norm(x, "ln_f") @ self.w["wte.weight"].T

    def scores(self, prompt, text):
        """(difference to the largest logit, log-probability) of each token of a text that continues a prompt."""
        logits = self.logits([*prompt, *text])[len(prompt) - 1:-1]
        own = logits[np.arange(len(text)), text]
        return list(zip(logits.max(-1) - own, own - np.log(np.exp(logits).sum(-1))))
