#!/usr/bin/env python3
"""Measurements next to their predictions, the largest deviation first.

    compare.py --predictions FILE.json --out FILE.txt MEASUREMENTS.jsonl...
    compare.py --predictions FILE.json --dry --names FILE.txt MEASUREMENTS.jsonl...

MEASUREMENTS are the files of `profile_steps.py run` and of benchmarks with --json; a missing file counts as
empty. The table goes to --out, its predicted part also to stdout as `result: ` lines.

--dry is for a machine without a GPU, whose times mean nothing. It checks that each prediction matches a
line: a row of the profile in MEASUREMENTS, or a benchmark's line in --names (the output of --list). And it
checks that a slow line is listed first among synthetic measurements that are otherwise as predicted. Exit
code 1 if a check fails.
"""
import argparse
import json
import math
import sys
from fnmatch import fnmatchcase
from pathlib import Path


def read_records(paths):
    return [json.loads(line) for path in paths if Path(path).exists() for line in Path(path).read_text().splitlines()]


def is_ok(record):
    """A benchmark's line that is OK: the time of a wrong result means nothing."""
    return record["type"] == "result" and record.get("ok", False)


def bench_name(record):
    return f"{record['op']}/{record['variant']} {record['shape']} {record['dtype']}"


# ---- measurements of a prediction ----------------------------------------------------------


def measurements_of(prediction, records):
    """[(line, value)] in the prediction's unit; a prediction may match several lines or none."""
    kind, name = prediction["from"], prediction["name"]
    if kind == "profile":
        rows = {r["operation"]: r["ms_per_step"] for r in records
                if r["type"] == "profile" and r["label"] == prediction["run"]}
        operations = prediction["operations"]
        return [(name, sum(rows[o] for o in operations))] if all(o in rows for o in operations) else []
    if kind == "run":
        values = [r[prediction["field"]] for r in records
                  if r["type"] == "run" and r["label"] == prediction["run"] and prediction["field"] in r]
        return [(name, values[-1])] if values else []
    if kind == "roofs":
        values = [r[prediction["field"]] for r in records if r["type"] == "roofs"]
        return [(name, max(values))] if values else []
    return [(f"{name}: {bench_name(r)}", r[prediction["field"]]) for r in records
            if is_ok(r) and prediction["field"] in r and fnmatchcase(bench_name(r), prediction["lines"])]


def deviation(value, prediction):
    return value / prediction["predicted"] - 1


def compare(predictions, records):
    """Rows (deviation, within the band, value, prediction, line), the largest deviation in either direction first."""
    rows = [(deviation(value, p), p["low"] <= value <= p["high"], value, p, line)
            for p in predictions for line, value in measurements_of(p, records)]
    return sorted(rows, key=lambda row: -abs(math.log1p(max(row[0], -0.999999))))


def table_lines(rows):
    lines = [f"{'deviation':>9}   {'measured':>10} {'predicted':>10}  {'band':<18} {'unit':<8} line"]
    for difference, within, value, p, line in rows:
        band = f"{p['low']:g} to {p['high']:g}"
        lines.append(f"{100 * difference:+8.1f}% {' ' if within else '!'} {value:10.4g} {p['predicted']:10.4g}  {band:<18} "
                     f"{p['unit']:<8} {line}")
    return lines


# ---- everything measured ---------------------------------------------------------------------


def measurement_lines(records):
    """Every measured line, predicted or not."""
    lines = []
    for r in records:
        if r["type"] == "profile":
            rate = r.get("flop_per_s", r.get("bytes_per_s"))
            unit = "TFLOP/s" if "flop_per_s" in r else "TB/s"
            lines.append(f"{r['label']:<16} {r['operation']:<42} {r['calls_per_step']:6.4g} calls {r['ms_per_step']:10.4f} ms"
                         f" {r['percent']:6.2f}%" + (f"  {1e-12 * rate:.4g} {unit}" if rate else ""))
        elif is_ok(r) and "median_us" in r:
            lines.append(f"{bench_name(r):<64} {r['median_us']:10.1f} us {r['tflop_s']:8.2f} TFLOP/s {r['gb_s']:7.0f} GB/s "
                         f"{r['percent_of_roof']:6.1f}% of roof" + (f"  {r['note']}" if "note" in r else ""))
    return lines


def wrong_lines(records):
    return [f"{bench_name(r)}: {'; '.join(r['faults'])}" for r in records if r["type"] == "result" and not is_ok(r)]


def plan_lines(records):
    """The time of the variant in use and of the fastest other one, per product. A plan with wrong results on
    inputs of ones, which are under the op's name with _1, is excluded.
    """
    wrong = {(r["op"], r["shape"], r["variant"]) for r in records if r["type"] == "result" and not is_ok(r)}
    groups = {}
    for r in records:
        if is_ok(r) and "median_us" in r and (r["op"] + "_1", r["shape"], r["variant"]) not in wrong:
            groups.setdefault((r["op"], r["shape"], r["dtype"]), {})[r["variant"]] = r["median_us"]
    lines = []
    for (op, shape, dtype), times in groups.items():
        rest = {variant: us for variant, us in times.items() if variant != "used"}
        if "used" not in times or not rest:
            continue
        best = min(rest, key=rest.get)
        lines.append(f"{op} {shape} {dtype}: used {times['used']:.1f} us, {best} {rest[best]:.1f} us "
                     f"({times['used'] / rest[best]:.3f}x)")
    return lines


# ---- without a GPU -------------------------------------------------------------------------


def unmatched_predictions(predictions, records, names):
    """Predictions that no line matches."""
    missing = []
    for p in predictions:
        if p["from"] == "bench":
            has_line = any(fnmatchcase(name, p["lines"]) for name in names)
        elif p["from"] == "roofs":
            has_line = True  # every timed benchmark prints them
        else:
            has_line = bool(measurements_of(p, records))
        if not has_line:
            missing.append(p["name"])
    return missing


def synthetic_records(predictions, slow):
    """Records that are as predicted, except that `slow` has half its speed."""
    records = []
    for p in predictions:
        value = p["predicted"]
        if p is slow:
            value = 2 * value if p["unit"] == "ms" else value / 2
        if p["from"] == "profile":
            parts = len(p["operations"])
            records += [{"type": "profile", "label": p["run"], "operation": o, "ms_per_step": value / parts} for o in p["operations"]]
        elif p["from"] == "run":
            records.append({"type": "run", "label": p["run"], p["field"]: value})
        elif p["from"] == "roofs":
            records.append({"type": "roofs", p["field"]: value})
        else:
            op, variant = p["lines"].split(" ")[0].split("/")
            records.append({"type": "result", "ok": True, "op": op, "variant": variant, "shape": p["lines"].split(" ", 1)[1].rsplit(" ", 1)[0],
                            "dtype": "bf16", p["field"]: value})
    return records


def check_dry_run(predictions, records, names):
    missing = unmatched_predictions(predictions, records, names)
    if missing:
        print(f"result: FAILED: no line matches these predictions: {'; '.join(missing)}")
        return 1
    print(f"result: {len(predictions)} predictions, each matches a line")
    # The others are excluded: several predictions can contain the same operation of a profile.
    bench_predictions = [p for p in predictions if p["from"] == "bench"]
    for slow in bench_predictions:
        first = compare(bench_predictions, synthetic_records(bench_predictions, slow))[0]
        if first[3] is not slow or first[1]:
            print(f"result: FAILED: in synthetic measurements, the slow '{slow['name']}' is not listed first")
            return 1
    print(f"result: a planted slow line is listed first, for each of {len(bench_predictions)} predictions")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predictions", required=True, metavar="FILE.json", help="predictions with their bands")
    parser.add_argument("--out", metavar="FILE.txt", help="write the table to this file; required without --dry")
    parser.add_argument("--dry", action="store_true", help="check the predictions instead of the speed")
    parser.add_argument("--names", metavar="FILE.txt", help="output of the benchmarks' --list, for --dry")
    parser.add_argument("measurements", nargs="+", metavar="MEASUREMENTS.jsonl",
                        help="measured records; a missing file counts as empty")
    o = parser.parse_args()
    file = json.loads(Path(o.predictions).read_text())
    predictions, records = file["predictions"], read_records(o.measurements)
    if o.dry:
        return check_dry_run(predictions, records, Path(o.names).read_text().splitlines())
    rows = compare(predictions, records)
    measured_ids = {id(row[3]) for row in rows}
    lines = [*table_lines(rows), *(f"WRONG: {line}" for line in wrong_lines(records)),
             *(f"not measured: {p['name']}" for p in predictions if id(p) not in measured_ids)]
    outside = sum(not row[1] for row in rows)
    summary = f"{len(rows)} lines against predictions for {file['device']}, {outside} outside the band (!)"
    for line in [summary, *lines]:
        print(f"result: {line}")
    sections = [("", [summary, *lines]), ("Plans: the variant in use and the fastest other one", plan_lines(records)),
                ("All measured lines", measurement_lines(records))]
    Path(o.out).write_text("\n\n".join("\n".join(filter(None, [title, *body])) for title, body in sections) + "\n")
    return 0


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parent.parent))
    import standard_output
    standard_output.run(main)
