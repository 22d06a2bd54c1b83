#!/usr/bin/env python3
"""Measures what each INT8 mode of a model costs, and prints a Markdown table.

    dev/experiments/int8_quality.py MODEL TEXT --calibrate FILE [--infer-gpt2 ./infer_gpt2] [--last-words TEXT]
        [--outliers FACTOR] [--limit N] [--speed]

MODEL is a float model for infer_gpt2 -m. TEXT (.txt or .bin) is held out: every mode is compared with the float model
on it, token by token. --calibrate names the text for smoothing and for the scales of w8a8-static; do not give TEXT.

--last-words makes a task like LAMBADA from a text: in each of its first 500 passages of 30 to 60 words, the model must
predict the last word. The passages are paragraphs, cut at the end of a sentence if there is one.
--outliers measures a copy of MODEL with the same function: 1 in 100 channels of each norm's output (at least one) is
multiplied by FACTOR, and the weights that read it are divided. FACTOR is a power of two, so the division is exact.
--speed adds tokens per second of one sequence: give it an otherwise idle machine.

Columns: perplexity; its change to the float model in percent with the standard error of the difference; KL
divergence; percent of the tokens for which both have the same most likely token; percent of last words; MiB of
weights; tokens per second.
"""
import argparse
import json
import re
import sys
import tempfile
from pathlib import Path

from int8_common import ROOT, Comparison, outlier_copy, print_table, run, save_predictions, table_of

sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "scripts"))
import standard_output  # noqa: E402

MODES = [("float", []), ("w8", ["--quant", "w8"]), ("w8a8", ["--quant", "w8a8"]),
         ("w8a8, smoothed", ["--quant", "w8a8", "CALIBRATE"]),
         ("w8a8, no zero points", ["--quant", "w8a8", "--zero-points", "off"]),
         ("w8a8-static, smoothed", ["--quant", "w8a8-static", "CALIBRATE"]),
         ("w8a8-static", ["--quant", "w8a8-static", "CALIBRATE", "--smoothing", "off"]),
         ("float, INT8 cache", ["--kv-dtype", "int8"]),
         ("w8a8, INT8 cache", ["--quant", "w8a8", "--kv-dtype", "int8"])]


# ---- last words ----------------------------------------------------------------------------


def last_words(text, path):
    passages = []
    for paragraph in text.splitlines():
        words = paragraph.split()[:60]
        while len(words) >= 30 and not re.fullmatch(r"[A-Za-z]{3,}", words[-1]):
            words.pop()
        if len(words) >= 30:
            passages.append(" ".join(words))
    with open(path, "w") as file:
        for passage in passages[:500]:
            file.write(json.dumps({"text": passage}) + "\n")
    return min(len(passages), 500)


# ---- the table -----------------------------------------------------------------------------


def measure(options, model, flags, folder):
    flags = [word for flag in flags
             for word in (["--calibrate", str(options.calibrate)] if flag == "CALIBRATE" else [flag])]
    result = Comparison(options.infer_gpt2, model, options.text, flags, folder / "float.log", options.limit)
    memory = dict(re.findall(r"([A-Za-z0-9 -]*weights|key-value cache) ([0-9.]+) MiB", result.messages))
    weights = sum(float(value) for name, value in memory.items() if name.endswith("weights"))
    row = {"perplexity": f"{result.perplexity:.3f}", "change": result.change_text(), "KL": f"{result.kl:.2e}",
           "top-1": f"{result.agreement:.2f}", "weights": f"{weights:.2f}"}
    common = ["-m", model, *flags]
    if options.last_words:
        task = f"lambada:{folder / 'last_words.jsonl'}"
        scores = table_of(run(options.infer_gpt2, "score", task, *common).stdout)
        row["last words"] = f"{100 * scores['lambada', 'accuracy'][0]:.1f}"
    if options.speed:
        bench = run(options.infer_gpt2, "bench", *common, "--batches", 1, "--gen-tokens", 64, "--prompt-tokens", 0,
                    "--positions", 0, "--repetitions", 3).stdout
        result = [r for r in json.loads(bench.splitlines()[-1])["results"] if r["test"] == "generate"]
        row["tok/s"] = f"{result[0]['tokens_per_second']:.0f}"
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     allow_abbrev=False)
    parser.add_argument("model", type=Path, help="float model")
    parser.add_argument("text", type=Path, help="held-out text (.txt) or tokens (.bin)")
    parser.add_argument("--calibrate", type=Path, required=True, help="calibration text or tokens")
    parser.add_argument("--infer-gpt2", type=Path, default=ROOT / "infer_gpt2", help="our program [./infer_gpt2]")
    parser.add_argument("--last-words", type=Path, metavar="TEXT", help="text for the task of last words")
    parser.add_argument("--outliers", type=float, metavar="FACTOR", help="measure a copy with outliers")
    parser.add_argument("--limit", type=int, default=0, help="maximum number of windows; 0: all [0]")
    parser.add_argument("--speed", action="store_true", help="add tokens per second")
    options = parser.parse_args()
    for path in (options.model, options.text, options.calibrate, options.infer_gpt2, options.last_words):
        if path is not None and not path.exists():
            parser.error(f"{path} does not exist")
    with tempfile.TemporaryDirectory() as name:
        folder, model = Path(name), options.model
        if options.outliers:
            model = outlier_copy(options.model, folder / "outliers", options.outliers)
        if options.last_words:
            last_words(options.last_words.read_text(errors="replace"), folder / "last_words.jsonl")
        save_predictions(options.infer_gpt2, options.model, options.text, folder / "float.log", options.limit)
        rows = []
        for mode, flags in MODES:
            rows.append((mode, measure(options, model, flags, folder)))
            print(f"{mode}: {rows[-1][1]}", file=sys.stderr, flush=True)
    columns = list(rows[0][1])
    print_table(["mode", *columns], [[mode, *(row[column] for column in columns)] for mode, row in rows])


if __name__ == "__main__":
    standard_output.run(main)
