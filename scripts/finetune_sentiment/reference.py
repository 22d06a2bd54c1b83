"""The model that fine-tuning starts from."""
import os
import subprocess
import time
from pathlib import Path

from finetune_sentiment.data import label_files
from finetune_sentiment.methods import ModelError, read_model
from measured_programs import ROOT, execute, note, program


def model_in(folder):
    """The model in a folder: itself, or the newest checkpoint of a finished run of reference_model.sh; else None."""
    if (folder / "config.json").exists():
        return folder
    if (folder / "eval.jsonl").exists():  # written when the training has ended
        newest = max((folder / "checkpoints").glob("step_*/config.json"), default=None)
        return newest and newest.parent
    return None


def find_reference(folder):
    """(Model, a sentence about it). `folder`: from --reference, or None. Trains the reference model if it is absent."""
    if folder is None and os.environ.get("GPT2_DIR"):
        path = Path(os.environ["GPT2_DIR"]).resolve()
        return read_model(path), f"GPT-2's weights in {path} (GPT2_DIR)"
    folder = Path(folder or ROOT / "runs/reference").resolve()
    if path := model_in(folder):
        return read_model(path), f"the model in {path}"
    script = ROOT / "dev/experiments/reference_model.sh"
    note(f"reference model: {folder} has none; {script.name} trains it, which does not count in the budget")
    start = time.monotonic()
    done = subprocess.run([str(script), "--out", str(folder)], stdin=subprocess.DEVNULL)
    path = model_in(folder)
    # Exit code 1 also means that its perplexity missed the goal, which it prints.
    if path is None:
        raise ModelError(f"{script.name} ended with code {done.returncode} and no model in {folder}; run this again to "
                         "resume, or name a model: --reference DIR")
    minutes = (time.monotonic() - start) / 60
    return read_model(path), f"the model in {path}, trained now in {minutes:.1f} minutes outside the budget"


def tiny_reference(folder, data):
    """A random model of 2 layers, for --smoke."""
    if not (folder / "step_000001/config.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        execute([program("train_gpt2"), "--train", next(iter(label_files(data).values())), "--no-cache", "--layers", 2,
                 "--heads", 2, "--channels", 32, "--context", 64, "--batch-size", 4, "--grad-accum", 1, "--steps", 1,
                 "--eval-every", 0, "--sample-every", 0, "--peak-tflops", 1, "--out", folder], folder / "output.txt")
    return read_model(folder / "step_000001"), "a tiny random model (--smoke)"
