"""Panels as one self-contained HTML page: its data, style and script are inside it."""
import html
import json
import os
from pathlib import Path

from run_view.gnuplot import LEVEL_COLOURS
from run_view.history import printable, setting_rows
from run_view.panels import COLOURS, X_LABELS, loss_note

HERE = Path(__file__).resolve().parent


def swatch(run, runs):
    """The colour of a run, if there are several."""
    return f'<i class="swatch c{run % len(COLOURS)}"></i>' if runs > 1 else ""


def columns(runs):
    """The headings of the columns of a table, as HTML."""
    return [swatch(i, len(runs)) + html.escape(run.name) for i, run in enumerate(runs)]


def table(headings, rows, kind=""):
    """A table of (name, [text per column])."""
    head = "".join(f'<th scope="col">{heading}</th>' for heading in headings)
    body = "".join(f'<tr><th scope="row">{html.escape(name)}</th>'
                   + "".join(f"<td>{html.escape(text)}</td>" for text in texts) + "</tr>\n" for name, texts in rows)
    return (f'<div class="scroll">\n<table class="{kind}"><thead><tr><th></th>{head}</tr></thead>\n'
            f"<tbody>\n{body}</tbody></table>\n</div>\n")


def final_figures(runs):
    figures = [run.summary() for run in runs]
    names = dict.fromkeys(name for run in figures for name in run)
    note = loss_note(runs)
    rows = [(name, [run.get(name, "–") for run in figures]) for name in names]
    return ("<h2>Final figures</h2>\n" + table(columns(runs), rows)
            + (f'<p class="note">nats per token: {html.escape(note)}</p>\n' if note else ""))


def rank_memory(runs):
    """A table of the memory of each rank, planned and in use; nothing if no run has several ranks."""
    text = ""
    for run in runs:
        ranks = run.memory_of_ranks()
        if len(ranks) < 2:
            continue
        labels = list(dict.fromkeys(label for row in ranks for label in row))
        rows = [(f"rank {rank}", [f"{row[label]:,.1f} MiB" if label in row else "–" for label in labels])
                for rank, row in enumerate(ranks)]
        text += f"<h2>Memory of each rank{f' of {html.escape(run.name)}' if len(runs) > 1 else ''}</h2>\n"
        text += table(labels, rows)
    if text:
        text += ('<p class="note">Planned are the buffers of training on the device of the rank. In use is the whole '
                 "process, with the program, its libraries and the data; without a GPU, the planned bytes are "
                 "part of it.</p>\n")
    return text


def settings(runs):
    """The settings of the runs, those that differ first; nothing if no log has settings."""
    different, equal = setting_rows([run.history for run in runs])
    if not different and not equal:
        return ""
    text = "<h2>Settings</h2>\n"
    if len(runs) == 1:
        return text + table(columns(runs), different + equal, "settings")
    text += table(columns(runs), different, "settings") if different else "<p>The runs have the same settings.</p>\n"
    if equal:
        text += (f"<details><summary>{len(equal)} settings that are the same in all runs</summary>\n"
                 f'{table(["value"], equal, "settings")}</details>\n')
    return text


def resumes(marks, runs):
    """A list of the points at which runs were resumed."""
    items = [f"<li>{swatch(mark.run, len(runs))}{html.escape(mark.text)}</li>\n" for mark in marks]
    return f'<ul class="resumes">\n{"".join(items)}</ul>\n' if items else ""


def round_values(points):
    """Rounds values to seven digits, which are more than a screen shows."""
    return [[float(f"{x:.10g}"), float(f"{y:.7g}")] for x, y in points]


def data(panels, marks, runs, x):
    return {"runs": len(runs), "x": X_LABELS[x],
            "marks": [{"run": mark.run, "x": float(f"{mark.x:.10g}"), "text": mark.text} for mark in marks],
            "panels": [
                {"label": panel.label, "note": panel.note, "fromZero": panel.from_zero,
                 "levels": [{"name": name, "value": value, "colour": LEVEL_COLOURS[i % len(LEVEL_COLOURS)]}
                            for i, (name, value) in enumerate(panel.levels)],
                 "curves": [{"run": curve.run, "part": curve.part, "name": curve.name, "dots": curve.dots,
                             "points": round_values(curve.points), "trend": round_values(curve.trend)}
                            for curve in panel.curves]}
                for panel in panels]}


def description(runs):
    """The logs of the page and how far each has come."""
    texts = []
    for run in runs:
        figures = run.summary()
        parts = [f"{figures['steps']} steps"] + [f"{figures[key]} {key}" for key in ("tokens",) if key in figures]
        parts += [f"{run.ranks()} ranks"] if run.ranks() > 1 else []
        texts.append(f"{printable(str(run.path))}: {', '.join(parts)}")
    return "; ".join(texts)


def write(panels, marks, runs, out, x="step", title=""):
    """Writes the page atomically."""
    # Inside a script element only </script> and <!-- have a meaning.
    content = json.dumps(data(panels, marks, runs, x), allow_nan=False).replace("<", "\\u003c")
    names = ", ".join(run.name for run in runs)
    heading = html.escape(title or f"Training run{'s' * (len(runs) > 1)}: {names}")
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
<p class="note">{html.escape(description(runs))}</p>
<noscript><p>The curves are drawn by this page's own script, which is switched off here.</p></noscript>
<div id="panels"></div>
{resumes(marks, runs)}{final_figures(runs)}{rank_memory(runs)}{settings(runs)}<script type="application/json" id="data">{content}</script>
<script>
{(HERE / "page.js").read_text("utf-8")}</script>
</body>
</html>
"""
    draft = out.with_name(out.name + ".tmp")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, out)
