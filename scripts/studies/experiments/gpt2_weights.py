"""WikiText perplexity by size of GPT-2's own weights, as far as they are on this machine."""
import os
from pathlib import Path

from measured_programs import ROOT
from studies.experiments.common import Model, infer_run
from studies.inputs import shape_of
from studies.tables import Column, Row, Table

SIZES = {"124M": 12, "355M": 24, "774M": 36, "1558M": 48}  # layers
# WikiText-2 and WikiText-103 have the same test part.
TEXTS = (ROOT / "datasets/wikitext-103/test.txt", ROOT / "datasets/wikitext-2/test.txt", ROOT.parent /
         "shared/data/wikitext-2/test.txt")
WINDOWS = {"host": 32, "cuda": 0}  # 0: all


def find_weights():
    """{size: directory} of the sizes that GPT2_DIR or models/ has. GPT2_DIR is one model, or a folder with several."""
    folders = [Path(os.environ["GPT2_DIR"]).resolve()] if os.environ.get("GPT2_DIR") else []
    weights = {}
    for size, layers in SIZES.items():
        names = [path / name for path in folders for name in (f"gpt2-{size}", size)] + [ROOT / f"models/gpt2-{size}"]
        weights |= {size: path for path in reversed(names) if (path / "model.safetensors").exists()}
        for path in folders:
            if (path / "model.safetensors").exists() and shape_of(path).layers == layers:
                weights[size] = path
    return weights


def weight_runs(study):
    text = next((path for path in TEXTS if path.exists()), None)
    runs = []
    for size, path in find_weights().items() if text else ():
        shape = shape_of(path)
        model = Model(path, study.inputs.version_of(path), shape)
        windows = WINDOWS[study.machine.device]
        words = ("score", f"wikitext:{text}", "--limit", windows, *(("--dtype", "bf16") if study.machine.device == "cuda" else ()))
        spec = infer_run(study, f"size-gpt2-{size}", model, words, (windows or 300) * shape.T, len(study.machine.cores),
                         timed=False)
        runs.append(spec._replace(inputs=(*spec.inputs, (str(text), study.inputs.version_of(text)))))
    return runs


def weight_table(results):
    rows = []
    for size in SIZES:
        name, cells = f"size-gpt2-{size}", {"size": size}
        if not results.has(name):
            rows.append(Row(cells, "measured", None, why={"": f"neither GPT2_DIR nor models/ has the weights of {size}, which "
                                                              "scripts/get_gpt2.sh downloads"}))
            continue
        for result in results.finished(name):
            scores = result.scores()
            cells |= {metric: scores["wikitext", f"{metric}_perplexity"][0] for metric in ("word_and_line_end", "token")}
        rows.append(results.row(name, cells))
    return Table("model-size-gpt2", "WikiText perplexity by size of GPT-2's own weights", [
        Column("size", "model"), Column("word_and_line_end", "perplexity per word and line end", digits=2),
        Column("token", "perplexity per token", digits=2)], rows, results.device, results.commit,
        ["The test part of WikiText-103, which is that of WikiText-2, detokenized; on a CPU its first windows only."])
