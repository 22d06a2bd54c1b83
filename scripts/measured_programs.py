"""Starts programs, measures what they need, and reads and writes small files: for the scripts that make experiments.
"""
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class RunError(Exception):
    """A program failed, or a log lacks a value."""


def program(name):
    """The program in the folder PROGRAMS, or the one that `make` linked, or the one for the CPU."""
    folders = [os.environ["PROGRAMS"]] if os.environ.get("PROGRAMS") else [ROOT, ROOT / "build/host"]
    for folder in folders:
        if os.access(Path(folder, name), os.X_OK):
            return Path(os.path.abspath(folder), name)
    raise RunError(f"{name} is missing in {folders[0]}; build it with: make programs")


class Usage(NamedTuple):
    wall: float            # seconds
    cpu: float             # user and system time / wall time: 2 means two full cores
    gpu: float | None      # mean utilization in percent; None without a GPU


class GpuSampler:
    """Reads the utilization of all GPUs once per second while a block runs, if nvidia-smi lists one."""

    def __enter__(self):
        self._process, self._file = None, tempfile.TemporaryFile("w+")
        if shutil.which("nvidia-smi") and subprocess.run(["nvidia-smi", "-L"], capture_output=True).returncode == 0:
            self._process = subprocess.Popen(["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits",
                                              "-l", "1"], stdout=self._file, stderr=subprocess.DEVNULL)
        return self

    def __exit__(self, *_):
        if self._process:
            self._process.terminate()
            self._process.wait()

    def mean(self):
        self._file.seek(0)
        values = [float(line) for line in self._file.read().split() if line.replace(".", "", 1).isdigit()]
        self._file.close()
        return statistics.fmean(values) if values else None


def execute(command, output, stdout=None, environment=None):
    """Runs a command, whose stderr (and stdout, without a file of its own) goes to the file `output`. Throws RunError
    with the last lines if it fails. `environment` is added to that of this program."""
    command = [str(word) for word in command]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with open(output, "w", encoding="utf-8") as errors, open(stdout or os.devnull, "w", encoding="utf-8") as results:
        with GpuSampler() as sampler:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=results if stdout else errors, stderr=errors,
                                  env={**os.environ, **(environment or {})})
            wall = time.monotonic() - start
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
    gpu = sampler.mean()
    if done.returncode != 0:
        tail = "\n".join("  | " + line for line in Path(output).read_text(errors="replace").splitlines()[-12:])
        raise RunError(f"{Path(command[0]).name} ended with code {done.returncode}; see {output}:\n{tail}")
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Usage(wall, cpu / wall, gpu)


def read_json_lines(path):
    """The objects of a file with one per line, such as a run log; lines that are cut off are left out."""
    lines = []
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            lines.append(value)
    return lines


def write_text(path, text):
    """Writes a file that is complete or absent."""
    draft = path.with_name(path.name + ".new")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)


def write_json(path, value):
    """Writes a file that is complete or absent."""
    write_text(path, json.dumps(value, indent=1) + "\n")


def note(text):
    print(text, file=sys.stderr, flush=True)
