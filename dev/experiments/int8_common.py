"""The parts that int8_quality.py and qat_results.py share: running a program, the comparison of a model
with the float model, the copy with outliers, and Markdown tables.
"""
import array
import json
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def fail(message):
    sys.exit(f"{Path(sys.argv[0]).name}: {message}")


def run(*words):
    """Runs a program to its end. Ends this script with the program's messages if it fails."""
    command = [str(word) for word in words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        fail(f"{' '.join(command)}\n{done.stderr}")
    return done


def print_table(columns, rows):
    """Rows are lists of texts, one per column."""
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


# ---- comparison with the float model --------------------------------------------------------


def table_of(text):
    """(task, metric): (value, standard error or None)."""
    rows = [line.split() for line in text.splitlines() if line and line[0] != "#"][1:]
    return {(row[0], row[1]): (float(row[2]), None if row[3] == "-" else float(row[3])) for row in rows}


def save_predictions(program, model, text, log, limit):
    """Writes the predictions of a float model for the first `limit` windows (0: all) to the file `log`."""
    run(program, "perplexity", text, "-m", model, "--save-log", log, "--limit", limit)


class Comparison:
    """A model in an INT8 mode, set by flags, against the predictions in `log`, on the same tokens.

    change, error: change of the perplexity and its standard error over tokens, in percent
    kl: KL divergence in nats; agreement: tokens with the same most likely token, in percent
    """

    def __init__(self, program, model, text, flags, log, limit):
        done = run(program, "perplexity", text, "-m", model, *flags, "--base-log", log, "--limit", limit)
        metrics = table_of(done.stdout)
        base = metrics["comparison", "base_token_perplexity"][0]
        difference, error = metrics["comparison", "token_perplexity_difference"]
        self.messages = done.stderr
        self.perplexity = metrics["perplexity", "token_perplexity"][0]
        self.change, self.error = 100 * difference / base, 100 * error / base
        self.kl = metrics["comparison", "kl_divergence"][0]
        self.agreement = 100 * metrics["comparison", "top1_agreement"][0]

    def change_text(self):
        return f"{self.change:+.3f} ± {self.error:.3f}"


# ---- the copy with outliers ----------------------------------------------------------------


def read_tensors(path):
    data = path.read_bytes()
    length, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        if entry["dtype"] != "F32":
            fail(f"{path}: tensor {name} is {entry['dtype']}; a copy with outliers needs F32")
        begin, end = entry["data_offsets"]
        tensors[name] = (entry["shape"], array.array("f", data[8 + length + begin:8 + length + end]))
    return tensors


def write_tensors(path, tensors):
    header, offset = {}, 0
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + 4 * len(values)]}
        offset += 4 * len(values)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, values in tensors.values():
            values.tofile(file)


def outlier_copy(model, folder, factor):
    """Writes a model with the same function to the new `folder`, and returns it: 1 in 100 channels of
    each norm's output (at least one) is multiplied by `factor`, and the weights that read it are divided.
    With a power of two the division is exact.
    """
    folder.mkdir()
    for file in model.iterdir():
        if file.is_file() and file.name not in ("model.safetensors", "optimizer.safetensors", "manifest.json"):
            shutil.copy(file, folder / file.name)
    tensors = read_tensors(model / "model.safetensors")
    prefix = "transformer." if any(name.startswith("transformer.") for name in tensors) else ""
    for name in list(tensors):
        match = re.fullmatch(re.escape(prefix) + r"(h\.\d+\.)ln_([12])\.weight", name)
        if not match:
            continue
        reader = tensors[prefix + match[1] + ("attn.c_attn" if match[2] == "1" else "mlp.c_fc") + ".weight"]
        (channels, columns), weight = reader
        count = max(1, channels // 100)
        for i in range(count):
            c = (2 * i + 1) * channels // (2 * count)
            tensors[name][1][c] *= factor
            tensors[name[:-len("weight")] + "bias"][1][c] *= factor
            for j in range(c * columns, (c + 1) * columns):
                weight[j] /= factor
    write_tensors(folder / "model.safetensors", tensors)
    return folder
