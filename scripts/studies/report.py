"""One page of all experiments, of one or several machines: verdicts on claims, tables, figures and commands. The page needs
no network and no other file."""
import base64
import html
from typing import NamedTuple

from measured_programs import RunError, write_text
from studies.claims import judge
from studies.experiment import read_plan
from studies.table_files import json_value
from studies.tables import MISSING, Footnotes, cell_text, is_left_aligned

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 1500px; padding: 0 1rem; color: #222; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 3rem; border-top: 1px solid #ccc; padding-top: 1rem; }
table { border-collapse: collapse; margin: .6rem 0; font-size: 13px; } caption { text-align: left; font-weight: 600; }
th, td { border-bottom: 1px solid #e2e2e2; padding: .25rem .6rem; text-align: right; vertical-align: top; }
th { background: #f4f4f4; } td.text, th.text { text-align: left; }
tr.functional td { color: #777; font-style: italic; } tr.simulated td { color: #33507a; }
.machines { display: flex; gap: 2rem; flex-wrap: wrap; } .machine { flex: 1 1 40%; overflow-x: auto; }
@media print { table { font-size: 7px; } th, td { padding: .1rem .2rem; } }
.confirmed { color: #1d7a3a; } .refuted { color: #b02a1b; } .marked { color: #b02a1b; font-weight: 600; }
code { background: #f4f4f4; padding: .1rem .3rem; } img { max-width: 100%; } ul { margin: .3rem 0; padding-left: 1.2rem; }
.notes { font-size: 13px; color: #444; }
"""


class Outcome(NamedTuple):
    """The results of an experiment in a folder."""
    plan: dict
    tables: list    # JSON
    figures: list   # (title, content of the SVG)


def read_outcome(folder, tables, figures):
    """`tables`, `figures`: those of the experiment, as write_results() returned them."""
    return Outcome(read_plan(folder), list(map(json_value, tables)),
                   [(figure.title, (folder / f"{figure.name}.svg").read_bytes()) for figure in figures])


def text(value):
    return html.escape(str(value))


def table_html(table):
    columns = table["columns"]
    left = [i for i, column in enumerate(columns)
            if i == 0 or is_left_aligned(column["kind"], [row[column["key"]] for row in table["rows"]])]
    footnotes, body = Footnotes(), []
    for row in table["rows"]:
        cells = []
        for i, column in enumerate(columns):
            value, mark = row[column["key"]], ""
            if value is None:
                reason = row["why"].get(column["key"]) or row["why"].get("")
                mark = f"<sup>{footnotes.mark(reason)}</sup>" if reason else ""
            kind = ' class="text"' if i in left else ""
            cells.append(f"<td{kind}>{text(cell_text(value, column['digits']))}{mark}</td>")
        body.append(f'<tr class="{row["evidence"]}">{"".join(cells)}</tr>')
    head = "".join(f'<th{" class=text" if i in left else ""}>{text(column["title"])}</th>'
                   for i, column in enumerate(columns))
    notes = [f'<li class="marked">MARKED: {text(problem)}</li>' for problem in table["problems"]]
    notes += [f"<li><sup>{number}</sup> {text(reason)}</li>" for number, reason in footnotes.items()]
    notes += [f"<li>{text(note)}</li>" for note in table["notes"]]
    return (f'<table><caption>{text(table["title"])}</caption><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody>'
            f'</table><ul class="notes">{"".join(notes)}</ul>')


def figure_html(title, svg):
    data = base64.b64encode(svg).decode("ascii")
    return f'<p><img alt="{text(title)}" src="data:image/svg+xml;base64,{data}"></p>'


def outcome_html(outcome):
    dropped = "".join(f"<li>{text(line)}</li>" for line in outcome.plan["dropped"])
    parts = [f"<p>{text(outcome.plan['device'])}, commit {text(outcome.plan['commit'])}<br>"
             f"<code>{text(outcome.plan['command'])}</code></p>", f"<ul>{dropped}</ul>" if dropped else ""]
    return "".join(parts + list(map(table_html, outcome.tables)) + [figure_html(*figure) for figure in outcome.figures])


def claims_html(claims, by_machine):
    """A table with a verdict per machine. Published and own numbers have columns of their own."""
    head = "".join(f"<th class=text>{text(name)}</th><th class=text>our numbers</th>" for name in by_machine)
    rows = []
    for claim in claims:
        cells = []
        for tables in by_machine.values():
            verdict = judge(claim, tables)
            css = verdict.verdict if verdict.verdict in ("confirmed", "refuted") else ""
            cells.append(f'<td class="text"><span class="{css}">{text(verdict.verdict)}</span><br>{text(verdict.reason)}</td>'
                         f'<td class="text">{text(verdict.own) or MISSING}</td>')
        rows.append(f'<tr><td class="text">{text(claim["text"])}</td><td class="text">{text(claim["source"])}</td>'
                    f'<td class="text">{text(claim["published"])}</td>{"".join(cells)}</tr>')
    return (f"<table><thead><tr><th class=text>claim</th><th class=text>source</th><th class=text>published</th>{head}</tr>"
            f"</thead><tbody>{''.join(rows)}</tbody></table>")


def page(experiments, machines, claims):
    """`experiments`: those of the study, by name. `machines`: {name: {experiment: Outcome}}."""
    tables = {name: {table["name"]: table for outcome in outcomes.values() for table in outcome.tables}
              for name, outcomes in machines.items()}
    parts = ["<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
             f"<title>Study</title><style>{STYLE}</style><h1>Experiments of GPT-2 training</h1>",
             "<p>Measured: every rank had its own cores or its own GPU. Functional, in grey: ranks shared them, so times "
             "compare nothing. Simulated, in blue: a plan, without a run. Timed values are medians of repeats, with their "
             "range.</p><ul>", *(f"<li>{text(name)}</li>" for name in machines), "</ul><h2>Claims of the field</h2>",
             claims_html(claims, tables)]
    for name, experiment in experiments.items():
        present = [outcomes[name] for outcomes in machines.values() if name in outcomes]
        if present:
            columns = "".join(f'<div class="machine">{outcome_html(outcome)}</div>' for outcome in present)
            parts.append(f'<h2 id="{name}">{text(experiment.title)}</h2><p>{text(experiment.question)}</p>'
                         f'<div class="machines">{columns}</div>')
    return "\n".join(parts) + "</html>\n"


def machine_names(folders, outcomes_of):
    """A name for each folder: its device, with the folder if two have the same one."""
    devices = {folder: next(iter(outcomes_of[folder].values())).plan["device"] for folder in folders}
    repeated = len(set(devices.values())) < len(devices)
    return {folder: f"{device} ({folder})" if repeated else device for folder, device in devices.items()}


def write_report(out, folders, experiments, claims, make_again):
    """Writes the page `out` from folders of studies. make_again(experiment folder) writes its tables from the logs and
    returns (tables, figures)."""
    outcomes_of = {}
    for folder in folders:
        outcomes = {name: read_outcome(folder / name, *make_again(folder / name)) for name in experiments
                    if (folder / name / "plan.json").exists()}
        if not outcomes:
            raise RunError(f"{folder} has no experiment; allowed: the --out of scripts/study")
        outcomes_of[folder] = outcomes
    names = machine_names(folders, outcomes_of)
    write_text(out, page(experiments, {names[folder]: outcomes_of[folder] for folder in folders}, claims))
    return sum(map(len, outcomes_of.values()))
