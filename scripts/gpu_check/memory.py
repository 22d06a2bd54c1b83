#!/usr/bin/env python3
"""Trains in less memory: the bits of the run that keeps everything, and what that costs.

    memory.py --program build/cuda/train_gpt2 --device cuda --work DIR --seconds 400 [--dry]

1. A small model with --recompute and --offload, to host memory and to a directory, must have the losses and norms of
   the plain run, bit for bit.
2. GPT-2 1558M in bf16: the time of a step with --recompute selective and full, relative to none.
3. The same model with the optimizer offloaded: bytes per second of its transfers next to those of pinned copies
   (goal: 80%), and the part of a step in which the computation waits (goal: at most 10% with --grad-accum 8); then
   with --optimizer-on cpu.
4. 8.3 billion parameters on one card, for two steps.

Prints a `result: ` line per figure; exits 1 if a run fails or has other bits. --dry: tiny models, and no bandwidth.
"""
import argparse
import array
import ctypes
import json
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

KINDS = ("optimizer", "gradients", "parameters", "activations")
ON_CPU = ["--offload", "optimizer", "--optimizer-on", "cpu"]
QUIET = ["--eval-every", 0, "--sample-every", 0]
SMALL = ["--layers", 4, "--heads", 4, "--channels", 128, "--context", 128, "--batch-size", 2, "--grad-accum", 2,
         "--dtype", "bf16", "--dropout", 0.1, "--steps", 5, "--peak-tflops", 1]


def write_tokens(path, count):
    """A file of random GPT-2 tokens in the format of llm.c."""
    random_ids = random.Random(1)
    header = array.array("i", [20240520, 1, count] + [0] * 253)
    path.write_bytes(header.tobytes() + array.array("H", (random_ids.randrange(50257) for _ in range(count))).tobytes())


class Runs:
    def __init__(self, options):
        self.options, self.log = options, options.work / "run.jsonl"
        self.end = time.monotonic() + options.seconds
        self.text, self.tokens = options.work / "text.txt", options.work / "tokens.bin"
        self.text.write_text("the quick brown fox jumps over the lazy dog and runs away\n" * 2000)
        write_tokens(self.tokens, 200_000)
        self.common = [options.program, "--device", options.device, *QUIET]

    def steps(self, *arguments):
        """The steps of a run's log, or None, with its last messages, if it failed or there was no time for it."""
        left = self.end - time.monotonic()
        if left < 5:
            print(f"not run: {' '.join(map(str, arguments))}")
            return None
        self.log.unlink(missing_ok=True)
        command = [str(word) for word in [*self.common, *arguments, "--log", self.log]]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=left)
        except subprocess.TimeoutExpired:
            print(f"not finished: {' '.join(map(str, arguments))}")
            return None
        if done.returncode != 0:
            print(done.stderr[-2000:])
            return None
        return [line for line in map(json.loads, self.log.read_text().splitlines()) if "loss" in line]


def everything(place):
    return ["--offload", ",".join(f"{kind}={place}" for kind in KINDS)]


def check_bits(runs):
    """Whether every mode has the bits of the plain run."""
    small = ["--train", runs.text, *SMALL]
    plain = runs.steps(*small)
    if plain is None:
        print("result: WRONG the plain run failed")
        return False
    bits = [(step["loss"], step["grad_norm"]) for step in plain]
    right = True
    for name, arguments in {"selective": ["--recompute", "selective"], "full": ["--recompute", "full"],
                            "host": everything("host"), "disk": everything(runs.options.work / "scratch"),
                            "full, host": ["--recompute", "full", *everything("host")]}.items():
        steps = runs.steps(*small, *arguments)
        equal = steps is not None and [(step["loss"], step["grad_norm"]) for step in steps] == bits
        print(f"result: {'OK   ' if equal else 'WRONG'} {name}: losses and norms of 5 steps")
        right &= equal
    return right & check_update_on_cpu(runs, small, plain)


def check_update_on_cpu(runs, small, plain):
    """Whether the CPU's updates, whose roundings differ, train as the GPU's. The first update follows the first loss."""
    steps = runs.steps(*small, *ON_CPU)
    differences = [abs(step["loss"] - other["loss"]) for step, other in zip(steps or [], plain)]
    close = len(differences) == len(plain) and differences[0] == 0 and max(differences) <= 0.01
    print(f"result: {'OK   ' if close else 'WRONG'} --optimizer-on cpu: losses of 5 steps differ by at most "
          f"{max(differences, default=0):.5f} (limit 0.01)")
    return close


def median_of(steps, key):
    return statistics.median(step[key] for step in steps[2:])


def report_recompute(runs, model):
    base = None
    for mode in ("none", "selective", "full"):
        steps = runs.steps(*model, "--grad-accum", 1, "--steps", 8, "--recompute", mode)
        if steps is None:
            continue
        milliseconds = median_of(steps, "step_ms")
        base = base or milliseconds
        print(f"result: --recompute {mode}: {milliseconds:.1f} ms per step, {milliseconds / base:.3f} of none")


def pinned_bandwidth():
    """GB/s of copies between pinned host memory and the GPU: (to the device, from it); None without the library."""
    try:
        cuda = ctypes.CDLL("libcudart.so")
    except OSError:
        return None
    size = 1 << 30
    host, device = ctypes.c_void_p(), ctypes.c_void_p()
    if cuda.cudaMallocHost(ctypes.byref(host), ctypes.c_size_t(size)) or cuda.cudaMalloc(ctypes.byref(device), ctypes.c_size_t(size)):
        return None
    rates = []
    for to, source, kind in ((device, host, 1), (host, device, 2)):
        times = []
        for _ in range(4):
            cuda.cudaDeviceSynchronize()
            begin = time.perf_counter()
            cuda.cudaMemcpy(to, source, ctypes.c_size_t(size), kind)
            cuda.cudaDeviceSynchronize()
            times.append(time.perf_counter() - begin)
        rates.append(size / min(times) / 1e9)
    return rates


def report_offload(runs, model):
    rates = None if runs.options.dry else pinned_bandwidth()
    if rates:
        print(f"result: pinned copies: {rates[0]:.1f} GB/s to the device, {rates[1]:.1f} GB/s from it")
    for accumulation in (1, 8):
        steps = runs.steps(*model, "--grad-accum", accumulation, "--steps", 5, "--offload", "optimizer")
        if steps is None:
            continue
        to, back = steps[-1]["offload_bytes_from_host"], steps[-1]["offload_bytes_to_host"]
        waits, update = median_of(steps, "offload_ms"), median_of(steps, "offload_ms") + median_of(steps, "optimizer_ms")
        line = f"--offload optimizer, --grad-accum {accumulation}: waits {100 * waits / median_of(steps, 'step_ms'):.1f}% of a step"
        line += f", {(to + back) / update / 1e6:.1f} GB/s during the update"
        if rates:
            ideal = to / rates[0] / 1e6 + back / rates[1] / 1e6  # ms, one direction after the other
            line += f", {100 * ideal / update:.0f}% of pinned copies"
        print(f"result: {line}")
        report_update_on_cpu(runs, model, accumulation, median_of(steps, "step_ms"))


def report_update_on_cpu(runs, model, accumulation, on_device):
    steps = runs.steps(*model, "--grad-accum", accumulation, "--steps", 5, *ON_CPU)
    if steps is None:
        return
    print(f"result: --optimizer-on cpu, --grad-accum {accumulation}: {median_of(steps, 'step_ms'):.1f} ms per step, "
          f"{median_of(steps, 'step_ms') / on_device:.3f} of the update on the device; update "
          f"{median_of(steps, 'optimizer_ms'):.1f} ms")


def report_largest(runs, model):
    steps = runs.steps(*model, "--grad-accum", 1, "--steps", 2, "--recompute", "full", "--offload", "optimizer,gradients")
    if steps is None:
        text = "did not run"
    else:
        losses = ", ".join(f"{step['loss']:.4f}" for step in steps)
        text = f"losses {losses}, {steps[-1]['step_ms'] / 1e3:.1f} s per step"
    print(f"result: {' '.join(map(str, model[:2]))} with full recompute, optimizer and gradients in host memory: {text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, type=Path)
    parser.add_argument("--device", required=True)
    parser.add_argument("--work", required=True, type=Path)
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    runs = Runs(options)
    right = check_bits(runs)
    xl = ["--model", "d48", "--dtype", "bf16", "--seq-len", 1024, "--batch-size", 4, "--train", runs.tokens]
    largest = ["--model", "megatron-8.3b", "--dtype", "bf16", "--seq-len", 1024, "--batch-size", 1, "--train", runs.tokens]
    if options.dry:
        xl = largest = ["--layers", 2, "--heads", 2, "--channels", 32, "--context", 32, "--batch-size", 1,
                        "--train", runs.text, "--peak-tflops", 1]
    report_recompute(runs, xl)
    report_offload(runs, xl)
    report_largest(runs, largest)
    return 0 if right else 1


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    import standard_output
    standard_output.run(main)
