#!/usr/bin/env python3
"""Compares the last calls of the ranks of a run that was ended because ranks were lost.

    scripts/lost.py OUT/lost [--calls N]

Each rank wrote RANK.json there. Prints where each rank was, the first call of each group in which its
ranks differ, and with --calls the last N calls of each rank. A rank without a file was killed, or did not
answer. Exits with 0 if a difference or a missing rank is printed, with 1 if there is none, and with 2
if the folder cannot be read.
"""
import argparse
import json
import sys
from pathlib import Path

import standard_output


SAME_LOSS = 60  # seconds between the reports of one loss


class BadFile(Exception):
    pass


def read_reports(folder):
    """The reports by rank."""
    if not folder.is_dir():
        raise BadFile(f"{folder} is not a folder; give OUT/lost of a run")
    reports = {}
    for path in sorted(folder.glob("*.json")):
        try:
            report = json.loads(path.read_text())
            reports[int(report["rank"])] = report
            report["time"] + report["step"]  # numbers
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadFile(f"{path} is not a report of a rank: {error}") from error
    if not reports:
        raise BadFile(f"{folder} has no report of a rank (RANK.json)")
    return reports


def text_of(call):
    """all-reduce 17 of 4096 fp32, group 'shard'"""
    text = f"{call['kind']} {call['number']}"
    if call["count"]:
        text += f" of {call['count']} {call['dtype']}"
    if "root" in call:
        text += f" from rank {call['root']}"
    if "peer" in call:
        text += f" with rank {call['peer']}"
    return f"{text}, group '{call['group']}'"


def place_of(report):
    """Where a rank was when it wrote its report."""
    work = f"step {report['step']}, {report['operation']}"
    if not report["calls"]:
        return f"{work}, before its first call"
    call = next((call for call in report["calls"] if call["left"] is None), None)
    if call is not None:
        return f"{work}, in {text_of(call)} since {call['entered']:.1f} s"
    call = report["calls"][-1]
    return f"{work}, in no call since {call['left']:.1f} s, after {text_of(call)}"


def same_operand(call):
    return {key: call.get(key) for key in ("kind", "count", "dtype", "root")}


def collectives(reports):
    """Of each group: its collectives by number, each by rank."""
    groups = {}
    for rank, report in reports.items():
        for call in report["calls"]:
            if "peer" not in call:
                group = groups.setdefault((call["group"], tuple(call["members"])), {})
                group.setdefault(call["number"], {})[rank] = call
    return groups


def differences(reports):
    """(age in seconds, text) of the first difference of each group. Ages are those of the rank that was there
    first; a report is written a moment after a loss, so they are comparable within about a second.
    """
    places = []
    for (name, members), calls in collectives(reports).items():
        present = [rank for rank in members if rank in reports]
        # A rank keeps only its last calls, so a number is compared among ranks that kept it or stand before it.
        first = {rank: min((n for n in calls if rank in calls[n]), default=None) for rank in present}
        last = {rank: max((n for n in calls if rank in calls[n]), default=0) for rank in present}
        for number in sorted(calls):
            here = calls[number]
            absent = [rank for rank in present if rank not in here and last[rank] < number and
                      (first[rank] is None or first[rank] <= number)]
            operands = [same_operand(call) for call in here.values()]
            if not absent and all(operand == operands[0] for operand in operands):
                continue
            age = max(call["entered"] for call in here.values())
            lines = [f"group '{name}' of ranks {', '.join(map(str, members))}, call {number}:"]
            lines += [f"  rank {rank}: {text_of(here[rank]) if rank in here else 'not entered'}" for rank in present]
            places.append((age, "\n".join(lines)))
            break
    return sorted(places, key=lambda item: -item[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="OUT/lost of the run")
    parser.add_argument("--calls", type=int, default=0, metavar="N", help="also print the last N calls of each rank")
    arguments = parser.parse_args()
    try:
        reports = read_reports(arguments.folder)
    except BadFile as error:
        print(f"lost.py: {error}", file=sys.stderr)
        return 2
    # A run that continued in the same folder leaves the reports of an earlier loss.
    newest = max(report["time"] for report in reports.values())
    old = [rank for rank, report in reports.items() if report["time"] < newest - SAME_LOSS]
    reports = {rank: report for rank, report in reports.items() if rank not in old}
    ranks = next(iter(reports.values()))["ranks"]
    missing = [rank for rank in range(ranks) if rank not in reports]
    for rank, report in sorted(reports.items()):
        print(f"rank {rank} ({report['host']}): {place_of(report)}")
        for call in report["calls"][-arguments.calls:] if arguments.calls > 0 else []:
            left = "not left" if call["left"] is None else f"left {call['left']:.3f} s"
            print(f"  step {call['step']}: {text_of(call)}, {call['bytes']} bytes, entered {call['entered']:.3f} s ago, {left}")
    for rank in missing:
        earlier = "; its file is of an earlier loss" if rank in old else ""
        print(f"rank {rank}: wrote no report; it was killed or did not answer{earlier}")
    places = differences(reports)
    if places:
        print("\nthe first difference of each group, the oldest one first:\n" + "\n".join(text for _, text in places))
    elif not missing:
        print("\nthe ranks entered the same calls")
    return 0 if places or missing else 1


if __name__ == "__main__":
    standard_output.run(main)
