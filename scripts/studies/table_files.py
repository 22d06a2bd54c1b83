"""A table as Markdown, CSV and JSON; writes these and LaTeX."""
import csv
import io
import json

from measured_programs import write_text
from studies.latex import latex
from studies.tables import EXACT, Footnotes, cell_with_reason, middle


def markdown(table):
    """The table and its footnotes and notes, without a heading."""
    footnotes, columns = Footnotes(), table.all_columns()
    lines = ["| " + " | ".join(column.title for column in columns) + " |",
             "|" + "|".join("---" if i == 0 or table.is_left(column) else "---:" for i, column in enumerate(columns)) + "|"]
    for row in table.rows:
        cells = []
        for column in columns:
            text, mark = cell_with_reason(table, row, column, footnotes)
            cells.append(text + (f" [{mark}]" if mark else ""))
        lines.append("| " + " | ".join(cells) + " |")
    notes = [f"**MARKED: {problem}**" for problem in table.problems] \
        + [f"[{number}] {reason}" for number, reason in footnotes.items()] + table.notes
    return "\n".join(lines) + ("\n\n" + "\n".join(f"- {note}" for note in notes) if notes else "")


def csv_text(table):
    """All digits. Cells of repeats have columns for the median, the minimum and the maximum."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns = [*table.all_columns()]
    spreads = {column.key for column in columns for row in table.rows if isinstance(table.value(row, column.key), dict)}
    header = []
    for column in columns:
        header += [column.key] + ([column.key + "_min", column.key + "_max"] if column.key in spreads else [])
    writer.writerow([*header, "device", "commit"])
    for row in table.rows:
        cells = []
        for column in columns:
            value = table.value(row, column.key)
            cells.append("" if middle(value) is None else middle(value))
            if column.key in spreads:
                ends = (value["min"], value["max"]) if isinstance(value, dict) else ("", "")
                cells += ends
        writer.writerow([*cells, table.device, table.commit])
    return out.getvalue()


def json_value(table):
    columns = table.all_columns()
    return {"name": table.name, "title": table.title, "device": table.device, "commit": table.commit,
            "columns": [{"key": column.key, "title": column.title, "kind": column.kind, "digits": column.digits}
                        for column in columns],
            "rows": [{**{column.key: table.value(row, column.key) for column in columns}, "why": row.why}
                     for row in table.rows],
            "notes": table.notes, "problems": table.problems}


def exact_part(value):
    """The exact cells of a table's JSON: they are equal in every run of the same settings on the same machine."""
    keys = [column["key"] for column in value["columns"] if column["kind"] == EXACT]
    return [{key: row[key] for key in keys} for row in value["rows"]]


def write_table(folder, table):
    """Writes NAME.csv, NAME.json and NAME.tex."""
    write_text(folder / f"{table.name}.csv", csv_text(table))
    write_text(folder / f"{table.name}.json", json.dumps(json_value(table), indent=1, ensure_ascii=False) + "\n")
    write_text(folder / f"{table.name}.tex", latex(table))
