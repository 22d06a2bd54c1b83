"""Panels as SVG or PNG, drawn by gnuplot."""
import math
import os
import re
import shutil
import subprocess
import tempfile
import textwrap
from pathlib import Path

from run_view.panels import COLOURS, X_LABELS

MARK_COLOUR, MARK_STYLE = "#888888", "dt 3 lw 1"
LEVEL_COLOURS = ["#444444", "#a03050", "#007070", "#806000"]
WIDTH, ROW_HEIGHT, SINGLE_SIZE = 1200, 330, (900, 560)
TITLE_HEIGHT = 34  # pixels for the title
PICTURE_ENDS = {".svg": b"</svg>", ".png": b"IEND\xaeB`\x82", ".pdf": b"%%EOF"}


class GnuplotError(Exception):
    """gnuplot is missing or failed."""


def find_gnuplot():
    """The program and its environment."""
    environment = dict(os.environ)
    root = Path(__file__).resolve().parent.parent.parent
    deps = Path(os.environ.get("DEPS") or root / "deps").resolve()
    program = Path(shutil.which("gnuplot") or shutil.which("gnuplot-nox") or deps / "usr/bin/gnuplot-nox")
    if not program.exists():
        raise GnuplotError("gnuplot is missing; run scripts/setup.sh to install it (package gnuplot-nox), "
                           "or write a page, which needs no gnuplot: --out X.html")
    # If setup.sh --prefix unpacked it, its libraries and fonts are in that folder too. make puts it on PATH.
    if deps in program.resolve().parents:
        libraries = [str(p) for p in (deps / "usr/lib").glob("*-linux-gnu")]
        environment["LD_LIBRARY_PATH"] = ":".join(libraries + [environment.get("LD_LIBRARY_PATH", "")])
        config = Path(tempfile.gettempdir(), f"llmc-fonts-{os.getuid()}.conf")
        config.write_text(f'<?xml version="1.0"?><fontconfig><dir>{deps}/usr/share/fonts</dir>'
                          "<dir>/usr/share/fonts</dir></fontconfig>\n")
        environment["FONTCONFIG_FILE"] = str(config)
    return str(program), environment


def terminal(out, width, height):
    """The command that selects the format of the picture `out`; sizes in pixels."""
    kind = {".png": "pngcairo", ".pdf": "pdfcairo"}.get(out.suffix, "svg")
    size = f"{width / 96:.3f}in,{height / 96:.3f}in" if kind == "pdfcairo" else f"{width},{height}"
    points = 10 if kind == "pdfcairo" else 13
    return f"set terminal {kind} size {size} enhanced font 'DejaVu Sans,{points}'" \
           + (" background '#ffffff'" if kind == "svg" else "")


def write_picture(out, make_script):
    """Writes the picture `out` by the gnuplot program that make_script(path of a draft) returns. Throws GnuplotError."""
    program, environment = find_gnuplot()
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        draft = Path(folder, "draft" + out.suffix)
        done = subprocess.run([program], input=make_script(draft), text=True, encoding="utf-8", env=environment,
                              capture_output=True)
        if done.returncode != 0 or not draft.exists() or draft.stat().st_size == 0:
            raise GnuplotError(f"gnuplot failed:\n{done.stderr}")
        # gnuplot ends with code 0 if the disk is full.
        if not draft.read_bytes().rstrip().endswith(PICTURE_ENDS[out.suffix]):
            raise GnuplotError(f"{out} cannot be written: gnuplot wrote only a part of the picture")
        os.replace(draft, out)


def quote(text):
    return "'" + text.replace("'", "''").replace("\n", " ") + "'"


def colour_of(curve, runs):
    """One run: one colour per kind of curve; several runs: one colour per run."""
    return COLOURS[(curve.part if runs == 1 else curve.run) % len(COLOURS)]


def data_block(name, points):
    return f"${name} << EOD\n" + "".join(f"{x!r} {y!r}\n" for x, y in points) + "EOD\n"


def plot_commands(panel, number, runs, resumed):
    """(data blocks, plot command) of a panel. `resumed`: whether the legend explains the lines of resume points."""
    data, plots = [], []
    for i, curve in enumerate(panel.curves):
        name, colour = f"p{number}c{i}", colour_of(curve, runs)
        # Kinds of curve that share a run's colour differ in dashes.
        dash = f"dt {curve.part + 1} " if runs > 1 and curve.part and not curve.dots else ""
        data.append(data_block(name, curve.points))
        title = f"title {quote(curve.name)}"
        if curve.dots:
            plots.append(f"${name} with points pt 7 ps 0.8 lc rgb '{colour}' {title}")
        elif curve.trend:
            data.append(data_block(name + "t", curve.trend))
            plots.append(f"${name} with lines lw 1 lc rgb '#a0{colour[1:]}' notitle")
            plots.append(f"${name}t with lines {dash}lw 2 lc rgb '{colour}' {title}")
        else:
            # A single point draws no line.
            style = "lines" if len(curve.points) > 1 else "points pt 7 ps 0.6"
            plots.append(f"${name} with {style} {dash}lw 2 lc rgb '{colour}' {title}")
    for i, (name, value) in enumerate(panel.levels):
        colour = LEVEL_COLOURS[i % len(LEVEL_COLOURS)]
        plots.append(f"{value!r} with lines dt 2 lw 2 lc rgb '{colour}' title {quote(f'{name} = {value:.3f}')}")
    if resumed:
        plots.append(f"NaN with lines {MARK_STYLE} lc rgb '{MARK_COLOUR}' title 'resumed'")
    return "".join(data), "plot " + ", \\\n  ".join(plots) + "\n"


def resume_lines(marks, runs):
    """Vertical lines in every panel. One run: grey; several runs: the run's colour."""
    colours = [MARK_COLOUR if runs == 1 else COLOURS[mark.run % len(COLOURS)] for mark in marks]
    return [f"set arrow from {mark.x!r}, graph 0 to {mark.x!r}, graph 1 nohead back {MARK_STYLE} lc rgb '{colour}'"
            for mark, colour in zip(marks, colours)]


def value_range(panel):
    """The range of the vertical axis, with a small margin."""
    values = [point[1] for curve in panel.curves for point in curve.points] + [value for _, value in panel.levels]
    low, high = min(values), max(values)
    if panel.from_zero:
        low = min(low, 0.0)
    if high - low <= 1e-12 * abs(high):
        low, high = (low if panel.from_zero else low - 0.5), high + (abs(high) or 1.0)
    margin = 0.05 * (high - low)
    return (0.0 if panel.from_zero and low == 0 else low - margin), high + margin


def tick_list(low, high, count):
    """About `count` labels with their positions, at distances of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10((high - low) / count))
    step = next(f * power for f in (1, 2, 5, 10) if f * power >= 0.999 * (high - low) / count)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return ", ".join(f"'{short(i * step, high)}' {i * step!r}" for i in range(first, last + 1))


def short(value, largest):
    """A label in the unit that suits the largest value of an axis."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if largest >= 10 * size and value:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def title_lines(label):
    """The title of the vertical axis in lines as long as the axis is high."""
    return textwrap.wrap(label, 24)


def left_margin(panels):
    """The left margin, in characters, for the labels and the title of every panel."""
    labels = [len(label) for panel in panels for label in re.findall("'([^']*)'", tick_list(*value_range(panel), 6))]
    return max(13, max(labels, default=1) + 3 + 2 * max(len(title_lines(panel.label)) for panel in panels))


def axis_title(label):
    lines = title_lines(label)
    return "set ylabel " + ".\"\\n\".".join(map(quote, lines)) + f" noenhanced offset {0.7 - len(lines):.1f},0"


def layout(count):
    """The number of rows, and (left, bottom, width, height) of each panel as fractions of the picture. The
    first panel has the full width."""
    rows = 1 + count // 2
    boxes = [(0.0, 1 - 1 / rows, 1.0, 1 / rows)]
    for i in range(count - 1):
        last_alone = i == count - 2 and i % 2 == 0
        boxes.append((0.5 * (i % 2), 1 - (2 + i // 2) / rows, 1.0 if last_alone else 0.5, 1 / rows))
    return rows, boxes


def script(panels, marks, runs, out, x, title):
    """The gnuplot program that draws all panels."""
    rows, boxes = layout(len(panels))
    width, height = SINGLE_SIZE if len(panels) == 1 else (WIDTH, ROW_HEIGHT * rows + TITLE_HEIGHT * bool(title))
    panel_fraction = 1 - TITLE_HEIGHT / height if title else 1
    lines = [terminal(out, width, height),
             f"set output {quote(str(out))}", "set encoding utf8",
             "set border 3 lc rgb '#666666'", "set tics nomirror out", "set grid ytics lc rgb '#e4e4e4' lt 1 lw 1",
             f"set key {'tmargin left horizontal' if runs > 1 else 'top right'} noenhanced spacing 1.2 samplen 2.5 "
             "opaque fillcolor '#ffffff'",
             f"set xlabel {quote(X_LABELS[x])}", f"set lmargin {left_margin(panels)}", "set rmargin 4", "set bmargin 4"]
    lines += resume_lines(marks, runs)
    lines.append(f"set multiplot title {quote(title)} noenhanced" if title else "set multiplot")
    max_x = max(point[0] for panel in panels for curve in panel.curves for point in curve.points) or 1
    for i, (panel, (left, bottom, w, h)) in enumerate(zip(panels, boxes)):
        resumed = bool(marks) and i == 0
        data, plot = plot_commands(panel, i, runs, resumed)
        # The legend of the first panel maps colours to runs; the other legends have only what differs inside
        # their panel.
        many = len(panel.curves) + len(panel.levels) > 2 and i > 0  # a legend inside would hide curves
        place = "set key tmargin left horizontal" if many or runs > 1 else "set key inside top right vertical"
        key = place if panel.parts > 1 or panel.levels or resumed or i == 0 and runs > 1 else "unset key"
        low, high = value_range(panel)
        lines += [data + key, f"set origin {left},{bottom * panel_fraction}", f"set size {w},{h * panel_fraction}",
                  f"set title {quote(panel.note)} noenhanced font ',11' offset 0,-0.6",
                  axis_title(panel.label), f"set yrange [{low!r}:{high!r}]",
                  f"set ytics ({tick_list(low, high, 6)})", f"set xrange [0:{max_x!r}]",
                  f"set xtics ({tick_list(0, max_x, 10 if w == 1 else 6)})", plot]
    return "\n".join(lines) + "\nunset multiplot\n"


def draw(panels, marks, runs, out, x="step", title=""):
    """Writes the picture; `runs` is the number of runs. Throws GnuplotError."""
    write_picture(out, lambda draft: script(panels, marks, runs, draft, x, title))
