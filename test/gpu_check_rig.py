"""Runs phases of scripts/gpu_check.sh on a simulated machine, and loads its helpers, for tests."""
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts/gpu_check.sh"
sys.path.insert(0, str(ROOT / "scripts/gpu_check"))


def helper(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"scripts/gpu_check/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def simulated_machine(folder):
    """Copies the script to `folder`, where its programs are test/simulated_gpu.py, with a simulated
    nvidia-smi and make."""
    for name in ("scripts/gpu_check.sh", "scripts/gpu_check", "scripts/standard_output.py", "dev/predictions.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    (folder / "dev/peers").mkdir()
    for name in ("make_data.py", "make_weights.py"):
        (folder / "dev/peers" / name).write_text("")  # the simulated programs read no tokens and no weights
    shutil.copy(ROOT / "test/simulated_gpu.py", folder / "dev/peers/infer_pytorch.py")
    program(folder / "bin/nvidia-smi", "echo 'Simulated GPU, 1 MiB, 1980 MHz, 700 W, 580.1'")
    program(folder / "bin/make", f"""\
for word; do
  case $word in build/*) mkdir -p "$(dirname "$word")" && cp "{ROOT}/test/simulated_gpu.py" "$word" && chmod +x "$word";; esac
done""")


def run_phase(folder, *arguments, **environment):
    done = subprocess.run(["bash", str(folder / "scripts/gpu_check.sh"), *map(str, arguments)], capture_output=True, text=True,
                          timeout=120, env={**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "COMMIT": "abc",
                                            "PYTHON": sys.executable, **environment})
    return done.returncode, done.stdout
