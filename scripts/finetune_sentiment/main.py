#!/usr/bin/env python3
"""Fine-tunes a classifier of sentence polarity in seven ways, next to naive Bayes, transformers and PEFT.

    scripts/finetune_sentiment.sh [--budget MINUTES] [--out DIR]        40 minutes on two cores
    scripts/finetune_sentiment.sh --smoke                               a minute, to check this script

Methods: scratch (random weights), all (all weights of the reference model), head, upper (the upper half of the blocks),
lora, ia3 and lora-int8. A short run of each method measures its steps; then the number of epochs and the grid of
learning rates are planned for the budget. The validation part selects the learning rate and the checkpoint of each
run; the test part is used once, for the table. Run the same command again to resume: finished runs stay.

OUT gets results.md, results.jsonl, accuracy.svg, plan.json, and a directory for each run. Only the checkpoints of the
first seed stay. PYTHON names an interpreter with torch, transformers and peft for the comparison with them, which
does not count in the budget; without these packages it is left out. PROGRAMS names the folder with train_gpt2 and
infer_gpt2 [the root of the repository]. Exit code 1: a check is missed, or a run failed.
"""
import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import standard_output  # noqa: E402
from finetune_sentiment import checks, data, methods, picture, planning, reference, results, runs  # noqa: E402
from finetune_sentiment.metrics import classification, confusion_matrix  # noqa: E402
from finetune_sentiment.naive_bayes import NaiveBayes  # noqa: E402
from measured_programs import ROOT, RunError, execute, note, program, write_json, write_text  # noqa: E402
from run_view.gnuplot import GnuplotError  # noqa: E402

MEASURED_STEPS = 16
SMOKE = {"budget": 1.0, "seeds": 2, "sentences": 200, "epochs": 0.5, "measured_steps": 3}
METHOD_NAMES = tuple(methods.all_methods(2))
PEERS = {"all": ("transformers, all weights", "torch, transformers"), "lora": ("PEFT, LoRA", "torch, transformers, peft")}


def parse_number(kind, minimum, name):
    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not minimum <= value < 1e6:
            raise argparse.ArgumentTypeError(f"'{text}' is not a number of {name}; allowed: {minimum} or more")
        return value
    return parse


def parse_methods(text):
    names = text.split(",")
    for name in names:
        if name not in METHOD_NAMES or names.count(name) > 1:
            raise argparse.ArgumentTypeError(f"'{name}' is not a method or is repeated; allowed: {','.join(METHOD_NAMES)}")
    return names


def parse_command_line():
    parser = argparse.ArgumentParser(prog="finetune_sentiment.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=parse_number(float, 0.1, "minutes"), metavar="MINUTES",
                        help="time of all runs of train_gpt2 but the training of the reference model [40; 1 with --smoke]")
    parser.add_argument("--out", type=Path, metavar="DIR", help="directory to write or resume [runs/sentiment; "
                                                                "runs/sentiment-smoke]")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data/sentence_polarity", metavar="DIR",
                        help="folder with positive.txt and negative.txt [../shared/data/sentence_polarity]")
    parser.add_argument("--reference", type=Path, metavar="DIR",
                        help="model, or the --out of dev/experiments/reference_model.sh, which trains it if it is absent "
                             "[GPT-2's weights in GPT2_DIR if that is set, else runs/reference]")
    parser.add_argument("--seeds", type=parse_number(int, 1, "seeds"), metavar="N", help="seeds per method [3; 2 with --smoke]")
    most = planning.GRIDS[0][0]
    parser.add_argument("--rates", type=int, choices=range(1, most + 1), default=most,
                        help=f"most learning rates per method; a small budget has fewer [{most}]")
    parser.add_argument("--methods", type=parse_methods, default=list(METHOD_NAMES), metavar="LIST",
                        help=f"comma-separated list [{','.join(METHOD_NAMES)}]")
    parser.add_argument("--smoke", action="store_true", help="a tiny random model and 400 sentences; scores are not checked")
    options = parser.parse_args()
    options.budget = options.budget or (SMOKE["budget"] if options.smoke else 40.0)
    options.seeds = options.seeds or (SMOKE["seeds"] if options.smoke else 3)
    options.out = (options.out or ROOT / ("runs/sentiment-smoke" if options.smoke else "runs/sentiment")).resolve()
    options.data = options.data.resolve()
    return options


class Experiment:
    """The state of a run of this script."""

    def __init__(self, options):
        self.options = options
        self.parts = data.read_parts(options.data)
        sizes = ", ".join(f"{len(part.texts)} {name}" for name, part in self.parts.items())
        self.notes = [f"{sum(len(part.texts) for part in self.parts.values())} sentences: {sizes}."]
        note("data: " + self.notes[0])
        if options.smoke:
            self.model, text = reference.tiny_reference(options.out / "reference", options.data)
        else:
            self.model, text = reference.find_reference(options.reference)
        self.notes.append(f"Fine-tuning starts from {text}; from nothing, from random weights of the same shape.")
        note("reference model: " + text)
        everything = methods.all_methods(self.model.layers)
        self.methods = {name: everything[name] for name in METHOD_NAMES if name in options.methods}
        self.epoch_steps = -(-len(self.parts["train"].texts) // methods.BATCH_SIZE)
        self.best, self.grids = {}, {}  # by method: results of its seeds with the best rate, and results of its grid
        self.seconds = 0.0

    def settings(self):
        """Everything that the plan depends on."""
        text = "\n".join(text for part in self.parts.values() for text in part.texts)
        return {"budget": self.options.budget, "seeds": self.options.seeds, "rates": self.options.rates,
                "methods": list(self.methods), "reference": str(self.model.path), "smoke": self.options.smoke,
                "data": hashlib.sha256(text.encode()).hexdigest()}


def make_plan(experiment):
    """(plan, costs): that of plan.json, or a new one from measured steps. Adds the time of measuring."""
    options, path = experiment.options, experiment.options.out / "plan.json"
    if path.exists():
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["settings"] != experiment.settings():
            changed = [key for key, value in experiment.settings().items() if stored["settings"].get(key) != value]
            raise RunError(f"{path} is the plan of a run with other settings ({', '.join(changed)}); give another --out")
        experiment.seconds += stored["measuring_s"]
        costs = {name: planning.Cost(*cost) for name, cost in stored["costs"].items()}
        return planning.Plan(**stored["plan"]), costs
    costs, seconds = {}, 0.0
    steps = SMOKE["measured_steps"] if options.smoke else MEASURED_STEPS
    for name, method in experiment.methods.items():
        measured = runs.measure(options.out / "measure" / name, method, experiment.model, options.data, steps)
        costs[name] = planning.Cost(measured["step_s"], measured["overhead_s"])
        seconds += measured["wall_s"]
        note(f"measured: {name}: {1000 * costs[name].step:.1f} ms per step, {costs[name].overhead:.1f} s for start and "
             "evaluations")
    plan = planning.make_plan(costs, experiment.methods, 60 * options.budget - seconds, options.seeds,
                              experiment.epoch_steps, SMOKE["epochs"] if options.smoke else None, options.rates)
    write_json(path, {"settings": experiment.settings(), "measuring_s": seconds, "plan": plan._asdict(), "costs": costs})
    experiment.seconds += seconds
    return plan, costs


def check_split(experiment, result, name):
    """The test part of train_gpt2 must be ours."""
    support = [sum(row) for row in result["test"]["confusion_matrix"]]
    expected = experiment.parts["test"].support()
    if support != expected:
        raise RunError(f"{name}: train_gpt2 tested {support} sentences of {data.LABELS}, but this script's split has "
                       f"{expected}; the splits differ")


def run_one(experiment, plan, progress, method, rate, seed):
    """Trains, or reads a finished run. Returns its result."""
    folder = experiment.options.out / "runs" / f"{method.name}-lr{rate:g}-seed{seed}"
    result = runs.train(folder, method, experiment.model, experiment.options.data, rate, seed, plan.steps[method.name])
    check_split(experiment, result, folder.name)
    result["epoch_s"] = result["step_ms"] * plan.epoch_steps / 1000
    experiment.seconds += result["wall_s"]
    progress.add(method.name, result["wall_s"])
    note(f"{folder.name}: validation macro F1 {result['validation']['macro_f1']:.4f} at step "
         f"{result['validation']['step']}; {result['wall_s']:.1f} s, planned {plan.run_seconds[method.name]:.1f} s; "
         f"{progress.text()}")
    if seed != 1:
        shutil.rmtree(folder / "weights", ignore_errors=True)
    return result


def run_all(experiment, plan):
    progress = planning.Progress(plan, 60 * experiment.options.budget, experiment.seconds)
    for name, method in experiment.methods.items():
        grid = [run_one(experiment, plan, progress, method, rate, 1) for rate in method.rates[:plan.grid]]
        best = max(grid, key=lambda result: result["validation"]["macro_f1"])
        experiment.grids[name] = grid
        experiment.best[name] = [best] + [run_one(experiment, plan, progress, method, best["rate"], seed)
                                          for seed in range(2, plan.seeds + 1)]


# ---- comparisons -----------------------------------------------------------------------------


def naive_bayes_row(parts):
    start, processor = time.monotonic(), time.process_time()
    train, test = parts["train"], parts["test"]
    model = NaiveBayes(train.texts, train.labels, len(data.LABELS))
    predictions = [model.predict(text) for text in test.texts]
    run = {"test": classification(confusion_matrix(test.labels, predictions, len(data.LABELS))),
           "trained_parameters": len(data.LABELS) * (len(model.vocabulary) + 1), "epoch_s": time.monotonic() - start}
    run["cpu"] = (time.process_time() - processor) / run["epoch_s"]
    return results.make_row(results.NAIVE_BAYES, "naive Bayes", [run], ours=False)


def peer_python():
    return os.environ.get("PYTHON") or "python3"


def run_peer(experiment, plan, name):
    """The result of a peer with the rate and the steps of the method, and the first seed; None if it cannot run."""
    title, modules = PEERS[name]
    python = peer_python()
    if subprocess.run([python, "-c", f"import {modules}"], capture_output=True).returncode != 0:
        note(f"{title}: left out, {python} cannot import {modules} (PYTHON names an interpreter)")
        return None
    folder = experiment.options.out / "peers"
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / f"{name}.json"
    command = [python, ROOT / "scripts/finetune_sentiment/peers.py", "--reference", experiment.model.path,
               "--data", experiment.options.data, "--method", name, "--lr", experiment.best[name][0]["rate"],
               "--steps", plan.steps[name], "--evaluations", methods.EVALUATIONS, "--batch-size", methods.BATCH_SIZE,
               "--length", experiment.model.length, "--seed", 1, "--weight-decay", methods.WEIGHT_DECAY,
               "--dropout", methods.DROPOUT, "--rank", methods.LORA_RANK, "--out", out]
    if not out.exists():
        note(f"{title}: one seed, outside the budget")
        usage = execute(command, folder / f"{name}.txt")
        result = json.loads(out.read_text())
        write_json(out, {**result, "cpu": usage.cpu, "gpu": usage.gpu, "wall_s": usage.wall})
    result = json.loads(out.read_text())
    check_split(experiment, result, title)
    return {**result, "epoch_s": result["step_ms"] * plan.epoch_steps / 1000}


def make_rows(experiment, plan):
    rows = [results.make_row(name, experiment.methods[name].title, best, plan.epochs(name), best[0]["rate"])
            for name, best in experiment.best.items()]
    rows.append(naive_bayes_row(experiment.parts))
    for name, (title, _) in PEERS.items():
        result = run_peer(experiment, plan, name) if name in experiment.best and not experiment.options.smoke else None
        if result:
            rows.append(results.make_row(f"peer-{name}", title, [result], plan.epochs(name), result["rate"], ours=False))
    return rows


# ---- the end ---------------------------------------------------------------------------------


def run_checks(experiment, rows):
    """(checks, lines about rows near the decision boundary)"""
    all_checks = []
    accuracy = {name: {run["seed"]: run["test"]["accuracy"] for run in best} for name, best in experiment.best.items()}
    if {"all", "scratch"} <= accuracy.keys():
        all_checks.append(checks.check_gain(accuracy["all"], accuracy["scratch"]))
    else:
        all_checks.append(checks.Check("not run", "the gain of pretraining needs the methods scratch and all"))
    all_checks.append(checks.check_accuracy(rows))
    if experiment.options.smoke:  # tiny random models learn nothing
        all_checks = [checks.Check("not applied", check.text) for check in all_checks]
    name = next((name for name in ("all", "scratch", "upper", "head") if name in experiment.best), None)
    if name is None:
        return all_checks + [checks.Check("not run", "ranks need a method that trains no adapter")], []
    run = experiment.best[name][0]
    folder = experiment.options.out / "runs" / f"{name}-lr{run['rate']:g}-seed{run['seed']}"
    note(f"checks: {folder.name} on 1 rank, dp 2 and tp 2")
    check, close = checks.check_ranks(experiment.options.out / "ranks", experiment.methods[name], experiment.model,
                                      experiment.options.data, runs.best_checkpoint(folder), experiment.parts["test"])
    return [*all_checks, check], close


def grid_notes(experiment):
    for name, grid in experiment.grids.items():
        if len(grid) > 1:
            scores = ", ".join(f"{run['rate']:g}: {run['validation']['macro_f1']:.4f}" for run in grid)
            yield f"Validation macro F1 of {experiment.methods[name].title} by learning rate (seed 1): {scores}."


def write_results(experiment, rows, check_lines):
    out = experiment.options.out
    write_text(out / "results.md", results.page(rows, experiment.notes, check_lines))
    write_text(out / "results.jsonl", results.json_lines(rows))
    written = "results.md, results.jsonl"
    try:
        picture.draw(rows, out / "accuracy.svg")
        written += ", accuracy.svg"
    except GnuplotError as error:
        note(f"no accuracy.svg: {error}")
    print(results.page(rows, experiment.notes, check_lines))
    print(f"written to {out}: {written}")


def run_experiment(options):
    if shutil.which(peer_python()) is None:
        raise RunError(f"PYTHON is '{peer_python()}', which is no program; give a Python interpreter, or unset PYTHON")
    options.out.mkdir(parents=True, exist_ok=True)
    if options.smoke:
        data.write_subset(options.data, options.out / "data", SMOKE["sentences"])
        options.data = options.out / "data"
    for name in ("train_gpt2", "infer_gpt2"):
        program(name)
    help_text = subprocess.run([program("train_gpt2"), "--help"], capture_output=True, text=True).stdout
    if "--task" not in help_text:
        raise RunError("train_gpt2 has no --task; build the programs of this version: make programs")
    experiment = Experiment(options)
    plan, costs = make_plan(experiment)
    note(planning.plan_text(plan, costs, experiment.methods))
    run_all(experiment, plan)
    rows = make_rows(experiment, plan)
    experiment.notes += grid_notes(experiment)
    all_checks, close = run_checks(experiment, rows)
    experiment.notes.append(f"{experiment.seconds / 60:.1f} of {options.budget:g} minutes for all runs of train_gpt2, "
                            "without the reference model, the checks and the peers.")
    write_results(experiment, rows, [check.line() for check in all_checks] + close)
    return 1 if any(check.state == "MISSED" for check in all_checks) else 0


def main():
    try:
        return run_experiment(parse_command_line())
    except (RunError, data.DataError, methods.ModelError, planning.PlanError) as error:
        sys.exit(f"finetune_sentiment.sh: {error}")
    except OSError as error:
        sys.exit(f"finetune_sentiment.sh: {error.filename}: {os.strerror(error.errno) if error.errno else error}")
    except KeyboardInterrupt:
        sys.exit("finetune_sentiment.sh: stopped; run it again to resume")


if __name__ == "__main__":
    standard_output.run(main)
