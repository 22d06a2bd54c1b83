"""The command line of scripts/study."""
import argparse
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from measured_programs import ROOT, RunError, note, program
from studies.budget import Clock
from studies.claims import read_claims
from studies.experiment import Study, make_runs, read_plan, write_results
from studies.experiments import EXPERIMENTS
from studies.experiments.common import CUDA, HOST
from studies.inputs import Inputs
from studies.machine import find_machine
from studies.report import write_report
from studies.runs import Launcher, Runner, python

DESCRIPTION = """Runs experiments of the field, from fresh runs to tables and figures.

    scripts/study strong                          one experiment
    scripts/study strong weak --budget 40         several, in 40 minutes together
    scripts/study all                             every experiment
    scripts/study report [DIR...]                 one page of all experiments in DIRs, with a verdict per claim
    scripts/study tables runs/study/strong        write tables and figures again, from the logs alone

Run a command again to continue it; finished runs are not repeated. PYTHON names an interpreter with torch and numpy for
the comparison with PyTorch. PROGRAMS names the folder with the programs [the root of the repository]. The files and the
meaning of measured, functional and simulated: scripts/studies/README.md.

Experiments:
"""
DEFAULT_MINUTES = 20  # per experiment


def number_list(text):
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1 or len(set(numbers)) < len(numbers):
        raise argparse.ArgumentTypeError(f"'{text}'; allowed: different numbers of at least 1, separated by commas")
    return sorted(numbers)


def positive(kind, name):
    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not 0 < value < 1e6:
            raise argparse.ArgumentTypeError(f"'{text}' is not a number of {name}; allowed: above 0")
        return value
    return parse


def parse_command_line():
    names = "".join(f"    {name:12}  {experiment.question}\n" for name, experiment in EXPERIMENTS.items())
    parser = argparse.ArgumentParser(prog="study", description=DESCRIPTION + names, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", metavar="NAME", help="experiments, or all; report or tables, and folders")
    parser.add_argument("--budget", type=positive(float, "minutes"), metavar="MINUTES",
                        help=f"time of all runs; the build and the inputs do not count [{DEFAULT_MINUTES} per experiment]")
    parser.add_argument("--ranks", type=number_list, metavar="LIST",
                        help="numbers of ranks [1,2,4; on GPUs 1,2,4,8 as far as there are GPUs]")
    parser.add_argument("--device", choices=("host", "cuda"), help="where the programs compute [as they are built; host "
                                                                   "without a GPU]")
    parser.add_argument("--data", type=Path, metavar="PATH", help="a text, or a folder of .txt files "
                                                                  "[../shared/data/text, else datasets/tinyshakespeare]")
    parser.add_argument("--sentences", type=Path, metavar="DIR", help="a folder with positive.txt and negative.txt, which have "
                        "a sentence per line [../shared/data/sentence_polarity, else datasets/sentence_polarity]")
    parser.add_argument("--repeats", type=positive(int, "repeats"), default=3, metavar="N",
                        help="repeats of each timed run [3]")
    parser.add_argument("--launcher", metavar="COMMAND", help="starts ranks, such as 'srun -n {ranks}' [scripts/run.sh]")
    parser.add_argument("--peers", choices=("yes", "no"), default="yes", help="no leaves PyTorch out [yes]")
    parser.add_argument("--like", type=Path, metavar="DIR", help="make runs as large as those of the study in DIR, so that exact "
                        "columns must be equal; the budget then only limits repeats [sizes that fit the budget]")
    parser.add_argument("--out", type=Path, default=ROOT / "runs/study", metavar="DIR",
                        help="folder to write or to continue [runs/study]")
    return parser, parser.parse_args()


def selected_experiments(parser, options):
    names = list(EXPERIMENTS) if options.names == ["all"] else list(options.names)
    for name in names:
        if name not in EXPERIMENTS or names.count(name) > 1:
            parser.error(f"'{name}' is not an experiment or is repeated; allowed: {', '.join(EXPERIMENTS)}, or all alone")
    if any(EXPERIMENTS[name].needs_base for name in names):
        names = ["base", *(name for name in names if name != "base")]
    return [EXPERIMENTS[name] for name in names]


def able_experiments(experiments, study, is_all):
    """Those that can run here. One that is named and cannot is an error."""
    able = []
    for experiment in experiments:
        reason = experiment.missing(study)
        if reason and not is_all:
            raise RunError(f"{experiment.name}: {reason}")
        if reason:
            note(f"{experiment.name} is left out: {reason}")
        else:
            able.append(experiment)
    return able


def missing_peers(options):
    """Why PyTorch does not take part; empty if it does."""
    if options.peers == "no":
        return "left out by --peers no"
    if shutil.which(python()) is None:
        raise RunError(f"PYTHON is '{python()}', which is no program; give a Python interpreter, or unset PYTHON")
    if subprocess.run([python(), "-c", "import numpy, torch"], capture_output=True).returncode != 0:
        return f"{Path(python()).name} cannot import torch and numpy; PYTHON names an interpreter that can"
    return ""


def make_study(parser, options):
    if options.data and not options.data.exists():
        parser.error(f"--data {options.data} does not exist; allowed: a text, or a folder of .txt files")
    if options.launcher and "{ranks}" not in options.launcher:
        parser.error(f"--launcher '{options.launcher}' has no {{ranks}}, which stands for their number")
    if options.sentences and not options.sentences.is_dir():
        parser.error(f"--sentences {options.sentences} is no folder; allowed: one with positive.txt and negative.txt")
    if options.like and not options.like.is_dir():
        parser.error(f"--like {options.like} is no folder; allowed: the --out of scripts/study")
    for name in ("train_gpt2", "infer_gpt2", "tokenize"):
        program(name)
    out = options.out.resolve()
    machine = find_machine(options.device)
    out.mkdir(parents=True, exist_ok=True)
    launcher = Launcher(machine, shlex.split(options.launcher) if options.launcher else None)
    ranks = options.ranks or ([n for n in (1, 2, 4, 8) if n <= machine.gpus] if machine.device == "cuda" else [1, 2, 4])
    if 1 not in ranks:
        parser.error(f"--ranks {','.join(map(str, ranks))} has no 1, with which all others are compared")
    inputs = Inputs(out / "inputs", machine.device, *(path.resolve() if path else None
                                                      for path in (options.data, options.sentences)))
    return Study(out, machine, inputs, Runner(out, machine, launcher), CUDA if machine.device == "cuda" else HOST, ranks,
                 options.repeats, missing_peers(options), sys.argv[1:], like=options.like and options.like.resolve())


def run_experiments(parser, options):
    experiments = selected_experiments(parser, options)
    study = make_study(parser, options)
    experiments = able_experiments(experiments, study, options.names == ["all"])
    study.inputs.prepare()
    clock = Clock(options.budget or DEFAULT_MINUTES * len(experiments))
    note(f"machine: {study.machine.description()}, commit {study.machine.commit}"
         + (f"; without PyTorch: {study.peers}" if study.peers else ""))
    for index, experiment in enumerate(experiments):
        begin, part = clock.left(), experiment.share / sum(one.share for one in experiments[index:])
        share = min(experiment.most_seconds, max(0.0, part * begin))
        plan = make_runs(experiment, study, clock, share)
        if experiment.name == "base":
            study.base = experiment.model(study, plan)
        tables, figures = write_results(experiment, study.out / experiment.name, plan)
        print(f"{experiment.name}: {study.out / experiment.name}/{experiment.name}.md, tables: {len(tables)}, figures: "
              f"{len(figures)}; {(begin - clock.left()) / 60:.1f} of {share / 60:.1f} minutes", flush=True)
    if options.names == ["all"]:
        make_report(options, [])


def rewrite_tables(parser, folders):
    if not folders:
        parser.error("tables needs folders, such as runs/study/strong")
    for folder in map(Path, folders):
        again(folder)
        print(f"{folder}: tables and figures are written")


def again(folder):
    """(tables, figures) of an experiment's folder, written again from its plan and its logs."""
    plan = read_plan(folder)
    if plan.get("experiment") not in EXPERIMENTS:
        raise RunError(f"{folder / 'plan.json'} is of the experiment {plan.get('experiment')!r}; allowed: "
                       f"{', '.join(EXPERIMENTS)}")
    return write_results(EXPERIMENTS[plan["experiment"]], folder.resolve(), plan)


def make_report(options, folders):
    folders = [Path(folder) for folder in folders] or [options.out]
    out = options.out / "report.html"
    options.out.mkdir(parents=True, exist_ok=True)
    count = write_report(out, folders, EXPERIMENTS, read_claims(), again)
    print(f"{out}: experiments: {count}")


def main():
    parser, options = parse_command_line()
    try:
        if options.names[0] == "tables":
            rewrite_tables(parser, options.names[1:])
        elif options.names[0] == "report":
            make_report(options, options.names[1:])
        else:
            run_experiments(parser, options)
    except RunError as error:
        print(f"study: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("study: interrupted; run the same command to continue", file=sys.stderr)
        return 130
    return 0
