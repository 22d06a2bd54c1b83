#!/usr/bin/env python3
"""Times one training step of GPT-2 on the CPU: ours and PyTorch's, in turns, and prints their ratio.

    PYTHON=python3 python3 dev/peers/host_step.py [--model d12] [--batch-size 4] [--seq-len 64] [--threads N]
        [--dtypes fp32,bf16] [--rounds 5] [--steps 6] [--train-gpt2 build/host/train_gpt2] [--before FILE]
        [--json FILE]

PYTHON names an interpreter with PyTorch and NumPy; without them, only ours is timed. The sides are train_gpt2
in each dtype, and PyTorch in fp32 and in both recipes of bf16 (train_pytorch.py), each eager and with
torch.compile. In every round each side has one turn, and every second round is in reverse order. The time of a
turn is the median of its steps after the warm-up. A ratio is our time divided by that of the fastest PyTorch
side of the same dtype, in the same round; below 1, ours is faster. --before names an older build of train_gpt2, which
is timed in the same rounds and compared in the same way.

All sides have the same sizes, batches, learning rate, AdamW and clipping. Our weights are initialised by
train_gpt2 and PyTorch's by make_weights.py, with equal standard deviations, so the losses are close but not
equal. test/test_peers.py shows that they are equal from equal weights. As in train_pytorch.py --serve, the
loss of PyTorch includes the rows that pad the vocabulary, which is faster.

Each PyTorch side has a process that waits between its turns; its OpenMP threads sleep, not spin. If memory is
short, the process ends after its turn and starts again for the next one.
"""
import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from side_process import PYTHON, SideFailed, SideProcess, last_line, quiet_threads, serve
from token_files import replace_file

PEERS = Path(__file__).resolve().parent
PROGRAM = PEERS.parent.parent / "build/host/train_gpt2"
CORES = len(os.sched_getaffinity(0))
CONTEXT, MIB, LEARNING_RATE, SEED = 1024, 2 ** 20, 1e-4, 1337
MODELS = {"d12": (12, 12, 768), "d24": (24, 16, 1024), "d36": (36, 20, 1280), "d48": (48, 25, 1600),
          "tiny": (2, 2, 32)}  # layers, heads, channels
# The vocabulary is a multiple of 128, so that PyTorch does not pad it.
DRY = {"model": "tiny", "batch_size": 2, "seq_len": 16, "vocabulary": 256, "rounds": 1, "steps": 3, "warmup": 1,
       "compile": 0}
CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16")


# ---- ours ----------------------------------------------------------------------------------


class OurSide:
    """train_gpt2 in one dtype, in a new process for every turn. `flags` are added, and `key` of the log is timed."""

    def __init__(self, options, dtype, flags=(), key="step_ms", program=None):
        self.options, self.dtype, self.flags, self.key = options, dtype, flags, key
        self.program = program or options.train_gpt2
        self.name, self.notes = f"{'before' if program else 'ours'} {dtype}", []

    def command(self, log):
        o = self.options
        layers, heads, channels = MODELS[o.model]
        flags = {"device": "host", "dtype": self.dtype, "train": o.train, "val": o.train, "layers": layers,
                 "heads": heads, "channels": channels, "context": CONTEXT, "vocab-size": o.vocabulary,
                 "batch-size": o.batch_size, "seq-len": o.seq_len, "grad-accum": 1, "steps": o.warmup + o.steps,
                 "lr": LEARNING_RATE, "warmup": 0, "schedule": "constant", "seed": SEED, "eval-every": 0,
                 "sample-every": 0, "peak-tflops": 1, "log": log}  # a given peak is not measured
        return [str(self.program), *(word for flag, value in flags.items() for word in (f"--{flag}", str(value))),
                *self.flags]

    def turn(self):
        environment = {**os.environ, "LLMC_HOST_THREADS": str(self.options.threads), "OMP_NUM_THREADS": "1"}
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as messages:
            log = Path(folder) / "log.jsonl"
            process = subprocess.Popen(self.command(log), stdout=messages, stderr=messages, env=environment)
            status, usage = os.wait4(process.pid, 0)[1:]
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode != 0:
                messages.seek(0)
                raise SideFailed(last_line(messages.read(), f"exit code {process.returncode}"))
            steps = [line for line in map(json.loads, log.read_text().splitlines()) if "loss" in line]
        return {"step_ms": [line[self.key] for line in steps[self.options.warmup:]], "loss": steps[-1]["loss"],
                "peak_bytes": 1024 * usage.ru_maxrss}

    def close(self):
        pass


# ---- PyTorch -------------------------------------------------------------------------------


class PyTorchSide:
    """A variant of train_pytorch.py, in a process that responds to one request per turn."""

    def __init__(self, options, recipe, compiled):
        self.options, self.recipe, self.compiled = options, recipe, compiled
        self.dtype = "fp32" if recipe == "fp32" else "bf16"
        parts = [self.dtype, *([recipe] if recipe != "fp32" else []), "compiled" if compiled else "eager"]
        self.name, self.notes = "PyTorch " + " ".join(parts), []
        self.process = None

    def start(self):
        o = self.options
        settings = {"init_from": str(o.weights), "train": str(o.train), "dtype": self.dtype, "recipe": self.recipe,
                    "compile": self.compiled, "device": "cpu", "threads": o.threads, "batch_size": o.batch_size,
                    "seq_len": o.seq_len, "warmup": o.warmup, "steps": o.steps, "lr": LEARNING_RATE, "seed": SEED,
                    "weight_decay": 0.1, "grad_clip": 1.0}
        # The compiler of torch.compile must not keep processes, which would slow the other sides down.
        environment = {**quiet_threads(o.threads), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        environment.pop("GOMP_SPINCOUNT", None)
        self.process = SideProcess(__file__, settings, environment)

    def turn(self):
        if self.process is None:
            self.start()
        answer = self.process.turn()
        self.notes = answer["notes"]
        return answer

    def close(self):
        if self.process is not None:
            self.process.close()
            self.process = None


def make_training(settings):
    """The training of train_pytorch.py with the fastest AdamW on a CPU, and notes about it."""
    import torch

    from train_pytorch import Training
    torch.set_num_threads(settings.threads)
    training = Training(settings, settings.recipe, "auto", exact_loss=False)
    groups = [{key: group[key] for key in ("params", "weight_decay")} for group in training.optimizer.param_groups]
    keywords = {"lr": settings.lr, "betas": (0.9, 0.95), "eps": 1e-8}
    try:
        training.optimizer = torch.optim.AdamW(groups, fused=True, **keywords)
        return training, []
    except (RuntimeError, TypeError):
        training.optimizer = torch.optim.AdamW(groups, foreach=True, **keywords)
        return training, ["this PyTorch has no fused AdamW for CPUs; foreach is used"]


def timed_turn(training, windows, settings, first):
    """Runs the steps of one turn; `first` is the number of its first step."""
    times = []
    for step in range(first, first + settings.warmup + settings.steps):
        start = time.perf_counter()
        batch = training.stage(windows.batch(step * settings.batch_size, settings.batch_size))
        loss = float(training.step([batch], settings.lr)[0])
        times.append(1e3 * (time.perf_counter() - start))
    return {"step_ms": times[settings.warmup:], "loss": loss,
            "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


def serve_training(settings):
    """The process of a PyTorch side."""
    training = windows = notes = None
    first = 0

    def turn():
        nonlocal training, windows, notes, first
        if training is None:
            training, notes = make_training(settings)
            from train_pytorch import ShuffledWindows, read_tokens
            windows = ShuffledWindows(read_tokens(settings.train), settings.seq_len, settings.seed)
        answer = {**timed_turn(training, windows, settings, first), "notes": notes}
        first += settings.warmup + settings.steps
        return answer

    serve(turn)


# ---- machine and inputs --------------------------------------------------------------------


def pytorch_version():
    """The version of PyTorch for PYTHON, or None if PyTorch or NumPy cannot be imported."""
    try:
        done = subprocess.run([PYTHON, "-c", "import numpy, torch; print(torch.__version__)"], capture_output=True,
                              text=True)
    except OSError:
        return None
    return done.stdout.split()[-1] if done.returncode == 0 else None


def describe_machine(options, version):
    fields = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    flags = fields.get("flags", "").split()
    return {"cpu": fields.get("model name", "unknown CPU"), "threads": options.threads, "cores": CORES,
            "flags": [flag for flag in CPU_FLAGS if flag in flags], "torch": version}


def available_bytes():
    """Memory that new processes can use without swapping; unlimited if the system does not report it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    return float("inf")


def run_peer(interpreter, script, *arguments):
    done = subprocess.run([interpreter, str(PEERS / script), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"host_step.py: {script}: {last_line(done.stderr, f'exit code {done.returncode}')}")


def make_inputs(options, folder, with_weights):
    """Writes the tokens of one turn, unless --train names a file, and the weights that PyTorch reads."""
    if options.train is None:
        windows = options.batch_size * (options.warmup + options.steps)
        run_peer(sys.executable, "make_data.py", "--out", folder, "--tokens", windows * options.seq_len + 1,
                 "--vocabulary", options.vocabulary)
        options.train = folder / "tokens.bin"
    options.weights = folder / "gpt2"
    if with_weights:
        layers, heads, channels = MODELS[options.model]
        run_peer(PYTHON, "make_weights.py", "--out", options.weights, "--layers", layers, "--heads", heads,
                 "--channels", channels, "--context", CONTEXT, "--vocabulary", options.vocabulary)


# ---- rounds and report ---------------------------------------------------------------------


class Comparison:
    def __init__(self, options, sides):
        self.options, self.sides = options, sides
        self.turns = {side.name: [] for side in sides}
        self.unavailable = {}

    def turn(self, side):
        """One turn of a side. A PyTorch side that fails is left out from now on."""
        try:
            turn = side.turn()
        except SideFailed as reason:
            if isinstance(side, OurSide):
                raise SystemExit(f"host_step.py: {side.name}: {reason}")
            self.unavailable[side.name] = str(reason)
            side.close()
            return
        turn["ms"] = statistics.median(turn["step_ms"])
        self.turns[side.name].append(turn)
        print(f"round {len(self.turns[side.name])}/{self.options.rounds}: {side.name}: {turn['ms']:.1f} ms",
              file=sys.stderr, flush=True)
        # The next side may need as much memory as the largest one so far; the factor 2 is a margin.
        if available_bytes() < 2 * max(t["peak_bytes"] for turns in self.turns.values() for t in turns):
            side.close()

    def run(self):
        for index in range(self.options.rounds):
            for side in self.sides[::-1 if index % 2 else 1]:
                if side.name not in self.unavailable:
                    self.turn(side)
        self.sides = [side for side in self.sides if side.name not in self.unavailable]

    def summary_of(self, side):
        turns = self.turns[side.name]
        ms = [turn["ms"] for turn in turns]
        return {"name": side.name, "ours": isinstance(side, OurSide), "dtype": side.dtype, "ms": spread_of(ms),
                "tok_per_s": 1e3 * self.options.batch_size * self.options.seq_len / statistics.median(ms),
                "peak_mib": max(turn["peak_bytes"] for turn in turns) / MIB, "loss": turns[0]["loss"]}

    def ratio_of(self, dtype, summaries, ours="ours"):
        """Our time divided by that of the PyTorch side with the smallest median, by rounds."""
        theirs = [s for s in summaries if s["dtype"] == dtype and not s["ours"]]
        best = min(theirs, key=lambda s: s["ms"]["median"])
        rounds = zip(self.turns[f"{ours} {dtype}"], self.turns[best["name"]])
        return {"pytorch": best["name"], **spread_of([own["ms"] / other["ms"] for own, other in rounds])}

    def record(self, machine):
        o = self.options
        summaries = [self.summary_of(side) for side in self.sides]
        compared = [dtype for dtype in o.dtypes if {s["ours"] for s in summaries if s["dtype"] == dtype} == {True, False}]
        return {"machine": machine, "model": o.model, "batch_size": o.batch_size, "seq_len": o.seq_len,
                "rounds": o.rounds, "steps": o.steps, "warmup": o.warmup, "sides": summaries,
                "time_ratios": {dtype: self.ratio_of(dtype, summaries) for dtype in compared},
                "time_ratios_before": {dtype: self.ratio_of(dtype, summaries, "before") for dtype in compared
                                       if f"before {dtype}" in self.turns},
                "unavailable": self.unavailable, "notes": sorted({note for side in self.sides for note in side.notes})}


def spread_of(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "rounds": values}


def print_report(record):
    machine = record["machine"]
    print(f"machine: {machine['cpu']}, {machine['threads']} of {machine['cores']} cores used, "
          f"{' '.join(machine['flags']) or 'no AVX2'}, PyTorch {machine['torch'] or 'not installed'}")
    print(f"step: {record['model']}, {record['batch_size']} x {record['seq_len']} tokens; rounds: {record['rounds']}, "
          f"timed steps per turn: {record['steps']}")
    print(f"{'side':<30} {'ms per step':>11} {'min .. max':>18} {'tok/s':>8} {'peak MiB':>9} {'loss':>7}")
    for side in record["sides"]:
        ms = side["ms"]
        print(f"{side['name']:<30} {ms['median']:>11.1f} {ms['min']:>7.0f} .. {ms['max']:>7.0f} "
              f"{side['tok_per_s']:>8.0f} {side['peak_mib']:>9.0f} {side['loss']:>7.3f}")
    for name, ratios in (("ours", record["time_ratios"]), ("before", record["time_ratios_before"])):
        for dtype, ratio in ratios.items():
            print(f"result: {dtype}: time ratio {name} / {ratio['pytorch']}: median {ratio['median']:.3f}, "
                  f"{ratio['min']:.3f} to {ratio['max']:.3f} over the rounds; below 1, {name} is faster")
    for name, reason in record["unavailable"].items():
        print(f"not available: {name}: {reason}")
    for note in record["notes"]:
        print(f"note: {note}")


# ---- options -------------------------------------------------------------------------------


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     allow_abbrev=False)
    parser.add_argument("--train-gpt2", type=Path, default=PROGRAM, metavar="FILE",
                        help="our program [build/host/train_gpt2]")
    parser.add_argument("--before", type=Path, metavar="FILE", help="also time this older build of our program")
    parser.add_argument("--train", type=Path, metavar="FILE.bin", help="token file [tokens of make_data.py]")
    parser.add_argument("--model", choices=MODELS, default="d12", help="sizes of the model [d12, which is GPT-2 124M]")
    numbers = (("batch-size", 4, None, "sequences per step"), ("seq-len", 64, CONTEXT, "tokens per sequence"),
               ("vocabulary", 50257, 2 ** 16, "number of token ids"), ("rounds", 5, None, "turns of each side"),
               ("steps", 6, None, "timed steps per turn"), ("warmup", 2, None, "steps before them that are not timed"),
               ("threads", CORES, CORES, "threads of each side"))
    for flag, value, _, text in numbers:
        parser.add_argument(f"--{flag}", type=int, default=value, metavar="N", help=f"{text} [{value}]")
    parser.add_argument("--dtypes", type=lambda text: text.split(","), default="fp32,bf16",
                        help="dtypes to compare, separated by commas [fp32,bf16]")
    parser.add_argument("--compile", type=int, choices=(0, 1), default=1, help="1 also times torch.compile [1]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file")
    parser.add_argument("--dry", action="store_true", help="change the defaults to a check that takes seconds")
    if "--dry" in sys.argv[1:]:
        parser.set_defaults(**DRY)
    options = parser.parse_args()
    for flag, _, largest, _ in numbers:
        value = getattr(options, flag.replace("-", "_"))
        if value < 1 or (largest and value > largest):
            parser.error(f"--{flag} {value}; allowed: 1 {f'to {largest}' if largest else 'or more'}")
    if not set(options.dtypes) <= {"fp32", "bf16"}:
        parser.error(f"--dtypes {','.join(options.dtypes)}; allowed: fp32, bf16 or both, separated by commas")
    options.dtypes = sorted(set(options.dtypes), reverse=True)  # fp32 first
    for flag, path in (("train", options.train), ("before", options.before), ("train-gpt2", options.train_gpt2)):
        if path and not path.is_file():
            hint = "; `make build/host/train_gpt2` builds it" if path == PROGRAM else ""
            parser.error(f"--{flag} {path}: no such file{hint}")
    options.train_gpt2 = options.train_gpt2.resolve()
    options.before = options.before and options.before.resolve()
    return options


def main():
    if sys.argv[1:2] == ["--serve"]:
        return serve_training(argparse.Namespace(**json.loads(sys.argv[2])))
    options = read_options()
    version = pytorch_version()
    sides = [OurSide(options, dtype) for dtype in options.dtypes]
    if options.before:
        sides += [OurSide(options, dtype, program=options.before) for dtype in options.dtypes]
    if version:
        theirs = [PyTorchSide(options, recipe, compiled) for recipe in ("fp32", "autocast", "masters")
                  for compiled in range(options.compile + 1)]
        sides += [side for side in theirs if side.dtype in options.dtypes]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        make_inputs(options, Path(folder), with_weights=bool(version))
        for side in sides:
            stack.callback(side.close)
        comparison = Comparison(options, sides)
        comparison.run()
    record = comparison.record(describe_machine(options, version))
    if not version:
        record["notes"].append(f"{PYTHON} cannot import PyTorch and NumPy, so only ours was timed; install them with "
                               "`python3 -m pip install torch numpy`, or set PYTHON to an interpreter that has them")
    print_report(record)
    if options.json:
        replace_file(options.json, lambda file: file.write(json.dumps(record, indent=1).encode() + b"\n"))


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "scripts"))
    import standard_output
    standard_output.run(main)
