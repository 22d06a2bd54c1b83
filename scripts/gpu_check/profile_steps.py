#!/usr/bin/env python3
"""The steps of `gpu_check.sh profile`: short trainings and benchmarks, whose results are checked and kept.

    profile_steps.py toy --program P --device D --dtype T --steps N --work DIR
    profile_steps.py run --program P --device D --label L --out FILE.jsonl [--profile N] [--like L] -- FLAGS of train_gpt2
    profile_steps.py bench --out FILE.jsonl -- BENCHMARK FLAGS

Exit code 1 if a result is wrong; a benchmark runs to its end all the same. Lines that begin with `result: `
are for the report.
"""
import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from train_log import speed_of

WARM_UP = 4  # steps that are not timed: libraries allocate memory and choose algorithms in them
# The loss of the untrained toy model depends only on the seed; half precision changes it by less than the
# tolerance. A GPU must reproduce the CPU's value.
TOY_FIRST_LOSS, TOY_TOLERANCE = 5.3584, 2e-3
# Another number of logits rows changes the order of sums. The mean of thousands of first losses hides that; after
# some updates of half-precision weights the difference has grown.
SAME_FIRST_LOSS, SAME_LATER_LOSSES = 1e-4, 0.02  # nats


class WrongResult(Exception):
    pass


def print_result(text):
    print(f"result: {text}", flush=True)


def read_lines(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def append_lines(path, records):
    with open(path, "a") as out:
        out.write("".join(json.dumps(record) + "\n" for record in records))


def train(program, *flags):
    """(exit code, stderr). Lines are printed as they arrive, so that the log of a run that hangs has its last one."""
    lines = []
    with subprocess.Popen([program, *map(str, flags)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            print(line, end="", flush=True)
            lines.append(line)
    return process.returncode, "".join(lines)


def last_line(messages):
    return (messages.strip().splitlines() or ["no message"])[-1][:300]


def check_learning(losses, steps):
    """Throws WrongResult unless the run has all its steps and its loss fell."""
    if len(losses) != steps or not all(isinstance(loss, float) and math.isfinite(loss) for loss in losses):
        raise WrongResult(f"{len(losses)} of {steps} steps, losses {losses}")
    if not losses[-1] < losses[0]:
        raise WrongResult(f"the loss did not fall: {losses[0]:.4f} -> {losses[-1]:.4f}")


# ---- the toy language ----------------------------------------------------------------------


def toy_run(o, folder):
    log = folder / "log.jsonl"
    code, messages = train(o.program, "--device", o.device, "--dtype", o.dtype, "--steps", o.steps, "--eval-every", 0,
                           "--sample-every", 0, "--out", folder / "out", "--log", log)
    if code != 0:
        raise WrongResult(f"exit code {code}: {last_line(messages)}")
    return [(line["loss"], line["grad_norm"]) for line in read_lines(log) if "loss" in line]


def toy(o):
    """Two runs that must learn, start at the known first loss, and agree in every bit of losses, weights and
    moments."""
    folders = [Path(o.work) / f"toy-{o.dtype}-{i}" for i in (1, 2)]
    runs = []
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        runs.append(toy_run(o, folder))
    losses = [loss for loss, _ in runs[0]]
    check_learning(losses, o.steps)
    if abs(losses[0] - TOY_FIRST_LOSS) > TOY_TOLERANCE:
        raise WrongResult(f"the first loss is {losses[0]:.4f}, on a CPU it is {TOY_FIRST_LOSS}")
    if runs[0] != runs[1]:
        step = next(i for i, (a, b) in enumerate(zip(*runs)) if a != b)
        raise WrongResult(f"two runs differ from step {step + 1} on: loss and norm {runs[0][step]}, {runs[1][step]}")
    for name in ("model.safetensors", "optimizer.safetensors"):
        files = [folder / "out" / f"step_{o.steps:06d}" / name for folder in folders]
        if files[0].read_bytes() != files[1].read_bytes():
            raise WrongResult(f"two runs with the same losses differ in {name}")
    print_result(f"{o.dtype}: loss {losses[0]:.4f} -> {losses[-1]:.4f} in {o.steps} steps; two runs are equal to the bit")


# ---- GPT-2 ---------------------------------------------------------------------------------


def memory_in_use(lines):
    """MiB, by NVML; None if the log has no such key."""
    return max((line["gpu_mem_mb"] for line in lines if "gpu_mem_mb" in line), default=None)


def record_of(o, messages, lines):
    speed = speed_of(lines[WARM_UP:], messages)
    mfu = speed["tok_per_s"] * speed.pop("mfu_per_tok_per_s")
    return {"type": "run", "label": o.label, "flags": o.flags, "profiled": o.profile > 0, **speed, "mfu": mfu,
            "mfu_full": mfu * lines[-1]["mfu_full"] / lines[-1]["mfu"], "losses": [line["loss"] for line in lines],
            "memory_used_mib": memory_in_use(lines)}


def check_same_losses(out, label, losses):
    other = next((r for r in read_lines(out) if r["type"] == "run" and r["label"] == label and "losses" in r), None)
    if other is None:
        return f", not compared: the measurements have no run {label}"
    gaps = [abs(a - b) for a, b in zip(losses, other["losses"])]
    if not (gaps[0] <= SAME_FIRST_LOSS and max(gaps) <= SAME_LATER_LOSSES):
        raise WrongResult(f"losses differ from those of {label} by {gaps[0]:.1e} at first and {max(gaps):.1e} at most; "
                          f"{SAME_FIRST_LOSS} and {SAME_LATER_LOSSES} are allowed")
    return f", losses within {max(gaps):.1e} of {label}'s"


def run(o):
    """One training. With --profile it reports the profile, without it the speed."""
    with tempfile.TemporaryDirectory() as folder:
        log, table = Path(folder) / "log.jsonl", Path(folder) / "profile.jsonl"
        profile = ["--profile", o.profile, "--profile-out", table] if o.profile > 0 else []
        code, messages = train(o.program, "--device", o.device, "--eval-every", 0, "--sample-every", 0, "--log", log, *profile,
                               *o.flags)
        if code == 1 and "of device memory" in messages:
            append_lines(o.out, [{"type": "run", "label": o.label, "error": last_line(messages)}])
            return print_result(f"{o.label}: not run: it does not fit into the device's memory")
        if code != 0:
            raise WrongResult(f"{o.label}: exit code {code}: {last_line(messages)}")
        lines = [line for line in read_lines(log) if "loss" in line]
        rows = read_lines(table) if profile else []
    check_learning([line["loss"] for line in lines], int(o.flags[o.flags.index("--steps") + 1]))
    record = record_of(o, messages, lines)
    same = check_same_losses(o.out, o.like, record["losses"]) if o.like else ""
    append_lines(o.out, [record] + [{"type": "profile", "label": o.label, **row} for row in rows])
    used = record["memory_used_mib"]
    memory = f"memory {record['memory_planned']} planned, " + (f"{used:.0f} MiB in use" if used else "in use unknown")
    speed = (f"profile of {rows[0]['steps']} steps, {rows[0]['ms_per_step']:.2f} ms each" if rows else
             f"{record['tok_per_s']:.0f} tok/s, {record['step_ms']:.2f} ms per step, MFU {100 * record['mfu']:.1f}% "
             f"({100 * record['mfu_full']:.1f}% full)")
    print_result(f"{o.label}: {speed}, {memory}{same}")


# ---- benchmarks ----------------------------------------------------------------------------


def bench(o):
    """Keeps a benchmark's lines as they arrive; none may be wrong. With --planted at least one must be wrong."""
    if not o.planted:
        return check_bench(o)
    try:
        check_bench(o)
    except WrongResult as wrong:
        return print_result(f"a planted wrong result stops a benchmark: {wrong}")
    raise WrongResult("the benchmark did not report its planted faults")


def check_bench(o):
    counts, wrong = {"ok": 0, "skipped": 0}, []
    with subprocess.Popen(o.flags, stdout=subprocess.PIPE, text=True) as process, open(o.out, "a") as out:
        for text in process.stdout:
            out.write(text)
            out.flush()
            record = json.loads(text)
            if record["type"] == "result" and not record["ok"]:
                wrong.append(f"{record['op']}/{record['variant']} {record['shape']} {record['dtype']}: "
                             + "; ".join(record["faults"]))
            counts["ok"] += record["type"] == "result"
            counts["skipped"] += record["type"] == "skipped"
    name = Path(o.flags[0]).name
    if wrong:
        raise WrongResult(f"{name}, {len(wrong)} lines: " + " | ".join(wrong[:8]))
    if process.returncode != 0:
        raise WrongResult(f"{name}: exit code {process.returncode}")
    if counts["ok"] == 0:
        raise WrongResult(f"{name}: no line was checked")
    print_result(f"{name}: {counts['ok']} lines OK, {counts['skipped']} not run")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    toys, runs, benches = (commands.add_parser(step.__name__) for step in (toy, run, bench))
    for step, sub in ((toy, toys), (run, runs), (bench, benches)):
        sub.set_defaults(function=step)
    for sub in (toys, runs):
        sub.add_argument("--program", required=True, metavar="P", help="the program train_gpt2")
        sub.add_argument("--device", default="cuda", metavar="D", help="its --device [cuda]")
    for sub in (runs, benches):
        sub.add_argument("--out", required=True, metavar="FILE.jsonl", help="append the records to this file")
        sub.add_argument("flags", nargs="+", metavar="FLAGS",
                         help="flags of train_gpt2, or a benchmark with its flags; after --")
    toys.add_argument("--dtype", required=True, metavar="T", help="its --dtype")
    toys.add_argument("--steps", type=int, default=50, metavar="N", help="steps of each run [50]")
    toys.add_argument("--work", required=True, metavar="DIR", help="folder for checkpoints and logs")
    runs.add_argument("--label", required=True, metavar="L", help="name of the run in the records")
    runs.add_argument("--profile", type=int, default=0, metavar="N",
                      help="number of steps to profile; 0 measures the speed [0]")
    runs.add_argument("--like", metavar="L",
                      help="label of an earlier run, whose losses must agree with those of this run")
    benches.add_argument("--planted", action="store_true",
                         help="expect wrong results, which the benchmark has on purpose")
    return parser.parse_args()


def main():
    o = parse_arguments()
    try:
        o.function(o)
        return 0
    except WrongResult as wrong:
        print_result(f"FAILED: {wrong}")
        return 1


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    import standard_output
    standard_output.run(main)
