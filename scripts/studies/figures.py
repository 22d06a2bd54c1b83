"""Figures of a study: curves, bars whose functional values are hatched, and timelines. Drawn by gnuplot as SVG, PNG and PDF."""
import json
from dataclasses import dataclass, field

from run_view.gnuplot import quote, terminal, write_picture
from run_view.panels import COLOURS

WIDTH, HEIGHT = 900, 430
FORMATS = (".svg", ".png", ".pdf")
SOLID = "fs solid 0.85 noborder"


def hatched(colour):
    return f"fs pattern 4 border rgb '{colour}'"


@dataclass
class Curve:
    name: str
    points: list             # (x, y) or (x, y, lowest, highest)
    dots: bool = False       # a line with points: few values, such as numbers of ranks
    dashed: bool = False     # not a result: an ideal or a fit


@dataclass
class Curves:
    """Curves over one axis."""
    name: str
    title: str
    x_label: str
    y_label: str
    curves: list
    from_zero: bool = True
    x_ticks: list = field(default_factory=list)   # positions; empty: automatic

    def is_empty(self):
        return not any(curve.points for curve in self.curves)

    def script(self, out):
        lines = header(self, out, HEIGHT, len(self.curves))
        lines.append(f"set xlabel {quote(self.x_label)} noenhanced")
        if self.from_zero:
            lines.append("set yrange [0:*]")
        if self.x_ticks:
            low, high = min(self.x_ticks), max(self.x_ticks)
            margin = 0.08 * max(high - low, 1)
            lines += [f"set xtics ({', '.join(map(repr, self.x_ticks))})", f"set xrange [{low - margin!r}:{high + margin!r}]"]
        plots = []
        for i, curve in enumerate(self.curves):
            if not curve.points:
                continue
            points = [point if len(point) == 4 else (*point, point[1], point[1]) for point in curve.points]
            lines.append(f"$c{i} << EOD\n" + "".join(" ".join(map(repr, point)) + "\n" for point in points) + "EOD")
            colour = "#888888" if curve.dashed else COLOURS[i % len(COLOURS)]
            kind = "linespoints pt 7 ps 0.9" if curve.dots or len(points) == 1 else "lines"
            # Colours repeat, so the next round of curves is dashed.
            dash = 2 if curve.dashed else 1 + 2 * (i // len(COLOURS))
            plots.append(f"$c{i} using 1:2 with {kind} lw 2 dt {dash} lc rgb '{colour}' "
                         f"title {quote(curve.name)}")
            if any(low != high for _, _, low, high in points):
                plots.append(f"$c{i} using 1:2:3:4 with yerrorbars pt 7 ps 0.1 lw 1 lc rgb '{colour}' notitle")
        return "\n".join(lines) + "\nplot " + ", \\\n  ".join(plots) + "\n"


@dataclass
class Bars:
    """Horizontal bars. `rows`: (label, values of the parts, whether the row is functional). Parts are stacked."""
    name: str
    title: str
    x_label: str
    parts: list
    rows: list

    def is_empty(self):
        return not self.rows

    def script(self, out):
        lines = header(self, out, 110 + 34 * len(self.rows), len(self.parts) + 1)
        labels = ", ".join(f"{quote(label)} {-i}" for i, (label, _, _) in enumerate(self.rows))
        lines += ["unset ytics", f"set ytics ({labels}) noenhanced", f"set yrange [{-len(self.rows) + 0.4}:0.6]",
                  f"set lmargin {3 + 0.85 * max(len(label) for label, _, _ in self.rows)}",
                  "set grid xtics lc rgb '#e4e4e4' lt 1 lw 1", f"set xlabel {quote(self.x_label)} noenhanced",
                  "set xrange [0:*]"]
        plots = []
        for part, name in enumerate(self.parts):
            for functional in (False, True):
                points = [(sum(values[:part]), sum(values[:part + 1]), -i) for i, (_, values, is_functional)
                          in enumerate(self.rows) if is_functional == functional and values[part]]
                if not points:
                    continue
                block = f"$p{part}{int(functional)}"
                lines.append(f"{block} << EOD\n" + "".join(
                    f"{low!r} {y!r} {low!r} {high!r} {y - 0.34!r} {y + 0.34!r}\n" for low, high, y in points) + "EOD")
                # The legend shows the solid colour, and "functional" is explained once.
                first = not functional or all(is_functional for _, _, is_functional in self.rows)
                colour = COLOURS[part % len(COLOURS)]
                plots.append(f"{block} using 1:2:3:4:5:6 with boxxyerror {hatched(colour) if functional else SOLID} "
                             f"fc rgb '{colour}' " + (f"title {quote(name)}" if first else "notitle"))
        if any(is_functional for _, _, is_functional in self.rows):
            plots.append(f"NaN with boxes {hatched('#666666')} fc rgb '#666666' title 'hatched: functional'")
        return "\n".join(lines) + "\nplot " + ", \\\n  ".join(plots) + "\n"


@dataclass
class Timeline:
    """What each row does over time. `rows`: (label, [(begin, end, index of the kind, text)])."""
    name: str
    title: str
    x_label: str
    kinds: list
    rows: list

    def is_empty(self):
        return not any(boxes for _, boxes in self.rows)

    def script(self, out):
        lines = header(self, out, 110 + 44 * len(self.rows), len(self.kinds))
        labels = ", ".join(f"{quote(label)} {-i}" for i, (label, _) in enumerate(self.rows))
        lines += [f"set ytics ({labels}) noenhanced", f"set yrange [{-len(self.rows) + 0.4}:0.6]",
                  f"set lmargin {3 + 0.85 * max(len(label) for label, _ in self.rows)}", "unset grid", "set xrange [0:*]",
                  f"set xlabel {quote(self.x_label)} noenhanced"]
        plots = []
        for kind, name in enumerate(self.kinds):
            boxes = [(begin, end, -i, text) for i, (_, row) in enumerate(self.rows) for begin, end, one, text in row if one == kind]
            if not boxes:
                continue
            lines.append(f"$k{kind} << EOD\n" + "".join(f"{begin!r} {y!r} {begin!r} {end!r} {y - 0.4!r} {y + 0.4!r} "
                         f"{(begin + end) / 2!r} {json.dumps(text)}\n" for begin, end, y, text in boxes) + "EOD")
            plots += [f"$k{kind} using 1:2:3:4:5:6 with boxxyerror fs solid 0.7 border rgb 'white' fc rgb "
                      f"'{COLOURS[kind % len(COLOURS)]}' title {quote(name)}", f"$k{kind} using 7:2:8 with labels notitle"]
        return "\n".join(lines) + "\nplot " + ", \\\n  ".join(plots) + "\n"


def header(figure, out, height, entries):
    """The first commands. The legend, with this many entries in two columns, is below the plot."""
    rows = -(-entries // 2)
    return [terminal(out, WIDTH, height + 22 * rows), f"set output {quote(str(out))}", "set encoding utf8",
            "set border 3 lc rgb '#666666'", "set tics nomirror out", "set grid ytics lc rgb '#e4e4e4' lt 1 lw 1",
            f"set title {quote(figure.title)} noenhanced",
            f"set bmargin {4 + 1.2 * rows}", "set rmargin 5",
            f"set key at screen 0.51, screen 0.01 center bottom vertical maxrows {rows} Left reverse noenhanced samplen 2",
            f"set ylabel {quote(getattr(figure, 'y_label', ''))} noenhanced"]


def write_figure(folder, figure):
    """Writes NAME.svg, NAME.png and NAME.pdf. Throws GnuplotError."""
    for suffix in FORMATS:
        write_picture(folder / (figure.name + suffix), figure.script)
