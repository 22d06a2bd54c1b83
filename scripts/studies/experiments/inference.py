"""Runs of infer_gpt2 in its formats: speed and size, loss of held-out tokens, and the sentences that a classifier gets right.
"""
import re
from typing import NamedTuple

from finetune_sentiment.checks import parse_prediction
from studies.experiment import ratio_of
from studies.experiments.common import infer_run

BATCH = 8         # sequences that are decoded together
GENERATED = 64    # tokens per sequence
PROMPT = 512      # tokens, or those of the context but one
CALIBRATION = "{calibration}"
CALIBRATION_WINDOWS = 16
NO_ENERGY = "the device does not report its energy"


class Mode(NamedTuple):
    title: str
    flags: tuple = ()

    def is_calibrated(self):
        return CALIBRATION in self.flags

    def has_cache_flags(self):
        return "--kv-dtype" in self.flags


W8, W8A8, STATIC = ("--quant", "w8"), ("--quant", "w8a8"), ("--quant", "w8a8-static")
CALIBRATED, INT8_CACHE = ("--calibrate", CALIBRATION), ("--kv-dtype", "int8")
MODES = {
    "fp32": Mode("float, fp32"), "bf16": Mode("float, bf16", ("--dtype", "bf16")), "w8": Mode("INT8 weights (w8)", W8),
    "w8a8": Mode("INT8 weights and activations (w8a8)", W8A8), "smoothed": Mode("w8a8, smoothed", (*W8A8, *CALIBRATED)),
    "static": Mode("w8a8, fixed scales", (*STATIC, *CALIBRATED, "--smoothing", "off")),
    "static-smoothed": Mode("w8a8, fixed scales, smoothed", (*STATIC, *CALIBRATED)),
    "cache": Mode("float, INT8 cache", INT8_CACHE), "w8a8-cache": Mode("w8a8, INT8 cache", (*W8A8, *INT8_CACHE))}


def prompt_tokens(shape):
    return min(PROMPT, shape.T - 1)


def flags_and_files(study, mode):
    """The flags of a mode, and the files among them."""
    if not mode.is_calibrated():
        return mode.flags, ()
    path = study.inputs.windows(CALIBRATION_WINDOWS, study.base.shape.T)
    return tuple(path if flag == CALIBRATION else flag for flag in mode.flags), (path,)


def bench_run(study, key, cores, repetitions):
    """Prompt and generation of the base model, for one sequence and for several."""
    flags, files = flags_and_files(study, MODES[key])
    prompt = prompt_tokens(study.base.shape)
    words = ("bench", "--prompt-tokens", prompt, "--gen-tokens", GENERATED, "--batches", f"1,{BATCH}", "--positions", 0,
             "--repetitions", repetitions, "--format", "json", *flags)
    # A token of one sequence takes about as long as 8 of a prompt.
    return infer_run(study, f"infer-bench-{key}", study.base, words, (repetitions + 1) * (9 * prompt + 16 * GENERATED), cores,
                     files)


def is_compared(key):
    """Token by token with the model in the same dtype; this is of use for all that compute in fp32."""
    return key not in ("fp32", "bf16")


def base_runs(study, keys, cores, repetitions, windows):
    """Speed and loss of the base model in each mode."""
    return [bench_run(study, key, cores, repetitions) for key in keys] + [
        loss_run(study, f"infer-loss-{key}", study.base, key, cores, windows, study.base if is_compared(key) else None)
        for key in keys]


def loss_run(study, name, model, key, cores, windows, base=None):
    """The loss of a Model on held-out tokens in a mode; with a Model `base`, also the comparison with it."""
    flags, files = flags_and_files(study, MODES[key])
    T, text = model.shape.T, study.inputs.validation(model.shape.T)
    words = ("perplexity", text, "--seq-len", T, "--stride", T, "--limit", windows, *flags, *(("--base", base.path) if base else
                                                                                           ()))
    return infer_run(study, name, model, words, (2 if base else 1) * windows * T, cores, (text, *files), timed=False)


def classify_run(study, name, classifier, key, cores, lines):
    """The classes of the test sentences, which have the order of their classes."""
    text = study.inputs.test_sentences(lines) / "test.txt"
    tokens = 40 * len(text.read_bytes().splitlines())
    return infer_run(study, name, classifier, ("classify", text, *MODES[key].flags), tokens, cores, (text,), timed=False)


# ---- what runs measure -----------------------------------------------------------------------


def weight_mib(result):
    """MiB of weights: infer_gpt2 prints each kind, once per batch size."""
    first = next(line for line in result.text("output.txt").splitlines() if line.startswith("memory:"))
    return sum(float(value) for value in re.findall(r"weights ([0-9.]+) MiB", first))


def first_token_ms(result):
    test = result.bench("prompt")
    return test["us_per_token"] * test["tokens"] / 1000


def token_ms(result):
    return result.bench("generate")["us_per_token"] / 1000


def batch_speed(result):
    return result.bench("generate", BATCH)["tokens_per_second"]


def joules(result):
    """Per generated token; None if the device does not report it."""
    return result.bench("generate")["joules_per_token"]


def perplexity(result):
    return result.scores()["perplexity", "token_perplexity"][0]


def base_cells(results, key):
    """Cells about the base model in a mode."""
    run = f"infer-bench-{key}"
    cells = {"size": results.exact(run, weight_mib)}
    for column, number in (("first", first_token_ms), ("token", token_ms), ("speed", batch_speed), ("joules", joules)):
        cells[column] = results.spread(run, number)
    cells["faster"] = faster(results, cells["token"])
    for result in results.finished(f"infer-loss-{key}"):
        cells["perplexity"] = perplexity(result)
    return cells


def faster(results, token):
    """Time of a token of the base model in fp32 / the time `token`, a cell."""
    return ratio_of(results.spread("infer-bench-fp32", token_ms), token)


def comparison(result):
    """(change of the perplexity in %, its standard error, % of tokens with the same most likely one) to the float model;
    None without a comparison."""
    scores = result.scores()
    if ("comparison", "token_perplexity_difference") not in scores:
        return None
    base = scores["comparison", "base_token_perplexity"][0]
    difference, error = scores["comparison", "token_perplexity_difference"]
    return 100 * difference / base, 100 * error / base, 100 * scores["comparison", "top1_agreement"][0]


def accuracy(result, support):
    """`support`: number of sentences of each class."""
    lines = result.text("stdout.txt").splitlines()
    labels = [label for label, count in enumerate(support) for _ in range(count)]
    predictions = [parse_prediction(line, f"{result.folder / 'stdout.txt'}:{i}").label for i, line in enumerate(lines, 1)]
    return sum(a == b for a, b in zip(labels, predictions, strict=True)) / len(labels)
