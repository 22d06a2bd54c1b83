#!/usr/bin/env python3
"""Replaces train_gpt2 and infer_gpt2 in tests of scripts/finetune_sentiment.sh, under these names: writes the files and
the log lines of `--task classify` without training. A hash of a text and the quality of the weights, which is in the
file `quality` of a checkpoint, decide whether a prediction is right. The last weights of a run always have the quality
0.5, so a script that tests them instead of the best ones is noticed.

PLANT names faults, separated by commas: head (the head does not learn), split (another split), rank (--tp 2 predicts
one sentence differently), close (the same, and the sentence has equal probabilities), good (scratch is as good as all),
no-test (the log has no test record).
"""
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, os.environ["SCRIPTS"])
from finetune_sentiment.data import LABELS, read_parts, split_hash  # noqa: E402
from finetune_sentiment.metrics import classification, confusion_matrix  # noqa: E402

PLANTS = os.environ.get("PLANT", "").split(",")
QUALITY = {"scratch": 0.55, "all": 0.75, "lora": 0.70}
BEST_RATES = {"scratch": "0.001", "all": "0.0003", "lora": "0.003"}


def flag(name, default=None):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def is_right(text, quality):
    return split_hash(text) % 1009 / 1009 < quality


def predict(texts, labels, quality):
    return [label if is_right(text, quality) else 1 - label for text, label in zip(texts, labels)]


def odd_text(texts):
    """The text that the planted fault of ranks changes."""
    return min(texts, key=split_hash)


def record(part, name, quality, step):
    texts, labels = part.texts, part.labels
    if "split" in PLANTS:
        texts, labels = texts[1:], labels[1:]
    predictions = predict(texts, labels, quality)
    if flag("--tp") == "2" and {"rank", "close"} & set(PLANTS):
        predictions[texts.index(odd_text(texts))] ^= 1
    values = classification(confusion_matrix(labels, predictions, len(LABELS)))
    values["classes"] = [{"label": label} for label in LABELS]
    return {"step": step, f"{name}_loss": 1 - quality, f"{name}_accuracy": values["accuracy"],
            f"{name}_macro_f1": values["macro"]["f1"], f"{name}_classification": json.dumps(values)}


def method():
    if "--init-from" not in sys.argv:
        return "scratch"
    return next((name for name in ("lora", "ia3", "train-only", "freeze") if f"--{name}" in sys.argv), "all")


def run_quality():
    """The second learning rate of a grid is the best one; seeds differ a little."""
    quality = QUALITY.get("all" if "good" in PLANTS and method() == "scratch" else method(), 0.6)
    return quality - (0.0 if flag("--lr") == BEST_RATES.get(method()) else 0.1) + 0.01 * int(flag("--seed"))


def save(out, step, quality):
    folder = out / f"step_{step:06}"
    folder.mkdir(parents=True)
    (folder / "quality").write_text(repr(quality))
    (folder / "config.json").write_text(json.dumps({"n_layer": 2, "n_embd": 32, "n_positions": 64}))
    return folder


def write_log(lines):
    if flag("--log") and os.environ.get("OMPI_COMM_WORLD_RANK", "0") == "0":
        Path(flag("--log")).write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 1, "cut')


def train():
    steps = int(flag("--steps"))
    if "--task" not in sys.argv:  # the reference model
        save(Path(flag("--out")), steps, 0.5)
        return
    parts = read_parts(Path(flag("--classes").split("=")[1].split(",")[0]).parent)
    if steps == 0:
        quality = float(Path(flag("--adapter") or flag("--init-from"), "quality").read_text())
        write_log([record(parts["validation"], "val", quality, 0), record(parts["test"], "test", quality, 0)])
        return
    learning = 64 if method() != "freeze" else 0 if "head" in PLANTS else 64
    counts = f"training {learning} of 33000 parameters (1%), in 1 of 29 tensors" if method() != "all" else ""
    print(f"model: 2 layers, 2 heads, 32 channels, context 64, vocabulary 257: 33000 parameters, fp32\n{counts}",
          file=sys.stderr)
    lines, every = [{"step": 0, "run": "started", "planned_mem_mb_ranks": "12.5"}], int(flag("--eval-every"))
    best = (steps - 1) // every * every or steps
    for step in range(1, steps + 1):
        lines.append({"step": step, "loss": 0.7, "step_ms": 4.0 + (96 if step < 3 else 0), "host_mem_mb": 60.0 + step})
        if step % every == 0 or step == steps:
            lines.append(record(parts["validation"], "val", run_quality() if step == best else 0.5, step))
    if "no-test" not in PLANTS:
        lines.append(record(parts["test"], "test", run_quality() if best == steps else 0.5, steps))
    write_log(lines)
    if out := flag("--out"):
        save(Path(out), best, run_quality())
        (Path(out) / "best").symlink_to(f"step_{best:06}")


def classify():
    quality = float(Path(flag("--model"), "quality").read_text())
    parts = read_parts(Path(os.environ["SENTENCES"]))
    label_of = {text: label for part in parts.values() for text, label in zip(part.texts, part.labels)}
    texts = Path(sys.argv[sys.argv.index("classify") + 1]).read_text().splitlines()
    for text, prediction in zip(texts, predict(texts, [label_of[text] for text in texts], quality)):
        first = 0.50001 if "close" in PLANTS and text == odd_text(texts) else 0.9
        print(json.dumps({"label": LABELS[prediction], "probabilities": {LABELS[prediction]: first,
                                                                         LABELS[1 - prediction]: 1 - first}}))


def main():
    if "--help" in sys.argv:
        print("  --task language-model|classify")
    elif Path(sys.argv[0]).name == "infer_gpt2":
        classify()
    else:
        train()


if __name__ == "__main__":
    main()
