#!/usr/bin/env python3
"""Trains GPT-2 in PyTorch as train_gpt2 does: same weights, batches, schedule, AdamW, clipping.

    dev/peers/train_pytorch.py --init-from DIR --train FILE.bin --log FILE.jsonl [flags as train_gpt2's]
    dev/peers/train_pytorch.py --init-from DIR --train FILE.bin --serve

The first form writes one line per step (step, loss, grad_norm, lr). The second form is for timing in turns
with another program: it reads one request per line, such as {"batch_size": 16, "steps": 30, "warmup": 5},
runs it, and responds with one line; between requests it frees the activations. A request may set the recipe
of bf16 and the attention kernel, "recipe": "masters" | "autocast", "attention": "auto" | "cudnn":

- masters: weights and activations in bf16, fp32 masters for AdamW, gradients copied to fp32, as in our
  engine.
- autocast: fp32 weights, cast to bf16 in matrix products; the residual stream is fp32, as in most PyTorch
  programs.

The faster recipe depends on versions; the comparison uses the faster one.

In fp32 on a CPU, clip_grad_norm_ sums the squares of a large tensor with a relative error of about 5e-4
(PyTorch 2), which changes every step that is clipped: compare with --dtype fp64, or with --grad-clip 1e9.
"""
import argparse
import json
import math
import sys
import time
from pathlib import Path

import torch

import gpt2
from files import read_tokens
from windows import ShuffledWindows


def learning_rate(step, peak, warmup, steps, final_fraction=0.1):
    """Learning rate as in llmc/config/learning_rate_schedule.h: linear warm-up, then a cosine. `step` counts from 0."""
    if step < warmup:
        return peak * (step + 1) / warmup
    if steps <= warmup + 1:
        return peak
    progress = min(1.0, (step - warmup) / (steps - 1 - warmup))
    return peak * (final_fraction + (1 - final_fraction) * 0.5 * (1 + math.cos(math.pi * progress)))


def choose_attention(name):
    """Selects the attention kernels that PyTorch may use; `auto` lets it choose among all."""
    torch.backends.cuda.enable_flash_sdp(name == "auto")
    torch.backends.cuda.enable_mem_efficient_sdp(name == "auto")
    torch.backends.cuda.enable_math_sdp(name == "auto")
    torch.backends.cuda.enable_cudnn_sdp(name in ("auto", "cudnn"))


class Training:
    """A model and its optimizer on a device."""

    def __init__(self, options, recipe, attention, exact_loss):
        self.options, self.recipe = options, recipe if options.dtype == "bf16" else "fp32"
        self.cuda = options.device.startswith("cuda")
        if self.cuda:
            choose_attention(attention)
        model = gpt2.load(options.init_from, exact_loss).to(options.device)
        if options.dtype == "fp64":
            model.double()
        self.config = model.config
        self.masters = [p.detach().clone() for p in model.parameters()] if self.recipe == "masters" else None
        if self.masters:
            model.to(torch.bfloat16)
            for master in self.masters:
                master.grad = torch.zeros_like(master)
        self.weights = list(model.parameters())
        optimized = self.masters or self.weights
        groups = [{"params": [p for p in optimized if p.dim() == 2], "weight_decay": options.weight_decay},
                  {"params": [p for p in optimized if p.dim() == 1], "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=options.lr, betas=(0.9, 0.95), eps=1e-8, fused=self.cuda)
        if options.compile:
            torch.compiler.reset()
            self.loss_of = torch.compile(model, dynamic=False)
        else:
            self.loss_of = model

    def stage(self, batch):
        """Starts the copy of a batch to the device and returns its tensors."""
        pin = (lambda t: t.pin_memory()) if self.cuda else (lambda t: t)
        return [pin(torch.from_numpy(part)).to(self.options.device, non_blocking=True) for part in batch]

    def step(self, micro_batches, rate):
        """Does one update; returns loss and gradient norm as device tensors."""
        total = 0
        for tokens, targets in micro_batches:
            with torch.autocast(self.options.device.split(":")[0], torch.bfloat16, enabled=self.recipe == "autocast"):
                loss = self.loss_of(tokens, targets) / len(micro_batches)
            loss.backward()
            total = total + loss.detach()
        optimized = self.weights
        if self.masters:
            optimized = self.masters
            torch._foreach_copy_([p.grad for p in self.masters], [p.grad for p in self.weights])
            for weight in self.weights:
                weight.grad = None
        norm = torch.nn.utils.clip_grad_norm_(optimized, self.options.grad_clip)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        if not self.masters:
            self.optimizer.zero_grad(set_to_none=True)
        else:
            with torch.no_grad():
                torch._foreach_copy_(self.weights, self.masters)
        return total, norm

    def synchronize(self):
        if self.cuda:
            torch.cuda.synchronize()


# ---- a loss curve --------------------------------------------------------------------------


def train(options, windows):
    training = Training(options, options.recipe, "auto", exact_loss=True)
    B, accumulate = options.batch_size, options.grad_accum
    with open(options.log, "w") as log:
        for step in range(options.steps):
            first = step * B * accumulate
            batches = [training.stage(windows.batch(first + m * B, B)) for m in range(accumulate)]
            rate = learning_rate(step, options.lr, options.warmup, options.steps)
            loss, norm = training.step(batches, rate)
            log.write(json.dumps({"step": step + 1, "loss": float(loss), "grad_norm": float(norm), "lr": rate}) + "\n")
            log.flush()


# ---- timing --------------------------------------------------------------------------------


def time_steps(training, windows, B, warmup, steps):
    """Runs warmup + steps steps and times the last `steps`, with one synchronization at the end.
    Batches are copied while the device computes and losses stay on the device, so PyTorch never waits.
    """
    losses = []
    if training.cuda:
        torch.cuda.reset_peak_memory_stats()
    batch = training.stage(windows.batch(0, B))
    start = time.perf_counter()
    for step in range(warmup + steps):
        if step == warmup:
            training.synchronize()
            warmup_end = time.perf_counter()
        losses.append(training.step([batch], 1e-4)[0])
        batch = training.stage(windows.batch((step + 1) * B, B))
    training.synchronize()
    seconds = time.perf_counter() - warmup_end
    answer = {"step_ms": 1e3 * seconds / steps, "tok_per_s": B * windows.T * steps / seconds,
              "warmup_s": warmup_end - start, "last_loss": float(losses[-1])}
    if training.cuda:
        answer["peak_reserved_bytes"] = torch.cuda.max_memory_reserved()
        answer["peak_allocated_bytes"] = torch.cuda.max_memory_allocated()
    return answer


def serve(options, windows):
    answers, sys.stdout = sys.stdout, sys.stderr  # keeps library output out of the answers
    training, variant = None, None
    for line in sys.stdin:
        request = json.loads(line)
        settings = {"batch_size": request["batch_size"], "recipe": request.get("recipe", "masters"),
                    "attention": request.get("attention", "auto")}
        try:
            if settings != variant:
                training = variant = None
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
                training = Training(options, settings["recipe"], settings["attention"], exact_loss=False)
                variant = settings
            answer = time_steps(training, windows, settings["batch_size"], request["warmup"], request["steps"])
        except RuntimeError as error:  # out of memory, or no such kernel here
            training = variant = None
            answer = {"error": str(error).splitlines()[0][:300]}
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        print(json.dumps({**settings, "torch": torch.__version__, **answer}), file=answers, flush=True)


def add_shared_flags(parser, steps):
    """Adds the flags of train_gpt2 that set inputs and training. `steps`: default of --steps."""
    parser.add_argument("--init-from", required=True, metavar="DIR", help="Hugging Face directory with the weights")
    parser.add_argument("--train", required=True, metavar="FILE.bin", help="token file to train on")
    defaults = {"seq-len": "the context", "warmup": "steps / 20"}
    for flag, kind, value in (("batch-size", int, 8), ("seq-len", int, 0), ("grad-accum", int, 1), ("steps", int, steps),
                              ("warmup", int, None), ("lr", float, 6e-4), ("weight-decay", float, 0.1),
                              ("grad-clip", float, 1.0), ("seed", int, 1337)):
        parser.add_argument(f"--{flag}", type=kind, default=value, help=f"as in train_gpt2 [{defaults.get(flag, value)}]")


def resolve_shared_flags(options):
    """Sets the defaults that depend on other flags."""
    options.warmup = options.steps // 20 if options.warmup is None else options.warmup
    options.seq_len = options.seq_len or gpt2.read_config(options.init_from).context


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", metavar="FILE.jsonl", help="train, and write one line per step to this file")
    parser.add_argument("--serve", action="store_true", help="time steps for each request on standard input")
    parser.add_argument("--dtype", choices=("fp32", "bf16", "fp64"), default="fp32",
                        help="fp64 makes rounding errors negligible [fp32]")
    parser.add_argument("--recipe", choices=("masters", "autocast"), default="masters",
                        help="dtype of weights in bf16 training, see above [masters]")
    parser.add_argument("--device", default="cuda", help="PyTorch device [cuda]")
    parser.add_argument("--compile", type=int, choices=(0, 1), default=1, help="1 uses torch.compile [1]")
    add_shared_flags(parser, steps=200)
    options = parser.parse_args()
    if options.serve == bool(options.log):
        parser.error("give either --log FILE.jsonl or --serve")
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        raise SystemExit("train_pytorch.py: PyTorch finds no GPU; use --device cpu to run on the CPU")
    resolve_shared_flags(options)
    windows = ShuffledWindows(read_tokens(options.train), options.seq_len, options.seed)
    (serve if options.serve else train)(options, windows)


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "scripts"))
    import standard_output
    standard_output.run(main)
