"""The machine that runs a study: what its rows must say about it, and whether others use it."""
import hashlib
import os
import resource
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from measured_programs import ROOT, RunError, program

MEASURED, FUNCTIONAL, SIMULATED = "measured", "functional", "simulated"
MAX_LOAD = 0.3  # cores of other programs


class Machine(NamedTuple):
    device: str        # host or cuda: where the program computes
    name: str          # of the processor or the GPU
    cores: list        # numbers of the cores that this process may use
    gpus: int
    commit: str
    program: str       # hash of train_gpt2

    def evidence(self, ranks, cores):
        """Kind of evidence of a run of `ranks` ranks with `cores` cores each."""
        enough = ranks * cores <= len(self.cores) and (self.device == "host" or ranks <= self.gpus)
        return MEASURED if enough else FUNCTIONAL

    def description(self):
        if self.device == "cuda":
            return f"{self.gpus} x {self.name}" if self.gpus > 1 else self.name
        return f"{self.name}, {len(self.cores)} cores"


def processor_name():
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return os.uname().machine


def gpu_names():
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True)
    except OSError:
        return []
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else []


def file_hash(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()[:16]


def commit_name():
    """The commit of the sources, with a + if they have changed since."""
    def git(*words):
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)
    try:
        name = git("rev-parse", "--short=8", "HEAD")
        if name.returncode != 0:
            return "unknown"
        return name.stdout.strip() + ("+" if git("status", "--porcelain", "--untracked-files=no").stdout.strip() else "")
    except OSError:
        return "unknown"


def find_machine(device=None):
    """The machine for a device, host or cuda; by default that of the program."""
    path = program("train_gpt2")
    version = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
    target = "host" if "target: host" in version else "cuda"
    names = gpu_names()
    if device is None:
        device = "cuda" if target == "cuda" and names else "host"
    if device == "cuda" and (target != "cuda" or not names):
        reason = "nvidia-smi lists no GPU" if target == "cuda" else f"{path} is built for the CPU"
        raise RunError(f"--device cuda: {reason}")
    cores = sorted(os.sched_getaffinity(0))
    name = names[0] if device == "cuda" else processor_name()
    return Machine(device, name, cores, len(names) if device == "cuda" else 0, commit_name(), file_hash(path))


class LoadMeter:
    """Cores that programs other than this one and its children use while a block runs."""

    def __enter__(self):
        self._start, self._busy, self._own = time.monotonic(), busy_seconds(), own_seconds()
        return self

    def __exit__(self, *_):
        pass

    def elsewhere(self):
        """Call it after the children have ended. None if the system does not report its use."""
        busy = busy_seconds()
        if busy is None or self._busy is None:
            return None
        seconds = (busy - self._busy) - (own_seconds() - self._own)
        return max(0.0, seconds / max(1e-3, time.monotonic() - self._start))


def busy_seconds():
    """Processor seconds that the machine has spent on programs, or that its host took from it."""
    try:
        words = Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()
    except OSError:
        return None
    user, nice, system, _, _, interrupts, soft_interrupts, stolen = (int(word) for word in words[1:9])
    ticks = user + nice + system + interrupts + soft_interrupts + stolen
    return ticks / os.sysconf("SC_CLK_TCK")


def own_seconds():
    usages = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
