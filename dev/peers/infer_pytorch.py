#!/usr/bin/env python3
"""Times prompts and generated tokens of GPT-2 in PyTorch, at the same sizes as `infer_gpt2 bench`.

    dev/peers/infer_pytorch.py --model DIR [--dtype bf16] [--batch 1] [--prompts 16,512]
        [--positions 1,128,512,1023] [--repetitions 5] [--device cuda] [--backend inductor|eager|none]
    dev/peers/infer_pytorch.py --serve [same flags]

The first form prints one JSON object. The second form answers every line of stdin, such as {"model": DIR,
"batch": 8}, which replaces flags, with such an object; between requests it keeps the weights only.

Keys and values are in a static cache of the whole context; a step reads the tokens up to its position. Steps
are timed in up to three ways:

- eager
- graph: the kernels of eager mode in one CUDA graph
- compiled: everything between two attentions is one function of torch.compile, and the step is one CUDA graph.
  This has the kernels of mode "reduce-overhead" at a compilation time that does not grow with the layers; at
  batch size 1 inductor also tunes them and generates the matrix-vector products.

Prompts are timed in eager mode. Before anything is timed, the loss of a few tokens that are read step by step is
compared with that of gpt2.py. Times are in microseconds per token of all sequences.
"""
import argparse
import json
import math
import statistics
import sys
import time
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F

import gpt2

STEPS = {"eager": 8, "graph": 32, "compiled": 32}  # per repetition
CHECKED_TOKENS = 6
TOLERANCE = {"fp32": 1e-3, "bf16": 0.1}  # of the loss, in nats


class BlockWeights(NamedTuple):
    norm_1: tuple  # each (weight, bias)
    qkv: tuple
    out: tuple
    norm_2: tuple
    fc: tuple
    projection: tuple


def pair(layer):
    return layer.weight.detach(), layer.bias.detach()


def block_weights(block):
    return BlockWeights(*map(pair, (block.ln_1, block.attn.c_attn, block.attn.c_proj, block.ln_2, block.mlp.c_fc,
                                    block.mlp.c_proj)))


# ---- the parts of a step, for x (rows, C) ----------------------------------------------------


def norm(x, weights):
    return F.layer_norm(x, (x.shape[-1],), *weights)


def linear(x, weights):
    # Inductor generates its own kernel for the product of one row, but not for one with a bias.
    return F.linear(x, weights[0]) + weights[1] if x.shape[0] == 1 else F.linear(x, *weights)


def mlp(x, attention, block):
    """The block after its attention."""
    x = x + linear(attention, block.out)
    return x + linear(F.gelu(linear(norm(x, block.norm_2), block.fc), approximate="tanh"), block.projection)


def append(x, block, keys, values, position):
    """Returns q (B, NH, 1, HS) and writes the row's keys and values to the cache, (B, NH, T, HS)."""
    B, NH, _, HS = keys.shape
    q, k, v = linear(norm(x, block.norm_1), block.qkv).view(B, 3, NH, 1, HS).unbind(1)
    keys[:, :, position] = k
    values[:, :, position] = v
    return q


def first_part(token, position, wte, wpe, block, keys, values):
    x = F.embedding(token, wte) + F.embedding(position, wpe)
    return x, append(x, block, keys, values, position)


def middle_part(x, attention, block, following, keys, values, position):
    x = mlp(x, attention, block)
    return x, append(x, following, keys, values, position)


def last_part(x, attention, block, ln_f, wte):
    return F.linear(norm(mlp(x, attention, block), ln_f), wte)


def rows_of(attention):
    """(B, NH, T, HS) to (B T, C)."""
    B, NH, T, HS = attention.shape
    return attention.transpose(1, 2).reshape(B * T, NH * HS)


class Decoder:
    """B sequences of equal length over a cache."""

    def __init__(self, model, batch):
        config, weight = model.config, model.wte.weight.detach()
        self.config, self.batch, self.wte, self.wpe = config, batch, weight, model.wpe.weight.detach()
        self.blocks, self.ln_f = [block_weights(block) for block in model.h], pair(model.ln_f)
        shape = (batch, config.heads, config.context, config.channels // config.heads)
        new_cache = lambda: [torch.zeros(shape, dtype=weight.dtype, device=weight.device) for _ in self.blocks]
        self.keys, self.values = new_cache(), new_cache()
        self.token = torch.zeros(batch, dtype=torch.long, device=weight.device)
        self.position = torch.zeros(1, dtype=torch.long, device=weight.device)
        self.parts = first_part, middle_part, last_part

    def step(self, position):
        """Logits (B, padded V) of self.token. self.position, which the kernels read, must have the same value."""
        first, middle, last = self.parts
        caches, blocks = list(zip(self.keys, self.values)), self.blocks
        x, q = first(self.token, self.position, self.wte, self.wpe, blocks[0], *caches[0])
        for layer, (keys, values) in enumerate(caches):
            attention = rows_of(F.scaled_dot_product_attention(q, keys[:, :, :position + 1], values[:, :, :position + 1]))
            if layer + 1 < len(blocks):
                x, q = middle(x, attention, blocks[layer], blocks[layer + 1], *caches[layer + 1], self.position)
        return last(x, attention, blocks[-1], self.ln_f, self.wte)

    def read(self, tokens):
        """Reads prompts (B, T) from position 0 on; logits (B, padded V) of their last tokens."""
        B, T = tokens.shape
        NH, HS = self.keys[0].shape[1], self.keys[0].shape[3]
        x = (F.embedding(tokens, self.wte) + self.wpe[:T]).view(B * T, -1)
        for block, keys, values in zip(self.blocks, self.keys, self.values):
            q, k, v = linear(norm(x, block.norm_1), block.qkv).view(B, T, 3, NH, HS).permute(2, 0, 3, 1, 4)
            keys[:, :, :T], values[:, :, :T] = k, v
            x = mlp(x, rows_of(F.scaled_dot_product_attention(q, k, v, is_causal=True)), block)
        return F.linear(norm(x.view(B, T, -1)[:, -1], self.ln_f), self.wte)


# ---- measuring -----------------------------------------------------------------------------


class Bench:
    """The measurements of one request."""

    def __init__(self, options, model):
        self.options, self.model, self.cuda = options, model, options.device.startswith("cuda")
        self.decoder = Decoder(model, options.batch)
        random = torch.Generator().manual_seed(1)
        shape = (options.batch, model.config.context)
        self.tokens = torch.randint(model.config.vocabulary, shape, generator=random).to(options.device)

    def synchronize(self):
        if self.cuda:
            torch.cuda.synchronize()

    def check(self):
        """Raises an error unless steps, and prompts, have the losses of gpt2.py."""
        T, V = min(CHECKED_TOKENS, self.model.config.context - 1), self.model.config.vocabulary
        tokens, target = self.tokens[:, :T], self.tokens[:, T]
        targets = torch.full_like(tokens, -100)  # ignored
        targets[:, -1] = target
        expected = self.model(tokens, targets).item()
        for position in range(T):
            self.decoder.token.copy_(tokens[:, position])
            self.decoder.position.fill_(position)
            logits = self.decoder.step(position)
        for name, values in (("steps", logits), ("a prompt", self.decoder.read(tokens))):
            loss = F.cross_entropy(values[:, :V].float(), target).item()
            if not math.isfinite(loss) or abs(loss - expected) > TOLERANCE[self.options.dtype]:
                raise RuntimeError(f"the loss of {name} is {loss}, that of gpt2.py {expected}")

    def time(self, work, calls, tokens):
        """Microseconds per token of each repetition of `calls` calls, which compute `tokens` tokens each."""
        samples = []
        work()  # the warm-up
        for _ in range(self.options.repetitions):
            self.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                work()
            self.synchronize()
            samples.append(1e6 * (time.perf_counter() - start) / (calls * tokens))
        deviation = statistics.stdev(samples) if len(samples) > 1 else 0.0
        return {"us_per_token": statistics.mean(samples), "us_per_token_sd": deviation, "samples_us": samples}

    def prompts(self):
        for T in self.options.prompts:
            if T <= self.model.config.context:
                times = self.time(lambda T=T: self.decoder.read(self.tokens[:, :T]), 1, T * self.options.batch)
                yield {"side": "eager", "test": "prompt", "tokens": T, **times}

    def steps(self, side):
        for position in self.options.positions:
            if position >= self.model.config.context:
                continue
            self.decoder.position.fill_(position)
            work = lambda position=position: self.decoder.step(position)
            if side != "eager" and self.cuda:
                work = captured(work).replay
            yield {"side": side, "test": "step", "position": position,
                   **self.time(work, STEPS[side], self.options.batch)}

    def compile(self):
        import torch._inductor.config
        torch.compiler.reset()
        # Tuning takes long, and pays where a step is one product after another of a matrix and a vector.
        torch._inductor.config.coordinate_descent_tuning = self.options.batch == 1
        self.decoder.parts = [torch.compile(part, dynamic=False, fullgraph=True, backend=self.options.backend)
                              for part in self.decoder.parts]
        start = time.perf_counter()
        self.decoder.step(0)
        self.synchronize()
        return time.perf_counter() - start

    def run(self):
        record = {"torch": torch.__version__, "model": self.options.model, "dtype": self.options.dtype,
                  "batch": self.options.batch, "results": [], "errors": {}}
        self.check()
        record["results"] += self.prompts()
        for side in ("eager", "graph", "compiled"):
            if (side == "graph" and not self.cuda) or (side == "compiled" and self.options.backend == "none"):
                continue
            try:
                if side == "compiled":
                    record["compile_s"] = self.compile()
                    self.check()
                record["results"] += self.steps(side)
            except Exception as error:  # no compiler, or an operation that cannot be captured
                lines = str(error).strip().splitlines() or [""]
                record["errors"][side] = f"{type(error).__name__}: {lines[0][:300]}"
        return record


def captured(work):
    """A CUDA graph of work()."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):  # libraries allocate at their first calls
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


class Models:
    """Keeps the model of the last request."""

    def __init__(self):
        self.key = self.model = None

    def load(self, options):
        key = options.model, options.dtype, options.device
        if key != self.key:
            self.model = None  # frees its memory before the next one is loaded
            dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[options.dtype]
            with torch.device(options.device):  # where a large model is initialised fastest
                self.model, self.key = gpt2.load(options.model).to(dtype).eval(), key
        return self.model


def answer(models, options):
    try:
        with torch.no_grad():
            return Bench(options, models.load(options)).run()
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return {"error": f"{type(error).__name__}: {lines[0][:300]}"}
    finally:
        torch.compiler.reset()
        if options.device.startswith("cuda"):
            torch.cuda.empty_cache()


def numbers(text):
    return [int(number) for number in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="Hugging Face directory with fp32 weights")
    parser.add_argument("--dtype", default="bf16", choices=("fp32", "bf16"), help="of weights and cache [bf16]")
    parser.add_argument("--batch", type=int, default=1, help="number of sequences [1]")
    parser.add_argument("--prompts", type=numbers, default=[16, 512], help="lengths of prompts [16,512]")
    parser.add_argument("--positions", type=numbers, default=[1, 128, 512, 1023], help="[1,128,512,1023]")
    parser.add_argument("--repetitions", type=int, default=5, help="of each measurement [5]")
    parser.add_argument("--device", default="cuda", help="[cuda]")
    parser.add_argument("--backend", default="inductor", choices=("inductor", "eager", "none"),
                        help="of torch.compile; eager generates no code, none: not compiled [inductor]")
    parser.add_argument("--serve", action="store_true", help="answer requests on stdin")
    options = parser.parse_args()
    if not options.serve and not options.model:
        parser.error("--model is missing")
    answers, sys.stdout = sys.stdout, sys.stderr  # keeps library output out of the answers
    models = Models()
    if not options.serve:
        record = answer(models, options)
        print(json.dumps(record, indent=1), file=answers)
        return 1 if "error" in record else 0
    for line in sys.stdin:
        request = argparse.Namespace(**{**vars(options), **json.loads(line)})
        print(json.dumps(answer(models, request)), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "scripts"))
    import standard_output
    standard_output.run(main)
