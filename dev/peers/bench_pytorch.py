#!/usr/bin/env python3
"""Times PyTorch's kernels at GPT-2's shapes, to compare them with ours on the same GPU.

    dev/peers/bench_pytorch.py [--models d12,d48] [--batch B] [--json FILE.jsonl] [--only WORD]
    dev/peers/bench_pytorch.py --dry        tiny shapes on the CPU: tests that it runs

Prints one line per operation, variant (eager, or torch.compile), shape and dtype: median, 10th and 90th
percentile in microseconds over --repeats runs with a cold L2 cache and random data, GB/s, TFLOP/s.
Bytes are those of an ideal implementation: each input read once, each output written once.
FLOP of causal attention count only the half below the diagonal; the backward pass counts 2.5 times the
forward pass.
"""
import argparse
import json
import sys
import time
from pathlib import Path

import torch
import torch._functorch.config
import torch.nn.functional as F

# A backward pass is timed repeatedly, so it must not donate (reuse) the buffers of its inputs.
# Older versions of PyTorch have no such setting and never donate.
if hasattr(torch._functorch.config, "donated_buffer"):
    torch._functorch.config.donated_buffer = False

MODELS = {"d12": (12, 12, 768), "d24": (24, 16, 1024), "d36": (36, 20, 1280), "d48": (48, 25, 1600)}  # L, NH, C
L2_FLUSH_BYTES = 256 << 20


class Bench:
    def __init__(self, options):
        self.options = options
        self.device = "cpu" if options.dry else "cuda"
        self.flush = None if options.dry else torch.empty(L2_FLUSH_BYTES, dtype=torch.uint8, device="cuda")
        self.json = open(options.json, "w") if options.json else None

    def random(self, *shape, dtype=torch.bfloat16, grad=False):
        return torch.randn(*shape, device=self.device, dtype=torch.float32).to(dtype).requires_grad_(grad)

    def microseconds(self, run):
        """Times of all repeats in microseconds, sorted."""
        for _ in range(3):
            run()
        times = []
        for _ in range(self.options.repeats):
            if self.device == "cpu":
                start = time.perf_counter()
                run()
                times.append(1e6 * (time.perf_counter() - start))
                continue
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self.flush.zero_()
            start.record()
            run()
            end.record()
            end.synchronize()
            times.append(1e3 * start.elapsed_time(end))
        return sorted(times)

    def report(self, op, variant, shape, run, size=0, flop=0):
        if self.options.only not in op:
            return
        times = self.microseconds(run)
        median, p10, p90 = (times[int(fraction * (len(times) - 1) + 0.5)] for fraction in (0.5, 0.1, 0.9))
        record = {"op": op, "variant": variant, "shape": shape, "median_us": median, "p10_us": p10, "p90_us": p90}
        text = f"{op:22} {variant:9} {shape:34} {median:10.1f} us (p10 {p10:.1f}, p90 {p90:.1f})"
        if size:
            record["gb_per_s"] = size / median / 1e3
            text += f" {record['gb_per_s']:9.1f} GB/s"
        if flop:
            record["tflop_per_s"] = flop / median / 1e6
            text += f" {record['tflop_per_s']:9.2f} TFLOP/s"
        print(text, flush=True)
        if self.json:
            self.json.write(json.dumps(record) + "\n")
            self.json.flush()

    def variants(self, function):
        yield "eager", function
        if self.options.compile:
            torch.compiler.reset()
            yield "compiled", torch.compile(function, dynamic=False)


def compiler_works(device):
    """Whether torch.compile works here: it needs a C compiler and Python's headers."""
    try:
        torch.compile(lambda x: x + 1, dynamic=False)(torch.zeros(64, device=device))
    except RuntimeError as error:
        print(f"torch.compile does not work, only eager is timed: {str(error).splitlines()[0]}", flush=True)
        return False
    return True


# ---- operations ----------------------------------------------------------------------------


def copy(bench, n):
    source = bench.random(n)
    target = torch.empty_like(source)
    bench.report("copy", "eager", f"({n}) bf16", lambda: target.copy_(source), size=4 * n)


def row_operation(bench, op, function, rows, width, parameters=()):
    """Times forward, then backward, of x -> function(x, *parameters) in bf16."""
    x, d_out = bench.random(rows, width, grad=True), bench.random(rows, width)
    shape = f"({rows}, {width}) bf16"
    for variant, run in bench.variants(function):
        with torch.no_grad():
            bench.report(f"{op}_forward", variant, shape, lambda: run(x, *parameters), size=2 * 2 * x.numel())
        out = run(x, *parameters)
        inputs = [x, *(p for p in parameters if torch.is_tensor(p))]
        bench.report(f"{op}_backward", variant, shape, lambda: torch.autograd.grad(out, inputs, d_out, retain_graph=True),
                     size=3 * 2 * x.numel())


def attention(bench, B, T, NH, HS):
    q, k, v = (bench.random(B, NH, T, HS, grad=True) for _ in range(3))
    d_out = bench.random(B, NH, T, HS)
    flop = 4 * B * NH * T * T * HS / 2
    kernels = ["auto"] if bench.device == "cpu" else ["flash", "cudnn"]
    for kernel in kernels:
        if kernel != "auto":
            torch.backends.cuda.enable_flash_sdp(kernel == "flash")
            torch.backends.cuda.enable_cudnn_sdp(kernel == "cudnn")
            torch.backends.cuda.enable_mem_efficient_sdp(False)
            torch.backends.cuda.enable_math_sdp(False)
        shape = f"B {B} T {T} NH {NH} HS {HS} bf16"
        try:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        except RuntimeError as error:
            print(f"attention {kernel}: not run: {str(error).splitlines()[0]}", flush=True)
            continue
        with torch.no_grad():
            bench.report("attention_forward", kernel, shape,
                         lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True), flop=flop)
        bench.report("attention_backward", kernel, shape,
                     lambda: torch.autograd.grad(out, (q, k, v), d_out, retain_graph=True), flop=2.5 * flop)


def cross_entropy(bench, rows, V):
    logits = bench.random(rows, V, grad=True)
    targets = torch.randint(0, V, (rows,), device=bench.device)

    for variant, run in bench.variants(lambda x: F.cross_entropy(x.float(), targets)):
        bench.report("cross_entropy_both", variant, f"({rows}, {V}) bf16",
                     lambda: torch.autograd.grad(run(logits), logits), size=2 * 2 * logits.numel())


def adamw(bench, n):
    parameter = bench.random(n, dtype=torch.float32, grad=True)
    parameter.grad = bench.random(n, dtype=torch.float32)
    optimizer = torch.optim.AdamW([parameter], lr=1e-4, fused=bench.device == "cuda")
    bench.report("adamw", "fused", f"({n}) fp32", optimizer.step, size=7 * 4 * n)


def gemm(bench, name, M, N, K):
    a, b = bench.random(M, K), bench.random(N, K)
    bench.report(f"gemm_{name}", "eager", f"{M} x {N} x {K} bf16", lambda: F.linear(a, b), flop=2 * M * N * K)


def run_model(bench, B, T, V, L, NH, C):
    rows = B * T
    weight, bias = bench.random(C, grad=True), bench.random(C, grad=True)
    row_operation(bench, "layernorm", lambda x, w, b: F.layer_norm(x, (C,), w, b), rows, C, (weight, bias))
    row_operation(bench, "gelu", lambda x: F.gelu(x, approximate="tanh"), rows, 4 * C)
    attention(bench, B, T, NH, C // NH)
    cross_entropy(bench, rows, V)
    adamw(bench, 12 * L * C * C + V * C)
    for name, M, N, K in (("qkv", rows, 3 * C, C), ("proj", rows, C, C), ("fc", rows, 4 * C, C), ("fc_proj", rows, C, 4 * C),
                          ("head", rows, V, C)):
        gemm(bench, name, M, N, K)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="d12,d48", help=f"comma-separated, from {', '.join(MODELS)} [d12,d48]")
    parser.add_argument("--batch", type=int, default=16, help="sequences of 1024 tokens [16]")
    parser.add_argument("--repeats", type=int, default=50, help="timed runs per line [50]")
    parser.add_argument("--only", default="", help="time only operations whose name contains this [all]")
    parser.add_argument("--compile", type=int, choices=(0, 1), default=1, help="1 also times torch.compile [1]")
    parser.add_argument("--json", metavar="FILE.jsonl", help="write the lines as JSON to this file")
    parser.add_argument("--dry", action="store_true", help="run tiny shapes on the CPU")
    options = parser.parse_args()
    unknown = [name for name in options.models.split(",") if name not in MODELS]
    if unknown:
        parser.error(f"--models {unknown[0]}; allowed: {', '.join(MODELS)}")
    if not options.dry and not torch.cuda.is_available():
        sys.exit("bench_pytorch.py: PyTorch finds no GPU; use --dry for tiny shapes on the CPU")
    torch.manual_seed(1)
    bench = Bench(options)
    options.compile = options.compile and compiler_works(bench.device)
    if options.dry:
        print("DRY RUN: tiny shapes on the CPU, no figures of a GPU")
        options.repeats = 3
        copy(bench, 1 << 16)
        run_model(bench, 2, 32, 256, 1, 2, 32)
        return
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}")
    copy(bench, 1 << 30)
    gemm(bench, "square", 8192, 8192, 8192)
    for model in options.models.split(","):
        print(f"{model}: B {options.batch}, T 1024")
        run_model(bench, options.batch, 1024, 50304, *MODELS[model])


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "scripts"))
    import standard_output
    standard_output.run(main)
