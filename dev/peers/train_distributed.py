#!/usr/bin/env python3
"""Trains GPT-2 in PyTorch on several ranks: plain, DDP, ZeroRedundancyOptimizer, FSDP2. The weights, the samples of each
step, AdamW and clipping are those of train_gpt2.

    scripts/run.sh -np 2 python3 dev/peers/train_distributed.py --strategy ddp --rendezvous /tmp/meet \\
        --init-from DIR --train FILE.bin --log FILE.jsonl [flags as train_gpt2's]

Strategies:

    plain        one rank
    ddp          DistributedDataParallel
    zero1        DDP with ZeroRedundancyOptimizer
    fsdp-zero2   FSDP2 with reshard_after_forward=False: weights stay gathered until the backward pass has used them
    fsdp-zero3   FSDP2 with reshard_after_forward=True
    fsdp-hybrid  FSDP2 on a two-dimensional mesh: weights are sharded in groups of two ranks, and the groups are replicas

Rank 0 writes the log: a line of settings with the bytes of weights, gradients and moments of each rank, then one line per
step. The gradient norm, also that of clipping, is summed in fp64: PyTorch's own sum in fp32 has an error of about 5e-4 on
a CPU. Memory is that of the process above what it used before the model was made. --rendezvous is a file that does not
exist yet, on a file system of all ranks.
"""
import argparse
import contextlib
import json
import os
import resource
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import gpt2
from files import read_tokens
from ranks import find_ranks, join_ranks, leave_ranks
from train_pytorch import add_shared_flags, learning_rate, resolve_shared_flags
from windows import ShuffledWindows

STRATEGIES = ("plain", "ddp", "zero1", "fsdp-zero2", "fsdp-zero3", "fsdp-hybrid")
SHARD_GROUP = 2
ADAM = {"betas": (0.9, 0.95), "eps": 1e-8}


def resident_mib():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2 ** 20


class Training:
    """The model of a rank, its optimizer, and the ranks that share its state."""

    def __init__(self, options, ranks, device):
        self.options, self.ranks, self.device = options, ranks, device
        self.shard_group = None  # ranks over which the norm is summed; None: each has all gradients
        self.model = gpt2.load(options.init_from, exact_loss=True).to(device)
        decayed = {name for name, p in self.model.named_parameters() if p.dim() == 2}
        if options.strategy in ("ddp", "zero1"):
            from torch.nn.parallel import DistributedDataParallel
            self.runner = DistributedDataParallel(self.model, gradient_as_bucket_view=True)
        else:
            if options.strategy.startswith("fsdp"):
                self._shard()
            self.runner = self.model
        named = list(self.model.named_parameters())
        groups = [{"params": [p for name, p in named if name in decayed], "weight_decay": options.weight_decay},
                  {"params": [p for name, p in named if name not in decayed], "weight_decay": 0.0}]
        self.parameters = [p for group in groups for p in group["params"]]
        self.optimizer = self._make_optimizer(groups)

    def _shard(self):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        kind = self.device.type
        if self.options.strategy == "fsdp-hybrid":
            mesh = init_device_mesh(kind, (self.ranks // SHARD_GROUP, SHARD_GROUP), mesh_dim_names=("replicate", "shard"))
            self.shard_group = mesh["shard"].get_group()
        else:
            mesh = init_device_mesh(kind, (self.ranks,), mesh_dim_names=("shard",))
            self.shard_group = mesh.get_group()
        keywords = {"mesh": mesh, "reshard_after_forward": self.options.strategy != "fsdp-zero2"}
        for block in self.model.h:
            fully_shard(block, **keywords)
        fully_shard(self.model, **keywords)

    def _make_optimizer(self, groups):
        keywords = {"lr": self.options.lr, "fused": True, **ADAM}
        if self.options.strategy == "zero1":
            from torch.distributed.optim import ZeroRedundancyOptimizer
            return ZeroRedundancyOptimizer(groups, optimizer_class=torch.optim.AdamW, **keywords)
        return torch.optim.AdamW(groups, **keywords)

    def _synchronized(self, last):
        """Whether the backward pass of a micro-batch reduces gradients: only the last one of a step does."""
        if self.options.strategy in ("ddp", "zero1") and not last:
            return self.runner.no_sync()
        if self.options.strategy.startswith("fsdp"):
            self.model.set_requires_gradient_sync(last)
        return contextlib.nullcontext()

    def norm(self):
        """The norm of all gradients, summed in fp64."""
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        for parameter in self.parameters:
            gradient = parameter.grad
            local = gradient.to_local() if hasattr(gradient, "to_local") else gradient
            total += local.double().square().sum()
        if self.shard_group is not None:
            dist.all_reduce(total, group=self.shard_group)
        return float(total.sqrt())

    def step(self, micro_batches, rate):
        """One update; returns the mean loss over ranks, and the gradient norm."""
        total = torch.zeros((), device=self.device)
        for i, (tokens, targets) in enumerate(micro_batches):
            with self._synchronized(i == len(micro_batches) - 1):
                with torch.autocast(self.device.type, torch.bfloat16, enabled=self.options.dtype == "bf16"):
                    loss = self.runner(tokens, targets) / len(micro_batches)
                loss.backward()
            total += loss.detach()
        if self.ranks > 1:
            dist.all_reduce(total)
        norm = self.norm()
        if norm > self.options.grad_clip:
            factor = self.options.grad_clip / (norm + 1e-6)
            for parameter in self.parameters:
                parameter.grad.mul_(factor)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        return float(total) / self.ranks, norm

    def state_bytes(self):
        """Bytes of weights, gradients and moments that this rank keeps between two steps."""
        def local_bytes(tensor):
            local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
            return local.numel() * local.element_size()
        inner = self.optimizer.optim if self.options.strategy == "zero1" else self.optimizer
        moments = [value for state in inner.state.values() for value in state.values()
                   if torch.is_tensor(value) and value.numel() > 1]
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        return sum(map(local_bytes, [*self.parameters, *gradients, *moments]))


def gather(value, ranks):
    if ranks == 1:
        return [value]
    values = [None] * ranks
    dist.all_gather_object(values, value)
    return values


def train(options, rank, ranks, device, write):
    windows = ShuffledWindows(read_tokens(options.train), options.seq_len, options.seed)
    before = resident_mib()
    training = Training(options, ranks, device)
    B, accumulate = options.batch_size, options.grad_accum
    samples = ranks * B * accumulate
    for step in range(options.steps):
        start = time.perf_counter()
        batches = [[torch.from_numpy(part).to(device) for part in
                    windows.batch(step * samples + (m * ranks + rank) * B, B)] for m in range(accumulate)]
        rate = options.lr if options.schedule == "constant" else \
            learning_rate(step, options.lr, options.warmup, options.steps)
        loss, norm = training.step(batches, rate)
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        if step == 0:
            state = gather(training.state_bytes(), ranks)
            write({"step": 0, "run": "started", "strategy": options.strategy, "ranks": ranks, "torch": torch.__version__,
                   "state_bytes_ranks": " ".join(map(str, state))})
        training.optimizer.zero_grad(set_to_none=True)
        peak = torch.cuda.max_memory_allocated() / 2 ** 20 if device.type == "cuda" else \
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
        memory = gather(round(peak, 1), ranks)
        write({"step": step + 1, "loss": loss, "grad_norm": norm, "lr": rate, "tokens": (step + 1) * samples * windows.T,
               "epoch": (step + 1) * samples / windows.count, "step_ms": 1e3 * seconds,
               "tok_per_s": samples * windows.T / seconds,
               ("gpu" if device.type == "cuda" else "host") + "_mem_mb_ranks": " ".join(map(str, memory))})


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     allow_abbrev=False)
    parser.add_argument("--strategy", required=True, choices=STRATEGIES, help="how ranks divide the training")
    parser.add_argument("--rendezvous", metavar="FILE", help="file in which the ranks meet; not needed for one rank")
    parser.add_argument("--log", required=True, metavar="FILE.jsonl", help="file for one line per step")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32", help="bf16 is autocast [fp32]")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="with cuda, each rank has a GPU [cpu]")
    parser.add_argument("--schedule", choices=("constant", "cosine"), default="cosine", help="of the learning rate [cosine]")
    add_shared_flags(parser, steps=20)
    options = parser.parse_args()
    resolve_shared_flags(options)
    return parser, options


def main():
    parser, options = read_options()
    rank, ranks, local_rank = find_ranks()
    if options.strategy == "plain" and ranks > 1:
        parser.error(f"--strategy plain has one rank, not {ranks}")
    if options.strategy == "fsdp-hybrid" and (ranks < 2 * SHARD_GROUP or ranks % SHARD_GROUP):
        parser.error(f"--strategy fsdp-hybrid needs an even number of ranks, at least {2 * SHARD_GROUP}, not {ranks}")
    if options.strategy != "plain" and not options.rendezvous:
        parser.error(f"--strategy {options.strategy} needs --rendezvous FILE")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    device = torch.device("cuda", local_rank) if options.device == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if options.strategy != "plain":
        join_ranks(dist, options.rendezvous, rank, ranks, "nccl" if device.type == "cuda" else "gloo")
    with open(options.log if rank == 0 else os.devnull, "w", encoding="utf-8") as log:
        def write(line):
            log.write(json.dumps(line) + "\n")
            log.flush()
        train(options, rank, ranks, device, write)
    if options.strategy != "plain":
        sys.stdout.flush()
        leave_ranks(dist)


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "scripts"))
    import standard_output
    standard_output.run(main)
