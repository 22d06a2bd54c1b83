"""A table of results: columns with a unit and a kind, rows with the evidence for them."""
from dataclasses import dataclass, field
from typing import NamedTuple

EXACT, TIMED, TEXT = "exact", "timed", "text"
MISSING = "—"


class Column(NamedTuple):
    key: str
    title: str
    kind: str = EXACT
    digits: int | None = None   # after the point; None: as it is


EVIDENCE_COLUMNS = [Column("evidence", "evidence", TEXT), Column("busy", "busy", TIMED), Column("seed", "seed", EXACT)]


@dataclass
class Row:
    """The cells of a row by the key of the column. A cell is a number, a text, None, or {"median", "min", "max"} of
    repeats. `why`: by key, the reason why a cell is missing; "" is that of all missing cells."""
    cells: dict
    evidence: str
    seed: int | None = None
    busy: bool = False
    why: dict = field(default_factory=dict)


@dataclass
class Table:
    name: str
    title: str
    columns: list
    rows: list
    device: str
    commit: str
    notes: list = field(default_factory=list)
    problems: list = field(default_factory=list)  # runs that did not compute what the table compares

    def all_columns(self):
        busy = any(row.busy for row in self.rows)
        return self.columns + [column for column in EVIDENCE_COLUMNS if column.key != "busy" or busy]

    def value(self, row, key):
        if key in ("evidence", "seed"):
            return getattr(row, key)
        if key == "busy":
            return "busy" if row.busy else ""
        return row.cells.get(key)

    def is_left(self, column):
        return is_left_aligned(column.kind, [self.value(row, column.key) for row in self.rows])

    def kinds_of_evidence(self):
        return [kind for kind in ("measured", "functional", "simulated") if any(row.evidence == kind for row in self.rows)]


def is_left_aligned(kind, cells):
    """Whether a column of this kind and with these cells has texts, which are aligned to the left."""
    return kind == TEXT or (all(cell is None or isinstance(cell, str) for cell in cells) and any(cells))


def middle(value):
    """The number of a cell: of repeats, the median."""
    return value["median"] if isinstance(value, dict) else value


def number_text(value, digits):
    if isinstance(value, float) and digits is None:
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"
    if isinstance(value, str) or digits is None:
        return str(value)
    return f"{value:,.{digits}f}"


def cell_text(value, digits):
    """The text of a cell on a page: a median with its range."""
    if value is None:
        return MISSING
    if not isinstance(value, dict):
        return number_text(value, digits)
    text = number_text(value["median"], digits)
    if len(value.get("values", ())) < 2:
        return text
    return f"{text} ({number_text(value['min'], digits)}–{number_text(value['max'], digits)})"


class Footnotes:
    """Reasons for missing cells, numbered in the order of their use."""

    def __init__(self):
        self._numbers = {}

    def mark(self, reason):
        return str(self._numbers.setdefault(reason, len(self._numbers) + 1))

    def items(self):
        return [(number, reason) for reason, number in self._numbers.items()]


def cell_with_reason(table, row, column, footnotes):
    """(text, mark of the footnote or "") of a cell."""
    value = table.value(row, column.key)
    text = cell_text(value, column.digits)
    reason = (row.why.get(column.key) or row.why.get("")) if value is None else None
    return text, footnotes.mark(reason) if reason else ""
