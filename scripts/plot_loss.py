#!/usr/bin/env python3
"""Draws the losses of one or more run logs against the step, as SVG or PNG, with gnuplot.

    scripts/plot_loss.py RUN.jsonl [RUN2.jsonl ...] --out loss.svg --line "entropy=2.31"

A run log holds one JSON object a line: training lines have `step` and `loss`, evaluation lines
`step` and `val_loss`. Each --line draws a dashed level with its name, such as the loss that no
model can beat.
"""
import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

COLOURS = ["#1f5fa8", "#c44e1b", "#2f8f4e", "#7a4fa3", "#8a6d1a"]
LEVEL_COLOURS = ["#444444", "#a03050", "#007070", "#806000"]


def read_log(path):
    """[(step, loss)] and [(step, val_loss)] of a run log; lines without either are passed over."""
    series = {"loss": {}, "val_loss": {}}
    with open(path) as log:
        for number, line in enumerate(log, 1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
            except ValueError:
                sys.exit(f"plot_loss.py: {path}:{number} is not JSON")
            for key, points in series.items():
                value = entry.get(key)
                # A resumed run writes some steps again: the last word counts.
                if "step" in entry and isinstance(value, (int, float)) and math.isfinite(value):
                    points[entry["step"]] = value
    return sorted(series["loss"].items()), sorted(series["val_loss"].items())


def smooth(points, share=0.02):
    """A centred running mean over about `share` of all points: the trend through the noise."""
    reach = max(1, int(len(points) * share / 2))
    sums = [0.0]
    for _, value in points:
        sums.append(sums[-1] + value)
    out = []
    for i, (step, _) in enumerate(points):
        r = min(reach, i, len(points) - 1 - i)
        out.append((step, (sums[i + r + 1] - sums[i - r]) / (2 * r + 1)))
    return out


def find_gnuplot():
    """The program and the environment to start it in."""
    environment = dict(os.environ)
    deps = Path(os.environ.get("DEPS") or Path(__file__).resolve().parent.parent / "deps").resolve()
    found = Path(shutil.which("gnuplot") or shutil.which("gnuplot-nox") or deps / "usr/bin/gnuplot-nox")
    if not found.exists():
        sys.exit("plot_loss.py: gnuplot is missing: scripts/setup.sh installs it (package gnuplot-nox)")
    # Unpacked by setup.sh --prefix: its libraries and fonts lie beside it. make puts it on PATH.
    if deps in found.resolve().parents:
        libraries = [str(p) for p in (deps / "usr/lib").glob("*-linux-gnu")]
        environment["LD_LIBRARY_PATH"] = ":".join(libraries + [environment.get("LD_LIBRARY_PATH", "")])
        config = Path(tempfile.gettempdir(), f"llmc-fonts-{os.getuid()}.conf")
        config.write_text(f'<?xml version="1.0"?><fontconfig><dir>{deps}/usr/share/fonts</dir>'
                          "<dir>/usr/share/fonts</dir></fontconfig>\n")
        environment["FONTCONFIG_FILE"] = str(config)
    return str(found), environment


def block(name, points):
    return f"${name} << EOD\n" + "".join(f"{x} {y!r}\n" for x, y in points) + "EOD\n"


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def script(logs, levels, out, title):
    """The gnuplot program that draws it all."""
    png = out.suffix == ".png"
    lines = [f"set terminal {'pngcairo' if png else 'svg'} size 900,560 enhanced font 'DejaVu Sans,14'"
             + ("" if png else " background '#ffffff'"),
             f"set output {quoted(str(out))}", "set encoding utf8",
             f"set title {quoted(title)} noenhanced", "set xlabel 'step'",
             "set ylabel 'loss (nats per token)'", "set border 3 lc rgb '#666666'",
             "set tics nomirror out", "set grid ytics lc rgb '#e4e4e4' lt 1 lw 1",
             "set key top right noenhanced spacing 1.3 samplen 2.5", "set offsets 0, 0, graph 0.06, graph 0.04",
             f"set xrange [0:{max(points[-1][0] for _, *curves in logs for points in curves if points) or 1}]"]
    data, plots = [], []
    for i, (name, train, val) in enumerate(logs):
        colour = COLOURS[i % len(COLOURS)]
        prefix = f"{name}: " if len(logs) > 1 else ""
        if train:
            data += [block(f"train{i}", train), block(f"smooth{i}", smooth(train))]
            plots.append(f"$train{i} with lines lw 1 lc rgb '#a0{colour[1:]}' notitle")
            plots.append(f"$smooth{i} with lines lw 2 lc rgb '{colour}' title {quoted(prefix + 'training')}")
        if val:
            data.append(block(f"val{i}", val))
            # One run: the two curves in two colours; several: a colour a run.
            val_colour = COLOURS[1] if len(logs) == 1 else colour
            # Points alone: a line between evaluations far apart would show what nobody measured.
            plots.append(f"$val{i} with points pt 7 ps 0.8 lc rgb '{val_colour}' "
                         f"title {quoted(prefix + 'validation')}")
    for i, (name, value) in enumerate(levels):
        colour = LEVEL_COLOURS[i % len(LEVEL_COLOURS)]
        plots.append(f"{value!r} with lines dt 2 lw 2 lc rgb '{colour}' title {quoted(f'{name} = {value:.3f}')}")
    return "\n".join(lines) + "\n" + "".join(data) + "plot " + ", \\\n  ".join(plots) + "\n"


def level(text):
    name, equals, value = text.rpartition("=")
    try:
        return name, float(value)
    except ValueError:
        equals = ""
    if not equals:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=VALUE")


def main():
    parser = argparse.ArgumentParser(description="Draw the losses of run logs against the step.")
    parser.add_argument("logs", nargs="+", metavar="RUN.jsonl")
    parser.add_argument("--out", default="loss.svg", help="picture to write, .svg or .png (default: loss.svg)")
    parser.add_argument("--line", action="append", default=[], type=level, metavar="NAME=VALUE",
                        help="a dashed level, such as entropy=2.31; may be repeated")
    parser.add_argument("--title", default="", help="title of the picture")
    options = parser.parse_args()
    out = Path(options.out)
    if out.suffix not in (".svg", ".png"):
        parser.error(f"--out {out}: the name must end in .svg or .png")
    logs = []
    for path in options.logs:
        try:
            train, val = read_log(path)
        except OSError as error:
            sys.exit(f"plot_loss.py: {path}: {error.strerror}")
        if not train and not val:
            sys.exit(f"plot_loss.py: {path}: no line has a step with a loss or val_loss")
        logs.append((Path(path).stem, train, val))
    program, environment = find_gnuplot()
    out.parent.mkdir(parents=True, exist_ok=True)
    run = subprocess.run([program], input=script(logs, options.line, out, options.title),
                         text=True, env=environment, capture_output=True)
    if run.returncode != 0 or not out.exists():
        sys.exit(f"plot_loss.py: gnuplot failed:\n{run.stderr}")
    print(f"loss plot: {out}")


if __name__ == "__main__":
    main()
