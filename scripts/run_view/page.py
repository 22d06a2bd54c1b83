"""Panels as one self-contained HTML page: its data, style and script are inside it."""
import html
import json
import os
from pathlib import Path

from run_view.gnuplot import LEVEL_COLOURS
from run_view.panels import COLOURS, X_LABELS

HERE = Path(__file__).resolve().parent


def table(runs):
    """The final figures of the runs, one column per run."""
    figures = [run.summary() for run in runs]
    names = list(dict.fromkeys(name for run in figures for name in run))
    swatch = '<i class="swatch c{}"></i>' if len(runs) > 1 else ""
    head = "".join(f'<th scope="col">{swatch.format(i % len(COLOURS))}{html.escape(run.name)}</th>'
                   for i, run in enumerate(runs))
    rows = "".join(f'<tr><th scope="row">{html.escape(name)}</th>'
                   + "".join(f"<td>{html.escape(run.get(name, '–'))}</td>" for run in figures) + "</tr>\n"
                   for name in names)
    return f"<table><thead><tr><th></th>{head}</tr></thead>\n<tbody>\n{rows}</tbody></table>"


def round_values(points):
    """Rounds values to seven digits, which are more than a screen shows."""
    return [[float(f"{x:.10g}"), float(f"{y:.7g}")] for x, y in points]


def data(panels, runs, x, levels):
    return {"runs": len(runs), "x": X_LABELS[x], "panels": [
        {"label": panel.label, "fromZero": panel.from_zero,
         "levels": [{"name": name, "value": value, "colour": LEVEL_COLOURS[i % len(LEVEL_COLOURS)]}
                    for i, (name, value) in enumerate(levels if panel.key == "loss" else [])],
         "curves": [{"run": curve.run, "part": curve.part, "name": curve.name, "dots": curve.dots,
                     "points": round_values(curve.points), "trend": round_values(curve.trend)} for curve in panel.curves]}
        for panel in panels]}


def write(panels, runs, out, x="step", levels=(), title=""):
    """Writes the page atomically."""
    # Inside a script element only </script> and <!-- have a meaning.
    content = json.dumps(data(panels, runs, x, list(levels)), allow_nan=False).replace("<", "\\u003c")
    heading = html.escape(title or ", ".join(run.name for run in runs))
    text = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{heading}</title>
<style>
{(HERE / "page.css").read_text("utf-8")}</style>
</head>
<body>
<h1>{heading}</h1>
<noscript><p>The curves are drawn by this page's own script, which is switched off here.</p></noscript>
<div id="panels"></div>
<h2>Final figures</h2>
<div class="scroll">
{table(runs)}
</div>
<script type="application/json" id="data">{content}</script>
<script>
{(HERE / "page.js").read_text("utf-8")}</script>
</body>
</html>
"""
    draft = out.with_name(out.name + ".tmp")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, out)
