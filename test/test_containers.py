#!/usr/bin/env python3
"""Tests scripts/containers: both recipes run one script, and its steps build and train in a new Debian. Also the
variables of make that modules set.

    LLMC_LONG=1 python3 test/test_containers.py [PATTERN]

Prints and exits as test_programs.py does. The last test is skipped without LLMC_LONG, without root, and if debootstrap
or packages cannot be downloaded. Variables of the environment: CONTAINER_MIRROR, the address of Debian's packages
(default: that which apt uses here).
"""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from runner import Skip, expect, run_tests

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "scripts/containers"
INSTALL = "scripts/containers/install.sh"


def test_both_recipes_run_the_same_script_and_copy_all_it_needs(folder):
    del folder
    docker, apptainer = ((FOLDER / name).read_text() for name in ("Dockerfile", "train.def"))
    steps = re.findall(r"^RUN (.*)", docker, re.M)
    expect(len(steps) == 1 and steps[0].endswith(INSTALL), steps)
    post = re.search(r"^%post\n(.*?)\n\n", apptainer, re.M | re.S)[1]
    expect(post.splitlines()[-1].endswith(INSTALL), post)
    expect(re.search(r"^COPY \. \.$", docker, re.M), "what is copied")
    copied = set(re.search(r"^%files\n +(.*) /opt", apptainer, re.M)[1].split())
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tracked = {line.split("/")[0] for line in listed.splitlines()}
    expect(copied == {name for name in tracked if not name.startswith(".")}, copied ^ tracked)
    ignored = (FOLDER / "Dockerfile.dockerignore").read_text().split()
    expect(not tracked & set(ignored), tracked & set(ignored))
    for text in (docker, apptainer):
        expect(re.search(r"BASE=debian:12$", text, re.M) and "CUDA_ARCH" in text and "HOST_ARCH" in text, text)


def make(folder, *words, code=0):
    """The commands of the build for CUDA, which do not run, or its error."""
    done = subprocess.run(["make", "-n", "--no-print-directory", "DEPS=", *map(str, words), "build/cuda/commands"], cwd=ROOT,
                          capture_output=True, text=True, timeout=120, check=False,
                          env={key: value for key, value in os.environ.items() if not key.endswith("_HOME") and key != "CUDA"}
                          | {"MAKEFLAGS": ""})
    expect(done.returncode == code, f"{words}: exit code {done.returncode}: {done.stderr[-500:]}")
    return done.stdout + done.stderr


def test_the_folders_of_modules_and_of_wheels_are_used_or_refused(folder):
    toolkit, nccl, mpi = folder / "toolkit", folder / "nccl", folder / "mpi"
    for path in (toolkit / "bin/nvcc", toolkit / "include/cublasLt.h", nccl / "include/nccl.h", nccl / "lib/libnccl.so.2",
                 mpi / "include/mpi.h"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    homes = [f"CUDA_HOME={toolkit}", f"NCCL_HOME={nccl}", f"MPI_HOME={mpi}"]
    text = make(folder, *homes)
    for part in (f"{toolkit}/bin/nvcc ", f"-isystem {nccl}/include", f"-L{nccl}/lib", "-l:libnccl.so.2", f"-isystem {mpi}/include",
                 f"-L{mpi}/lib", "-lmpi"):
        expect(part in text, f"'{part}' is not in: {text[-2000:]}")
    (nccl / "lib/libnccl.so").write_text("")
    text = make(folder, *homes)
    expect("-lnccl" in text and ":libnccl" not in text, text[-2000:])
    for name, missing in (("CUDA_HOME", "bin/nvcc"), ("NCCL_HOME", "include/nccl.h"), ("MPI_HOME", "include/mpi.h")):
        words = [word for word in homes if not word.startswith(name)] + [f"{name}=/nowhere"]
        expect(f"{name}=/nowhere: " in make(folder, *words, code=2) and missing in make(folder, *words, code=2), name)
    for path in (nccl / "lib").iterdir():
        path.unlink()
    expect("lib/libnccl.so is missing" in make(folder, *homes, code=2), "no library of NCCL")


def mirror():
    """The first address of apt's own sources."""
    if "CONTAINER_MIRROR" in os.environ:
        return os.environ["CONTAINER_MIRROR"]
    done = subprocess.run(["apt-get", "indextargets", "--format", "$(SITE) $(REPO_URI)"], capture_output=True, text=True,
                          check=False)
    addresses = [line.split()[-1] for line in done.stdout.splitlines() if "security" not in line]
    return addresses[0].rstrip("/") if addresses else "http://deb.debian.org/debian"


def bootstrap(folder):
    """A root of Debian 12 in folder/root, made by debootstrap, which is only unpacked."""
    done = subprocess.run(["apt-get", "download", "debootstrap"], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Skip(f"debootstrap cannot be downloaded: {done.stderr.strip().splitlines()[-1:]}")
    subprocess.run(["dpkg", "-x", next(folder.glob("debootstrap*.deb")), folder / "tool"], check=True)
    root = folder / "root"
    done = subprocess.run(["sh", folder / "tool/usr/sbin/debootstrap", "--variant=minbase", "bookworm", root, mirror()],
                          env={**os.environ, "DEBOOTSTRAP_DIR": str(folder / "tool/usr/share/debootstrap")},
                          capture_output=True, text=True, timeout=900, check=False)
    if done.returncode != 0:
        raise Skip(f"debootstrap cannot fill a folder here: {(done.stdout + done.stderr).strip().splitlines()[-1:]}")
    return root


def test_the_steps_build_and_train_in_a_new_debian(folder):
    if os.environ.get("LLMC_LONG", "0") in ("", "0"):
        raise Skip("only with LLMC_LONG=1: make test-long")
    if os.geteuid() != 0 or shutil.which("apt-get") is None or shutil.which("chroot") is None:
        raise Skip("needs root, apt-get and chroot")
    root = bootstrap(folder)
    top = root / "opt/train_gpt2"
    top.mkdir(parents=True)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["cp", "--parents", "-t", top, *filter(None, listed.decode().split("\0"))], cwd=ROOT, check=True)
    for name in ("etc/resolv.conf", "etc/hosts"):  # the network of this machine, as docker gives it
        if Path("/", name).exists():
            shutil.copy(Path("/", name), root / name)
    # Only the folders that the steps use; a mount in a namespace of its own leaves nothing behind.
    inside = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" bash -c "$1"'
    steps = re.search(r"^RUN (.*)", (FOLDER / "Dockerfile").read_text(), re.M)[1]
    train = "train_gpt2 --steps 2 --layers 1 --heads 1 --channels 8 --context 8 --out"
    script = (f"set -eu; cd /opt/train_gpt2; export CUDA_ARCH= HOST_ARCH= CUDA=0; {steps}; mkdir -p /work; cd /work; "
              f"export PATH=/opt/train_gpt2:$PATH; {train} one; /opt/train_gpt2/scripts/run.sh -np 2 {train} two")
    done = subprocess.run(["unshare", "--mount", "bash", "-c", inside, root, script], capture_output=True, text=True,
                          timeout=2400, check=False, env={"PATH": os.environ["PATH"], "HOME": "/root"})
    expect(done.returncode == 0, f"exit code {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")
    for run in ("one", "two"):
        expect('"status": "finished"' in (root / f"work/{run}/status.json").read_text(), run)
    expect(not list((top / "build").rglob("*.o")), "objects are left in the image")


if __name__ == "__main__":
    sys.exit(run_tests(globals(), lambda folder: [folder], *sys.argv[1:2]))
