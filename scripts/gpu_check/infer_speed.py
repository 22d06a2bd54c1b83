#!/usr/bin/env python3
"""Times infer_gpt2 next to PyTorch on the same GPU: models, variants, batch sizes, prompts, positions of the cache.

    infer_speed.py --program build/cuda/infer_gpt2 --models 124M=DIR,1558M=DIR --out speed.json --table speed.txt
    infer_speed.py --out speed.json --table speed.txt --summary      (prints the results of a run that was stopped)

Variants (variant.py) are modes of ours; PyTorch runs those without INT8. The order is by importance: the first dtype
at batch size 1 of every model on both sides, then the rest by batch size, because large batches take longest: at each
size ours, then PyTorch's, as long as there is time. What did not run is listed. A run of ours that fails, other than by
the time limit or for lack of memory, is an error; one of PyTorch is only reported.

PyTorch is dev/peers/infer_pytorch.py, in one process. A ratio is the time of the fastest PyTorch side divided by ours;
above 1, ours is faster. If there are INT8 variants, their gains come first (int8_gains.py).
"""
import argparse
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

import int8_gains
from variant import variants_of

PYTORCH = ("eager", "graph", "compiled")
NAME_WIDTH = 46  # of the first column
AIMS = {("124M", "bf16", 1): 196, ("1558M", "bf16", 1): 1258}  # us/token of a step on an H200
MIN_SECONDS, MAX_SECONDS = 5, 120  # of a run: none is started in less time, and one that needs more must not stop all others


class Stopped(Exception):
    """A run reached its time limit."""


class OurRuns:
    """Runs of `infer_gpt2 bench`, each in a new process."""

    def __init__(self, options):
        self.options = options

    def run(self, folder, variant, batch, seconds):
        o = self.options
        command = [o.program, "bench", "-m", folder, "--device", o.device, *variant.flags, "--batches", batch,
                   "--prompt-tokens", o.prompts, "--gen-tokens", 0, "--positions", o.positions, "--repetitions",
                   repetitions(o, batch), "--format", "json"]
        try:
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise Stopped from None
        print(done.stderr, flush=True)
        lines = done.stderr.strip().splitlines()
        if done.returncode == 0:
            return json.loads(done.stdout.splitlines()[-1])
        memory = next((line for line in lines if "of device memory" in line or "out of memory" in line), None)
        if memory:
            return {"not_run": memory}
        return {"error": lines[-1][:300] if lines else f"exit code {done.returncode}"}

    def close(self):
        pass


class PyTorchRuns:
    """Requests to infer_pytorch.py, whose process is started again after a time limit."""

    def __init__(self, options):
        self.options, self.process = options, None

    def start(self):
        o = self.options
        self.process = subprocess.Popen(
            [sys.executable, o.pytorch, "--serve", "--device", o.torch_device, "--backend", o.backend, "--prompts", o.prompts,
             "--positions", o.positions], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            env={**os.environ, **({"OMP_NUM_THREADS": "1"} if o.torch_device == "cpu" else {})})

    def run(self, folder, variant, batch, seconds):
        if self.process is None:
            self.start()
        request = {"model": folder, "dtype": variant.dtype, "batch": batch, "repetitions": repetitions(self.options, batch)}
        self.process.stdin.write(json.dumps(request) + "\n")
        readable, _, _ = select.select([self.process.stdout], [], [], seconds)
        if not readable:
            self.process.kill()
            self.close()
            raise Stopped
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        code = self.process.wait()
        self.process = None
        return {"error": f"infer_pytorch.py ended with exit code {code}"}

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()
            self.process = None


def repetitions(options, batch):
    """Large batches take long, and vary less."""
    return options.repetitions if batch < 64 else min(options.repetitions, 2)


def jobs(models, variants, batches, has_pytorch):
    """(side, model, variant, batch) in the order of importance."""
    sides = ["ours", "pytorch"] if has_pytorch else ["ours"]
    every = [(side, model, variant, batch) for batch in batches for side in sides for variant in variants for model in models
             if side == "ours" or not variant.is_quantized]
    first = [job for job in every if job[2].dtype == variants[0].dtype and job[3] == batches[0]]
    return first + [job for job in every if job not in first]


class Comparison:
    def __init__(self, options):
        self.options, self.end = options, time.monotonic() + options.seconds
        self.record = {"runs": [], "aims_us_per_token": {f"{model} {variant}, batch {batch}": aim
                                                         for (model, variant, batch), aim in AIMS.items()}}

    def save(self):
        """Writes the files atomically, so that they are complete after every run."""
        for path, text in ((self.options.out, json.dumps(self.record, indent=1) + "\n"),
                           (self.options.table, "\n".join(table(self.record["runs"])) + "\n")):
            temporary = path.with_name(path.name + ".tmp")
            temporary.write_text(text)
            os.replace(temporary, path)

    def run(self):
        """Whether all runs of ours are right."""
        o, right = self.options, True
        sides = {"ours": OurRuns(o), "pytorch": PyTorchRuns(o)}
        for side, model, variant, batch in jobs(list(o.models), o.variants, o.batches, bool(o.pytorch)):
            seconds, start = self.end - time.monotonic(), time.monotonic()
            try:
                if seconds < MIN_SECONDS:
                    raise Stopped
                outcome = sides[side].run(o.models[model], variant, batch, min(seconds, MAX_SECONDS))
            except Stopped:
                outcome = {"not_run": "no time was left" if seconds < MAX_SECONDS else f"stopped after {MAX_SECONDS} s"}
            right &= side != "ours" or "error" not in outcome
            self.record["runs"].append({"side": side, "name": model, "variant": str(variant), "batch": batch,
                                        "seconds": round(time.monotonic() - start, 1), **outcome})
            self.save()
        for runs in sides.values():
            runs.close()
        return right


# ---- the table -----------------------------------------------------------------------------


def rows_of(runs):
    """{(model, variant, batch, test, size): {side: result}}; size is the tokens of a prompt or the position of a step."""
    rows = {}
    for run in runs:
        for result in run.get("results", []):
            key = (run["name"], run["variant"], run["batch"], result["test"],
                   result["position" if result["test"] == "step" else "tokens"])
            rows.setdefault(key, {})[result.get("side", "ours")] = result
    return rows


def title():
    return (f"{'us/token (sd)':{NAME_WIDTH}}{'ours':>18}{'% copy':>8}{'MBU %':>7}{'mJ/token':>10}" +
            "".join(f"{side:>10}" for side in PYTORCH) + f"{'ratio':>8}{'aim':>7}")


def line_of(key, sides):
    model, variant, batch, test, size = key
    def cell(value, form, width):
        return format("-" if value is None else format(value, form), f">{width}")
    ours = sides.get("ours", {})
    times = {side: sides.get(side, {}).get("us_per_token") for side in ("ours", *PYTORCH)}
    theirs = [times[side] for side in PYTORCH if times[side]]
    joules = ours.get("joules_per_token")
    name = f"{model} {variant}, batch {batch}, {'position' if test == 'step' else 'prompt'} {size}"
    return (f"{name:{NAME_WIDTH}}" + cell(f"{times['ours']:.1f} ({ours['us_per_token_sd']:.1f})" if ours else None, "", 18) +
            cell(ours.get("percent_of_copy"), ".1f", 8) + cell(ours.get("mbu_percent"), ".1f", 7) +
            cell(joules and 1e3 * joules, ".2f", 10) +
            "".join(cell(times[side], ".1f", 10) for side in PYTORCH) +
            cell(min(theirs) / times["ours"] if theirs and ours else None, ".2f", 8) +
            cell(AIMS.get((model, variant, batch)) if test == "step" else None, "d", 7))


def table(runs):
    """All lines."""
    rows = rows_of(runs)
    return [title(), *(line_of(key, sides) for key, sides in rows.items()), *int8_gains.table(rows), *problems(runs)]


def problems(runs):
    for run in runs:
        name = f"{run['side']}, {run['name']} {run['variant']}, batch {run['batch']}"
        if "error" in run:
            yield f"{'FAILED' if run['side'] == 'ours' else 'failed'} {name}: {run['error']}"
        if "not_run" in run:
            yield f"not run: {name}: {run['not_run']}"
        yield from (f"failed {name}, {side}: {reason}" for side, reason in run.get("errors", {}).items())


def report(runs):
    """The lines for report.txt: gains of INT8, everything at batch size 1, otherwise the longest prompt and one long
    context."""
    rows = rows_of(runs)
    yield from int8_gains.report(rows)
    last_prompt = max((key[4] for key in rows if key[3] == "prompt"), default=None)
    positions = sorted({key[4] for key in rows if key[3] == "step"})
    shown = (last_prompt, positions[-2:-1][0] if len(positions) > 1 else None)
    yield title()
    for key, sides in rows.items():
        if key[2] == 1 or key[4] == shown[key[3] == "step"]:
            yield line_of(key, sides)
    yield from problems(runs)
    copies = [run["copy_gb_per_second"] for run in runs if "copy_gb_per_second" in run]
    if copies:
        yield f"copy in our processes: {min(copies):.0f} to {max(copies):.0f} GB/s"
    versions = sorted({run["torch"] for run in runs if "torch" in run})
    yield f"PyTorch: {', '.join(versions) or 'not run'}"


def parse_options():
    numbers = lambda text: [int(number) for number in text.split(",")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path, metavar="FILE.json", help="all results")
    parser.add_argument("--table", required=True, type=Path, metavar="FILE.txt", help="the table")
    parser.add_argument("--summary", action="store_true", help="only print the report of --out")
    parser.add_argument("--program", help="the program infer_gpt2")
    parser.add_argument("--models", type=lambda text: dict(pair.split("=", 1) for pair in text.split(",")),
                        metavar="NAME=DIR,...", help="models and their Hugging Face directories")
    parser.add_argument("--pytorch", default="", metavar="FILE.py", help="infer_pytorch.py [PyTorch is not run]")
    parser.add_argument("--device", default="cuda", help="--device of infer_gpt2 [cuda]")
    parser.add_argument("--torch-device", default="cuda", help="--device of infer_pytorch.py [cuda]")
    parser.add_argument("--backend", default="inductor", help="--backend of infer_pytorch.py [inductor]")
    parser.add_argument("--variants", default="bf16,fp32", type=variants_of, help="such as bf16+w8a8+kv8 [bf16,fp32]")
    parser.add_argument("--batches", default=[1, 8, 64], type=numbers, help="[1,8,64]")
    parser.add_argument("--prompts", default="16,512", help="lengths of prompts [16,512]")
    parser.add_argument("--positions", default="1,128,512,1023", help="of the cache [1,128,512,1023]")
    parser.add_argument("--repetitions", type=int, default=5, help="of each measurement; at most 2 from batch 64 on [5]")
    parser.add_argument("--seconds", type=float, default=300, help="time limit in seconds [300]")
    options = parser.parse_args()
    if not options.summary and not (options.program and options.models):
        parser.error("--program and --models are needed")
    return options


def main():
    options, right = parse_options(), True
    if options.summary:
        runs = json.loads(options.out.read_text())["runs"]
    else:
        comparison = Comparison(options)
        right, runs = comparison.run(), comparison.record["runs"]
    for line in report(runs):
        print(f"result: {line}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    import standard_output
    standard_output.run(main)
