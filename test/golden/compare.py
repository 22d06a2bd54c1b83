#!/usr/bin/env python3
"""Compares the host programs of the working tree with those of a commit: all results must be equal to the bit.

    test/golden/compare.sh COMMIT                    builds both, then compares
    test/golden/compare.sh --binaries OLDDIR NEWDIR  compares the programs in two folders

Exit code 0: no difference; 1: differences, which are listed; 2: invalid options or a failed build.
"""
import argparse
import shutil
import sys
import time
from fnmatch import fnmatch
from pathlib import Path

import runs
from allowed import without_values
from builds import GOLDEN, BuildError, build_commit, build_working_tree
from differences import folder_differences
from inputs import write_inputs
from running import Command, run_commands

MAX_SHOWN = 5  # listed differences per file
PROGRAMS = ("train_gpt2", "infer_gpt2", "tokenize", "toy_language")


def parse_command_line():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?", metavar="COMMIT", help="commit to compare the working tree with")
    parser.add_argument("--binaries", nargs=2, type=Path, metavar=("OLDDIR", "NEWDIR"),
                        help="compare the programs in these two folders, and build nothing")
    parser.add_argument("--only", metavar="PATTERN,...", default="*",
                        help="execute only runs with these names (* is a wildcard)")
    parser.add_argument("--messages", action="store_true", help="count messages that differ as differences")
    parser.add_argument("--list", action="store_true", help="list the runs and exit")
    parser.add_argument("--work", type=Path, metavar="DIR", default=GOLDEN / "runs",
                        help="folder for inputs and outputs; outputs of runs that differ are kept [build/golden/runs]")
    options = parser.parse_args()
    if not options.list and (options.commit is None) == (options.binaries is None):
        parser.error("give either COMMIT or --binaries OLDDIR NEWDIR")
    options.runs = [run for run in runs.RUNS if any(fnmatch(run.name, p) for p in options.only.split(","))]
    if not options.runs:
        parser.error(f"--only {options.only} matches no run; --list lists their names")
    return options


def find_programs(options):
    """The folders of the old and the new programs."""
    if options.binaries:
        folders = [folder.resolve() for folder in options.binaries]
    else:
        old, commit = build_commit(options.commit)
        folders = [old, build_working_tree()]
        print(f"old: {commit}\nnew: the working tree")
    for folder in folders:
        for program in PROGRAMS:
            if not (folder / program).is_file():
                raise BuildError(f"{folder} has no {program}")
    return folders


def exit_code_problems(run, old, new):
    """Lists exit codes that differ, and equal ones that are not those of runs.py."""
    for number, line in enumerate(run.commands):
        command, codes = Command.parse(line), (old.codes[number], new.codes[number])
        name = f"{number + 1}.{command.program()}"
        if codes[0] != codes[1]:
            yield f"{name}: exit code: {codes[0]} -> {codes[1]}  ({(old if codes[0] else new).last_lines[number]})"
        elif codes[0] != command.code:
            yield (f"{name}: exit code {codes[0]} on both sides, runs.py expects {command.code}: "
                   f"{new.last_lines[number]}")


def compare_run(run, folders, inputs, work):
    """Returns (lines of the report, differences in wording). Removes the outputs unless there is a report."""
    shutil.rmtree(work, ignore_errors=True)
    outcomes = []
    for side, folder in zip(("old", "new"), folders):  # both in the same folder, so that no path differs
        run_folder = work / "running"
        run_folder.mkdir(parents=True)
        outcomes.append(run_commands(run.commands, folder, inputs, run_folder))
        run_folder.rename(work / side)
    commands = [Command.parse(line) for line in run.commands]
    errors = {f"{n}.{command.program()}.stderr" for n, command in enumerate(commands, 1) if command.is_error}
    differences = folder_differences(work / "old", work / "new", errors)
    report = [*exit_code_problems(run, *outcomes), *limit_per_file([d for d in differences if not d.wording])]
    if not report:
        shutil.rmtree(work)
    return report, [d for d in differences if d.wording]


def limit_per_file(differences):
    """The first MAX_SHOWN differences of each file as text, then the number of further ones."""
    files = {}
    for difference in differences:
        files.setdefault(difference.file, []).append(difference)
    for file, group in files.items():
        yield from map(str, group[:MAX_SHOWN])
        if len(group) > MAX_SHOWN:
            yield f"{file}: and {len(group) - MAX_SHOWN} more differences"


def message_report(messages):
    """Lists each change of wording once: its first message, and the number of further ones."""
    groups = {}
    for run, difference in messages:
        key = tuple(map(without_values, (difference.old, difference.new)))
        groups.setdefault(key, []).append((run, difference))
    for group in groups.values():
        run, difference = group[0]
        more = f", and {len(group) - 1} more like it" if len(group) > 1 else ""
        yield f"    {run}: {difference.file}{more}\n        old: {difference.old}\n        new: {difference.new}"


def main():
    options = parse_command_line()
    if options.list:
        width = max(len(run.name) for run in options.runs)
        print("\n".join(f"{run.name:{width}}  {run.about}" for run in options.runs))
        return 0
    begin, failed, messages = time.monotonic(), 0, []
    try:
        folders = find_programs(options)
    except BuildError as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 2
    build_end = time.monotonic()
    inputs = write_inputs(options.work / "inputs")
    for run in options.runs:
        start = time.monotonic()
        report, wording = compare_run(run, folders, inputs, (options.work / run.name).resolve())
        failed += bool(report)
        messages += [(run.name, difference) for difference in wording]
        print(f"{'DIFFERS' if report else 'ok     '} {run.name} ({time.monotonic() - start:.1f} s)", flush=True)
        for line in report:
            print(f"    {line}", flush=True)
        if report:
            print(f"    outputs: {options.work / run.name}", flush=True)
    if messages:
        print("messages that differ" + ("" if options.messages else " (they count only with --messages)"))
        print("\n".join(message_report(messages)))
    print(f"{len(options.runs)} runs: {len(options.runs) - failed} equal, {failed} differ; "
          f"{len(messages)} messages differ; {time.monotonic() - build_end:.0f} s"
          + (f" after {build_end - begin:.0f} s of building" if options.commit else ""))
    return 1 if failed or (messages and options.messages) else 0


if __name__ == "__main__":
    sys.exit(main())
