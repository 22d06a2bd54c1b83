"""Builds the host programs of a commit and of the working tree."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "build" / "golden"


class BuildError(Exception):
    pass


def build_commit(name):
    """Returns (folder of the programs, full commit hash). Unpacks the commit into build/golden/commits and
    keeps it there, so that the next call with this commit reuses the build."""
    commit = output_of(["git", "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"], f"{name} is not a commit")
    tree = GOLDEN / "commits" / commit
    if not tree.exists():
        unfinished = tree.with_name(f"{commit}.{os.getpid()}.tmp")
        unfinished.mkdir(parents=True)
        archive = subprocess.Popen(["git", "archive", "--format=tar", commit], cwd=ROOT, stdout=subprocess.PIPE)
        unpacked = subprocess.run(["tar", "-x", "-C", unfinished], stdin=archive.stdout)
        archive.stdout.close()
        if archive.wait() != 0 or unpacked.returncode != 0:
            shutil.rmtree(unfinished)
            raise BuildError(f"cannot unpack {commit} into {unfinished}")
        unfinished.rename(tree)
    return make_programs(tree), commit


def build_working_tree():
    return make_programs(ROOT)


def make_programs(tree):
    """Runs make, which does nothing if the programs are up to date. Its output goes to stderr."""
    command = ["make", "CUDA=0", "programs"]
    if (ROOT / "deps" / "usr").is_dir():  # packages that scripts/setup.sh --prefix unpacked
        command.append(f"DEPS={ROOT / 'deps'}")
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "DEPS")}
    print(f"golden: {' '.join(command)} in {tree}", file=sys.stderr, flush=True)
    if subprocess.run(command, cwd=tree, env=environment, stdout=sys.stderr).returncode != 0:
        raise BuildError(f"the build in {tree} failed")
    return tree / "build" / "host"


def output_of(command, problem):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise BuildError(problem)
    return done.stdout.strip()
