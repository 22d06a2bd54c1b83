#!/usr/bin/env python3
"""Replaces every program that phases profile, infer and int8 of `gpu_check.sh` start, under that program's name, and
prints the values of dev/predictions.json, or times of generation, as if a GPU had measured them. PLANT names faults,
separated by commas: see test_gpu_check.py.
"""
import json
import os
import signal
import sys
import time
from pathlib import Path

NAME = Path(sys.argv[0]).name
PLANTS = os.environ.get("PLANT", "").split(",")
PREDICTIONS = json.loads(Path("dev/predictions.json").read_text())["predictions"]
FIRST_LOSS = {False: 5.3584, True: 10.8}  # the toy language, GPT-2


def flag(name, default=None):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def slow_down(name, unit, value):
    if f"slow:{name}" not in PLANTS:
        return value
    return 3 * value if unit == "ms" else value / 3


# ---- train_gpt2 ----------------------------------------------------------------------------


def losses(gpt2, steps):
    first = FIRST_LOSS[gpt2] + (0.1 if "first" in PLANTS and not gpt2 else 0)
    values = [first - 0.01 * step for step in range(steps)]
    if gpt2 and "diverge" in PLANTS:
        values.reverse()
    if gpt2 and "nan" in PLANTS:
        values[-1] = float("nan")
    if gpt2 and "rows" in PLANTS and flag("--logits-rows") == "0":
        values = [value + 0.001 for value in values]
    if not gpt2 and "bits" in PLANTS and "-2/" in flag("--out"):
        values[-1] += 1e-7
    return values


def profile_rows(label):
    milliseconds = {}
    for p in PREDICTIONS:
        if p["from"] == "profile":
            for operation in p["operations"]:
                milliseconds[operation] = slow_down(operation, "ms", p["predicted"] / len(p["operations"]))
    total = sum(ms for operation, ms in milliseconds.items() if "/" in operation)
    yield {"operation": "step", "depth": 0, "steps": 5, "calls_per_step": 1, "ms_per_step": total, "percent": 100}
    for operation, ms in milliseconds.items():
        yield {"operation": operation, "depth": 1, "calls_per_step": 1, "ms_per_step": ms, "percent": 100 * ms / total}


def train():
    gpt2, steps = "--train" in sys.argv, int(flag("--steps"))
    if gpt2 and "crash" in PLANTS:
        sys.exit("train_gpt2: an illegal memory access was encountered")
    B = int(flag("--batch-size", 8))
    if B == 64 and "memory" in PLANTS:
        sys.exit("train_gpt2: the run needs 99 MiB of device memory, 1 MiB are free")
    speed = next((p["predicted"] for p in PREDICTIONS if p["from"] == "run" and p["run"].startswith(f"B{B}-")), 4e5)
    with open(flag("--log"), "w") as log:
        for step, loss in enumerate(losses(gpt2, steps), 1):
            log.write(json.dumps({"step": step, "loss": loss, "grad_norm": 1.0, "tokens": step * B * 1024, "tok_per_s": speed,
                                  "mfu": 0.4, "mfu_full": 0.42, "step_ms": 1e3 * B * 1024 / speed, "gpu_mem_mb": 70000.0}) + "\n")
    if flag("--profile-out"):
        Path(flag("--profile-out")).write_text("".join(json.dumps(row) + "\n" for row in profile_rows(B)))
    if flag("--out"):
        checkpoint = Path(flag("--out")) / f"step_{steps:06d}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "model.safetensors").write_text(flag("--out") if "weights" in PLANTS else "weights")
        (checkpoint / "optimizer.safetensors").write_text("moments")
    print("memory: weights 1.0 MiB; in all 2.0 GiB", file=sys.stderr)


# ---- benchmarks ----------------------------------------------------------------------------


def bench_lines():
    """(op, variant, shape, prediction) of this benchmark."""
    prefix = {"bench_matmul": ("linear", "head"), "bench_layernorm": ("layernorm", "residual"),
              "bench_classifier": ("fused",), "bench_activation": ("gelu",)}.get(NAME, (NAME.removeprefix("bench_"),))
    for p in PREDICTIONS:
        if p["from"] == "bench" and p["lines"].startswith(prefix):
            op, rest = p["lines"].split("/")
            variant, shape = rest.removesuffix(" bf16").split(" ", 1)
            yield op, variant, shape.replace("*", "768"), p


def result_line(op, variant, shape, p):
    value = slow_down(f"{op}/{variant}", p["unit"], p["predicted"])
    ok = not ("wrong" in PLANTS and op == "gelu_backward")
    line = {"type": "result", "ok": ok, "op": op, "variant": variant, "shape": shape, "dtype": "bf16",
            "median_us": 1e6 / value, "gb_s": value, "tflop_s": value, "percent_of_roof": value, "faults": [] if ok else ["wrong"]}
    return {**line, p["field"]: value}


def bench():
    if "--list" in sys.argv:
        ending = "_new" if "renamed" in PLANTS else ""
        for op, variant, shape, _ in bench_lines():
            print(f"{op}{ending}/{variant} {shape} bf16")
        return
    roofs = {p["field"]: p["predicted"] for p in PREDICTIONS if p["from"] == "roofs"}
    print(json.dumps({"type": "roofs", **roofs}))
    lines = [result_line(*line) for line in bench_lines()]
    if NAME == "planted_faults":
        p = {"unit": "%", "predicted": 1, "field": "gb_s"}
        lines = [{**result_line("faulty_copy", "wrong_number", "8", p), "ok": "unplanted" in PLANTS, "faults": ["planted"]}]
    for line in lines:
        print(json.dumps(line), flush=True)
    if f"killed:{NAME}" in PLANTS:
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(0 if all(line["ok"] for line in lines) and f"crash:{NAME}" not in PLANTS else 1)


# ---- infer_gpt2 and infer_pytorch.py -------------------------------------------------------


def generation_times(model, dtype, batch, factor):
    """Times in us/token, which are `factor` times the aims in bf16 at batch size 1."""
    us = factor * (1258 if model.endswith("1558M") else 196) * (2 if dtype == "fp32" else 1) / batch
    times = {"us_per_token": us, "us_per_token_sd": 0.5, "samples_us": [us - 0.5, us + 0.5]}
    yield from ({"test": "prompt", "tokens": int(n), **times} for n in flag("--prompts", flag("--prompt-tokens")).split(","))
    yield from ({"test": "step", "position": position, "percent_of_copy": 75.0, "mbu_percent": 67.5, "joules_per_token": 0.064,
                 **times} for position in (1, 128, 512, 1023))


def infer():
    model, dtype, batch = flag("-m"), flag("--dtype"), int(flag("--batches"))
    is_int8 = flag("--quant") != "none"
    if batch == 64 and dtype == "fp32" and model.endswith("1558M") and "memory" in PLANTS:
        sys.exit("infer_gpt2: the model needs 99 MiB of device memory, 1 MiB are free")
    if batch == 8 and "hang" in PLANTS:
        time.sleep(60)
    if batch == 8 and "crash" in PLANTS:
        sys.exit("infer_gpt2: an illegal memory access was encountered")
    factor = 1 if not is_int8 else 0.8 if flag("--kv-dtype") else 0.4 if flag("--quant") == "w8a8" else 0.75
    results = list(generation_times(model, dtype, batch, factor))
    if is_int8 and "slow prefill" in PLANTS:
        results[0]["us_per_token"] *= 3
    print(json.dumps({"copy_gb_per_second": 2900.0, "results": results}))


def infer_pytorch():
    for line in sys.stdin:
        r = json.loads(line)
        if "pytorch" in PLANTS and r["batch"] == 8:
            sys.exit("killed")
        results = [{"side": "compiled", **result} for result in generation_times(r["model"], r["dtype"], r["batch"], 1.5)]
        print(json.dumps({"torch": "2.9", "results": results, "errors": {"graph": "planted"}}), flush=True)


{"train_gpt2": train, "infer_gpt2": infer, "infer_pytorch.py": infer_pytorch}.get(NAME, bench)()
