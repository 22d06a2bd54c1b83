"""Runs of train_gpt2, and what their logs tell.

A run has a directory: command.txt, output.txt and log.jsonl of training, evaluation.* of the best checkpoint,
weights/ with the checkpoints, and result.json, which is written last. A run with the result.json of the same flags is
finished and does not run again.
"""
import json
import math
import re
import shutil
import statistics

from finetune_sentiment import methods as flags_of
from finetune_sentiment.data import LABELS
from measured_programs import RunError, execute, program, read_json_lines, write_json

# ---- logs ------------------------------------------------------------------------------------


def read_log(path):
    """The lines of a run log. Classifications are texts with JSON in it."""
    def value_of(key, value):
        if not key.endswith("_classification"):
            return value
        try:
            return json.loads(value)
        except (TypeError, ValueError):
            return None
    return [{key: value_of(key, value) for key, value in line.items()} for line in read_json_lines(path)]


def number(record, key, source):
    """A finite number of a record. `key` may be a path, such as macro.f1."""
    value = record
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise RunError(f"{source}: \"{key}\" is {json.dumps(value)[:60]}, not a finite number")
    return value


def matrix_of(record, source):
    """The confusion matrix of a record, in the order of LABELS."""
    matrix, size = record.get("confusion_matrix"), len(LABELS)
    is_matrix = isinstance(matrix, list) and len(matrix) == size and all(
        isinstance(row, list) and len(row) == size and all(type(n) is int and n >= 0 for n in row) for row in matrix)
    if not is_matrix:
        raise RunError(f"{source}: \"confusion_matrix\" is {json.dumps(matrix)[:60]}, not {size} x {size} counts")
    names = [one.get("label") for one in record.get("classes", [])]
    if names != list(LABELS):
        raise RunError(f"{source}: the classes are {names}, not {list(LABELS)}")
    return matrix


def last_record(lines, key, source):
    records = [line[key] for line in lines if isinstance(line.get(key), dict)]
    if not records:
        raise RunError(f"{source} has no \"{key}\"; was train_gpt2 built before --task classify?")
    return records[-1]


def test_record(lines, source):
    """The last classification of the test part, with the keys of metrics.classification and "loss"."""
    record = last_record(lines, "test_classification", source)
    for key in ("examples", "accuracy", "macro.precision", "macro.recall", "macro.f1"):
        number(record, key, source)
    losses = [line.get("test_loss") for line in lines if "test_classification" in line]
    return {"examples": record["examples"], "accuracy": record["accuracy"], "macro": record["macro"],
            "confusion_matrix": matrix_of(record, source), "loss": losses[-1]}


def validation_record(lines, step, source):
    """The validation record of a step: {"step", "loss", "accuracy", "macro_f1"}."""
    records = [line for line in lines if "val_macro_f1" in line and line.get("step") == step]
    if not records:
        raise RunError(f"{source} has no \"val_macro_f1\" of step {step}; was train_gpt2 built before --task classify?")
    best = records[-1]
    return {"step": step, "macro_f1": number(best, "val_macro_f1", source), "accuracy": best.get("val_accuracy"),
            "loss": best.get("val_loss")}


def step_records(lines, source):
    steps = [line for line in lines if "step_ms" in line]
    if not steps:
        raise RunError(f"{source} has no line with \"step_ms\"")
    return steps


def mean_step_ms(lines, source):
    """Mean time of a step without the first two, in which libraries allocate memory. Batches have different lengths,
    so a median would be biased."""
    times = [number(line, "step_ms", source) for line in step_records(lines, source)]
    return statistics.fmean(times[2:] or times)


def memory_of(lines, source):
    """MiB: planned by train_gpt2, and the largest use of the process on the device."""
    planned = [line["planned_mem_mb_ranks"] for line in lines if "planned_mem_mb_ranks" in line]
    try:
        planned = float(str(planned[-1]).split(",")[0])
    except (IndexError, ValueError):
        raise RunError(f"{source} has no \"planned_mem_mb_ranks\" in its line of settings") from None
    peaks = {key: [line[key] for line in lines if isinstance(line.get(key), (int, float))]
             for key in ("gpu_mem_mb", "host_mem_mb")}
    peak = max(peaks["gpu_mem_mb"] or peaks["host_mem_mb"], default=None)
    return planned, peak


def parameter_counts(output, source):
    """(parameters that learn, all parameters) from the first lines of a run."""
    if match := re.search(r"\btraining (\d+) of (\d+) parameters", output):
        return int(match[1]), int(match[2])
    if match := re.search(r"^model: .*?(\d+) parameters", output, re.M):
        return int(match[1]), int(match[1])
    raise RunError(f"{source} has no line with the number of parameters")


# ---- runs ------------------------------------------------------------------------------------


def finished(folder, command):
    """The result of the run with this command in `folder`, or None."""
    try:
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return result if result.get("command") == command else None


def start_folder(folder, command):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "command.txt").write_text(" ".join(command) + "\n", encoding="utf-8")


def check_head(method, model, trained):
    if trained == flags_of.parameters_without_head(method, model):
        raise RunError(f"{method.name}: only {trained} parameters learn, so the flags freeze the head of the classifier")


def measure(folder, method, model, data, steps):
    """A short run: {"step_s", "overhead_s", "wall_s", ...}; see planning.Cost."""
    command = [str(program("train_gpt2")), *map(str, flags_of.training_flags(method, model, data, method.rates[0], 1, steps))]
    command[command.index("--eval-every") + 1] = str(steps)
    if result := finished(folder, command):
        return result
    start_folder(folder, command)
    log = folder / "log.jsonl"
    usage = execute([*command, "--log", log], folder / "output.txt")
    lines, output = read_log(log), (folder / "output.txt").read_text(errors="replace")
    trained, _ = parameter_counts(output, folder / "output.txt")
    check_head(method, model, trained)
    test_record(lines, log)
    busy = sum(number(line, "step_ms", log) for line in step_records(lines, log)) / 1000
    result = {"command": command, "step_s": mean_step_ms(lines, log) / 1000, "overhead_s": max(0.0, usage.wall - busy),
              "wall_s": usage.wall}
    write_json(folder / "result.json", result)
    return result


def best_checkpoint(folder):
    """The checkpoint of a run that the validation part selected."""
    best = folder / "weights/best"
    if not best.exists():
        raise RunError(f"{best} is missing; train_gpt2 kept no best checkpoint (--keep-best)")
    return best.resolve()


def step_of(checkpoint):
    match = re.fullmatch(r"step_(\d+)", checkpoint.name)
    if not match:
        raise RunError(f"{checkpoint} is not named step_N")
    return int(match[1])


def evaluate(folder, method, model, data, checkpoint):
    """(log, seconds) of the evaluation of a checkpoint."""
    log = folder / "evaluation.jsonl"
    command = [program("train_gpt2"), *flags_of.evaluation_flags(method, model, data, checkpoint), "--log", log]
    return log, execute(command, folder / "evaluation.txt").wall


def train(folder, method, model, data, rate, seed, steps):
    """Trains, and evaluates the best checkpoint. Returns the result, which is also in result.json."""
    command = [str(program("train_gpt2")), *map(str, flags_of.training_flags(method, model, data, rate, seed, steps)),
               *map(str, flags_of.keeping_flags(folder / "weights"))]
    if result := finished(folder, command):
        return result
    start_folder(folder, command)
    log, output = folder / "log.jsonl", folder / "output.txt"
    usage = execute([*command, "--log", log], output)
    lines = read_log(log)
    best = best_checkpoint(folder)
    validation = validation_record(lines, step_of(best), log)
    # The test record of training is that of the last weights.
    tested, evaluation_seconds = (log, 0.0) if validation["step"] == steps else evaluate(folder, method, model, data, best)
    planned, peak = memory_of(lines, log)
    trained, parameters = parameter_counts(output.read_text(errors="replace"), output)
    check_head(method, model, trained)
    result = {"command": command, "method": method.name, "rate": rate, "seed": seed, "steps": steps,
              "validation": validation, "test": test_record(read_log(tested), tested), "trained_parameters": trained,
              "parameters": parameters, "planned_mib": planned, "peak_mib": peak, "step_ms": mean_step_ms(lines, log),
              "cpu": usage.cpu, "gpu": usage.gpu, "wall_s": usage.wall + evaluation_seconds}
    write_json(folder / "result.json", result)
    return result
