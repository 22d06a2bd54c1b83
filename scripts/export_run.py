#!/usr/bin/env python3
"""Exports run logs to other tools: TensorBoard's event files, or Weights & Biases.

    scripts/export_run.py RUN.jsonl [RUN2.jsonl ...] --tensorboard DIR    then: tensorboard --logdir DIR
    scripts/export_run.py RUN.jsonl --wandb PROJECT                       then: wandb sync wandb/offline-run-*

Exporting again, during a run or after it, adds only what is new.
"""
import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import standard_output  # noqa: E402
from run_view import tensorboard, weights_and_biases  # noqa: E402
from run_view.logs import LogError, load_runs  # noqa: E402


def parse_command_line():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="+", metavar="RUN.jsonl", help="log that train_gpt2 --log wrote")
    parser.add_argument("--tensorboard", type=Path, metavar="DIR", help="write event files to DIR/NAME")
    parser.add_argument("--wandb", metavar="PROJECT", help="write an offline run of this project next to the log")
    parser.add_argument("--online", action="store_true", help="with --wandb: upload immediately (needs wandb login)")
    parser.add_argument("--names", metavar="LIST", type=lambda text: text.split(","),
                        help="comma-separated names of the runs [names of the files]")
    options = parser.parse_args()
    if not options.tensorboard and not options.wandb:
        parser.error("nothing to do: give --tensorboard DIR or --wandb PROJECT")
    if options.online and not options.wandb:
        parser.error("--online needs --wandb PROJECT")
    return options


def export(run, options):
    for warning in run.warnings:
        print(f"export_run.py: warning: {warning}", file=sys.stderr)
    if options.tensorboard:
        path, scalars = tensorboard.write_events(run, options.tensorboard)
        print(f"tensorboard: {path}, {scalars} values")
    if options.wandb:
        steps = weights_and_biases.export(run, options.wandb, options.online)
        print(f"wandb: {run.name}, {steps} new steps")


def main():
    options = parse_command_line()
    try:
        for run in load_runs(options.logs, options.names):
            export(run, options)
    except LogError as error:
        sys.exit(f"export_run.py: {error}")
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        sys.exit(f"export_run.py: {error.filename or options.tensorboard or options.wandb}: {reason}")


if __name__ == "__main__":
    standard_output.run(main)
