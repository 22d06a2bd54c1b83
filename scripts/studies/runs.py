"""A run of a study: its settings, its folder, its start, and what its log says.

A run has a folder: command.txt, output.txt, the file that its side leaves (sides.py), of train_gpt2 also plan.txt
(--dry-run), and result.json, which is written last. The folder's name has a hash of the settings and of the programs, so a run with equal settings is found
again, also by another experiment.
"""
import hashlib
import json
import os
import re
import shutil
import statistics
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from measured_programs import ROOT, RunError, execute, note, program, read_json_lines, write_json
from studies.machine import MAX_LOAD, MEASURED, SIMULATED, LoadMeter
from studies.sides import OURS, SIDES

PIN = Path(__file__).resolve().parent / "pin.sh"
FIRST_SEED = 1
WARMUP_STEPS = 2  # at the start of every timed run: not timed


class Spec(NamedTuple):
    """A run. `flags` are words; {run} in one stands for the folder. `inputs`: paths among the flags, and the hash of
    each, which replaces the path in the settings."""
    name: str            # without the repeat
    side: str            # one of SIDES
    flags: tuple
    ranks: int = 1
    cores: int = 1       # per rank
    seed: int = FIRST_SEED
    repeat: int = 1
    steps: int = 0
    samples: int = 0     # per step, of all ranks
    inputs: tuple = ()   # (path, hash)
    timed: bool = True
    work: float = 1.0    # of a sample, relative to one of the study's model
    needs: tuple = ()    # folders of runs that must have ended before: their weights are an input

    def is_repeat(self):
        """Whether other runs show the same: it is dropped first if time is short."""
        return self.repeat > 1 or self.seed > FIRST_SEED

    def label(self):
        return f"{self.name}, repeat {self.repeat}" if self.timed else f"{self.name}, seed {self.seed}"


class Launcher:
    """Starts programs as ranks on their cores."""

    def __init__(self, machine, words=None):
        self._machine, self._words = machine, words

    def is_local(self):
        return self._words is None

    def command(self, spec, words):
        pinned = [PIN, spec.cores, ",".join(map(str, self._machine.cores)), *words]
        if self._words is None:
            return pinned if spec.ranks == 1 else [ROOT / "scripts/run.sh", "-np", spec.ranks, *pinned]
        return [*(word.replace("{ranks}", str(spec.ranks)) for word in self._words), *pinned]


def python():
    return os.environ.get("PYTHON") or "python3"


class Runner:
    """Makes runs in OUT/logs, or finds them there."""

    def __init__(self, out, machine, launcher):
        self._logs, self._machine, self._launcher = out / "logs", machine, launcher
        self._versions = {"ours": machine.program, "plan": machine.program}

    def version(self, side):
        """The hash of a side's program."""
        if side not in self._versions:
            self._versions[side] = SIDES[side].version()
        return self._versions[side]

    def settings(self, spec):
        """Everything that the result of the run depends on."""
        flags = [str(word) for word in spec.flags]
        for path, digest in spec.inputs:
            flags = [word.replace(str(path), digest) for word in flags]
        return {"side": spec.side, "flags": flags, "ranks": spec.ranks, "cores": spec.cores, "repeat": spec.repeat,
                "program": self.version(spec.side),
                "device": self._machine.device, "machine": self._machine.description()}

    def folder(self, spec):
        digest = hashlib.sha256(json.dumps(self.settings(spec), sort_keys=True).encode()).hexdigest()[:12]
        return self._logs / f"{spec.name}-{digest}"

    def evidence(self, spec):
        return SIMULATED if spec.side == "plan" else self._machine.evidence(spec.ranks, spec.cores)

    def find(self, spec):
        """The result of a finished run, or None. A run that failed is made again."""
        result = Result(self.folder(spec))
        return result if result.exists() and not result.error else None

    def can_start(self, spec):
        """Whether the runs that it needs have ended."""
        return all(Result(folder).exists() for folder in spec.needs)

    def _command(self, spec, folder):
        side = SIDES[spec.side]
        start = [program(side.program)] if side.program else [python(), side.script]
        return [str(word) for word in self._launcher.command(spec, [*start, *self._words(spec, folder)])]

    @staticmethod
    def _words(spec, folder):
        return [str(word).replace("{run}", str(folder)) for word in spec.flags]

    def _plan(self, spec, folder):
        """Writes plan.txt: of one layout, or with --plan of several."""
        dry_run = [] if "--plan" in spec.flags else ["--dry-run"]
        command = [program("train_gpt2"), *self._words(spec, folder), *dry_run]
        ranks = [] if "--ranks" in spec.flags else ["--ranks", spec.ranks]
        return execute([*command, *ranks], folder / "output.txt", folder / "plan.txt")

    def _execute(self, spec, folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if spec.side == "plan":
            return self._plan(spec, folder), None
        command = self._command(spec, folder)
        (folder / "command.txt").write_text(" ".join(command) + "\n", encoding="utf-8")
        threads = str(spec.cores)
        environment = {"LLMC_HOST_THREADS": threads, "OMP_NUM_THREADS": "1" if spec.side in OURS else threads}
        if spec.side == "ours":
            self._plan(spec, folder)
        output = folder / SIDES[spec.side].output
        with LoadMeter() as meter:
            usage = execute(command, folder / "output.txt", output if spec.side == "infer" else None, environment)
        load = meter.elsewhere() if self._launcher.is_local() else None
        if not output.exists() or (output.suffix == ".jsonl" and not any("loss" in line for line in read_json_lines(output))):
            raise RunError(f"{output} is missing or has no step")
        return usage, load

    def run(self, spec):
        """The result of the run. A peer or a plan that fails has a result with an error; another run of ours raises it."""
        folder, evidence = self.folder(spec), self.evidence(spec)
        facts = {"name": spec.name, "side": spec.side, "ranks": spec.ranks, "cores": spec.cores, "seed": spec.seed,
                 "repeat": spec.repeat, "settings": self.settings(spec), "evidence": evidence,
                 "device": self._machine.description(), "commit": self._machine.commit}
        try:
            usage, load = self._execute(spec, folder)
            if evidence == MEASURED and load is not None and load > MAX_LOAD:
                note(f"{spec.label()}: other programs used {load:.1f} cores; the run is repeated")
                usage, load = self._execute(spec, folder)
        except RunError as error:
            if spec.side in OURS and spec.side != "plan":
                raise
            write_json(folder / "result.json", {**facts, "error": last_line(folder, error)})
            return Result(folder)
        busy = evidence == MEASURED and load is not None and load > MAX_LOAD
        write_json(folder / "result.json", {**facts, "wall_s": usage.wall, "cpu": usage.cpu, "gpu": usage.gpu,
                                            "load_elsewhere": load, "busy": busy})
        return Result(folder)


def last_line(folder, error):
    """The line that a program printed about its error, or else the error. mpirun adds lines of its own, and frames."""
    try:
        lines = (folder / "output.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        lines = []
    named = [line for line in lines if re.search(r"\b\w*Error\b|\berror:|terminate called", line)]
    words = [line for line in lines if re.search(r"\w", line)]
    return (named[:1] or words[-1:] or [str(error)])[0].strip()[:300]


class Result:
    """What a run left in its folder."""

    def __init__(self, folder):
        self.folder = folder
        try:
            self.facts = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            self.facts = {}

    def exists(self):
        return bool(self.facts)

    @property
    def error(self):
        return self.facts.get("error")

    @property
    def busy(self):
        return bool(self.facts.get("busy"))

    @cached_property
    def _lines(self):
        return read_json_lines(self.folder / "log.jsonl")

    @cached_property
    def _steps(self):
        return [line for line in self._lines if "loss" in line]

    def steps(self):
        """The lines of training steps."""
        return self._steps

    def validation(self):
        """[(step, validation loss)]"""
        return self.metric("val_loss")

    def metric(self, key):
        """[(step, value)] of all lines that have a number of this name."""
        return [(line["step"], line[key]) for line in self._lines if isinstance(line.get(key), (int, float))]

    def first_line(self):
        """The line of settings, or {}."""
        return next((line for line in self._lines if "run" in line), {})

    def timed_steps(self):
        return self.steps()[WARMUP_STEPS:]

    def timed_sum(self, *keys):
        """Seconds of the timed steps; several keys, in milliseconds, are added. None if a step lacks one."""
        steps = self.timed_steps()
        if not steps or any(not isinstance(step.get(key), (int, float)) for step in steps for key in keys):
            return None
        return sum(step[key] for step in steps for key in keys) / 1000

    def timed_mean(self, *keys):
        """Seconds per timed step. None if a step lacks a key."""
        seconds = self.timed_sum(*keys)
        return None if seconds is None else seconds / len(self.timed_steps())

    def use_percent(self, key):
        """Mean over timed steps of the rank with the highest use: cpu_percent_ranks or gpu_util_ranks; None without it."""
        texts = [step[key] for step in self.timed_steps() if isinstance(step.get(key), str)]
        return statistics.fmean(max(map(float, text.split())) for text in texts) if texts else None

    def text(self, name):
        """A file of the run."""
        return (self.folder / name).read_text(encoding="utf-8", errors="replace")

    @cached_property
    def _peer(self):
        return json.loads(self.text("peer.json"))

    def peer(self):
        """What a peer without a log wrote."""
        return self._peer

    @cached_property
    def _tests(self):
        return json.loads(self.text("stdout.txt").strip().splitlines()[-1])["results"]

    def bench(self, test, batch=1):
        """The result of a test of `infer_gpt2 bench --format json`: prompt, generate or step."""
        return next(one for one in self._tests if one["test"] == test and one["batch"] == batch)

    def scores(self):
        """{(task, metric): (value, standard error or None)} of `infer_gpt2 perplexity` and `score`."""
        rows = [line.split() for line in self.text("stdout.txt").splitlines() if line and line[0] != "#"][1:]
        return {(row[0], row[1]): (float(row[2]), None if row[3] == "-" else float(row[3])) for row in rows}

    def peak_mib(self):
        """The largest memory in use of a rank, on the device."""
        for key in ("gpu_mem_mb_ranks", "host_mem_mb_ranks"):
            texts = [step[key] for step in self.steps() if isinstance(step.get(key), str)]
            if texts:
                return max(float(word) for text in texts for word in text.split())
        return None


def spread(values):
    """{"median", "min", "max", "values"} of the values that are known; None without any."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return {"median": statistics.median(known), "min": min(known), "max": max(known), "values": known}
