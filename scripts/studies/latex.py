"""A table as LaTeX, for the package booktabs: narrow enough for the text of an article, short enough for its page.

Columns that have one value in all rows become a note. Headings are broken into lines, and so are long texts. A table that is
still too wide becomes panels below each other, each of which begins with the columns that tell rows apart; one that is too
long continues in another table environment, under the same number.
"""
from typing import NamedTuple

from studies.tables import EXACT, MISSING, TEXT, Column, Footnotes, cell_with_reason

LINE_WIDTH = 76        # average characters of \footnotesize in an article's 345 pt, with some to spare
GAP_WIDTH = 1.5        # of two \tabcolsep of 3 pt
LONG_TEXT = 30         # characters; a longer cell is broken into lines
SHORT_HEADING = 9      # characters that a line of a heading may always have
CHARACTER_POINTS = 4.2
PAGE_LINES = 50        # of a float, below its caption, with its notes
NOTE_WIDTH = 90        # characters of a line of notes

ESCAPES = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
           "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "×": r"$\times$", "±": r"$\pm$", "…": r"\ldots{}",
           "—": r"\textemdash{}", "–": r"\textendash{}"}


def escaped(text):
    return "".join(ESCAPES.get(character, character) for character in str(text)).replace("-" * 2, "-{}-")


class Printed(NamedTuple):
    """A column with its cells: pairs of a text and the mark of a footnote."""
    column: Column
    cells: list
    is_left: bool

    def words(self):
        """The heading in lines, none longer than SHORT_HEADING, the longest cell and the longest word."""
        most = max([SHORT_HEADING, *(len(text) for text, _ in self.cells), *(len(word) for word in self.column.title.split())])
        lines = [""]
        for word in self.column.title.split():
            longer = f"{lines[-1]} {word}".strip()
            lines = [*lines[:-1], longer] if len(longer) <= most else [*lines, word]
        return lines

    def is_long(self):
        return any(len(text) > LONG_TEXT for text, _ in self.cells)

    def width(self):
        cell = min(LONG_TEXT, max((len(text + mark) for text, mark in self.cells), default=0))
        return GAP_WIDTH + max(cell, *(len(line) for line in self.words()))

    def alignment(self):
        if self.is_long():
            return f"p{{{LONG_TEXT * CHARACTER_POINTS:.0f}pt}}"
        return "l" if self.is_left else "r"

    def heading(self):
        lines = [escaped(line) for line in self.words()]
        if len(lines) == 1:
            return lines[0]
        side, text = "l" if self.is_left else "r", r" \\ ".join(lines)
        return rf"\begin{{tabular}}[b]{{@{{}}{side}@{{}}}}{text}\end{{tabular}}"

    def cell(self, index):
        text, mark = self.cells[index]
        return escaped(text) + (rf"\textsuperscript{{{mark}}}" if mark else "")


def printed_columns(table, footnotes):
    cells = {column.key: [] for column in table.all_columns()}
    for row in table.rows:
        for column in table.all_columns():
            cells[column.key].append(cell_with_reason(table, row, column, footnotes))
    return [Printed(column, cells[column.key], i == 0 or table.is_left(column)) for i, column in enumerate(table.all_columns())]


def without_constants(columns):
    """(columns that differ between rows, "title value" of the others). A single row keeps its columns."""
    def is_constant(one):
        texts = {text for text, _ in one.cells}
        return len(one.cells) > 1 and len(texts) == 1 and MISSING not in texts and one.column.kind in (EXACT, TEXT)

    kept = [one for i, one in enumerate(columns) if i == 0 or not is_constant(one)]
    return kept, [f"{one.column.title} {one.cells[0][0]}" for one in columns if one not in kept and one.cells[0][0]]


def count_of_keys(columns):
    """How many of the first columns tell all rows apart; one, if none do."""
    for count in range(1, len(columns) + 1):
        rows = list(zip(*(one.cells for one in columns[:count])))
        if len(set(rows)) == len(rows):
            return count
    return 1


def panels_of(columns):
    """Lists of columns, each of which fits the width."""
    count = count_of_keys(columns)
    keys, panels = columns[:count], []
    room = LINE_WIDTH - sum(one.width() for one in keys)
    left = 0.0
    for one in columns[count:]:
        if not panels or one.width() > left:
            panels.append([*keys])
            left = room
        panels[-1].append(one)
        left -= one.width()
    return panels or [keys]


def lines_of(columns, index):
    return max(-(-len(one.cells[index][0]) // (LONG_TEXT - 4)) if one.is_long() else 1 for one in columns)


def tabular(columns, rows):
    headings = " & ".join(one.heading() for one in columns)
    body = ["    " + " & ".join(one.cell(row) for one in columns) + r" \\" for row in rows]
    alignment = "".join(one.alignment() for one in columns)
    return [rf"  \begin{{tabular}}{{{alignment}}}", r"    \toprule", f"    {headings} \\\\",
            r"    \midrule", *body, r"    \bottomrule", r"  \end{tabular}"]


def row_chunks(columns, rows, room):
    """Lists of rows, each at most `room` lines long."""
    chunks, used = [[]], 0
    for row in rows:
        lines = lines_of(columns, row)
        if chunks[-1] and used + lines > room:
            chunks.append([])
            used = 0
        chunks[-1].append(row)
        used += lines
    return chunks


def floats_of(panels, count, notes):
    """Lists of (columns, rows) that fit a page together, and with `notes`."""
    room = max(PAGE_LINES // 2, PAGE_LINES - sum(1 + len(note) // NOTE_WIDTH for note in notes))
    floats, used = [[]], 0
    for columns in panels:
        head = 2 + max(len(one.words()) for one in columns)
        for rows in row_chunks(columns, range(count), room - head):
            lines = head + sum(lines_of(columns, row) for row in rows)
            if floats[-1] and used + lines > room:
                floats.append([])
                used = 0
            floats[-1].append((columns, rows))
            used += lines
    return floats


def environment(caption, label, blocks, notes, is_first):
    lines = [r"\begin{table}", r"  \centering", r"  \footnotesize\sloppy\setlength{\tabcolsep}{3pt}",
             *([] if is_first else [r"  \addtocounter{table}{-1}"]), rf"  \caption{{{caption}}}",
             *([rf"  \label{{{label}}}"] if is_first else [])]
    for i, (columns, rows) in enumerate(blocks):
        lines += [*([r"  \par\medskip"] if i else []), *tabular(columns, rows)]
    return [*lines, *([r"  \par\smallskip\raggedright"] if notes else []), *(rf"  {note}\par" for note in notes), r"\end{table}"]


def latex(table):
    """The table, with caption and label; device, commit and the kinds of evidence are in the caption."""
    footnotes = Footnotes()
    columns, constants = without_constants(printed_columns(table, footnotes))
    kinds = ", ".join(table.kinds_of_evidence()) or "no rows"
    caption = escaped(f"{table.title}. {table.device}, commit {table.commit}; evidence: {kinds}.")
    notes = [rf"\textbf{{Marked: {escaped(problem)}}}" for problem in table.problems]
    notes += [escaped(f"In all rows: {', '.join(constants)}.")] if constants else []
    notes += [rf"\textsuperscript{{{number}}} {escaped(reason)}" for number, reason in footnotes.items()]
    notes += [escaped(note) for note in table.notes]
    floats = floats_of(panels_of(columns), len(table.rows), notes)
    lines = [r"% Needs \usepackage{booktabs}."]
    for i, blocks in enumerate(floats):
        lines += environment(caption if i == 0 else f"{escaped(table.title)} (continued).", f"tab:{table.name}", blocks,
                             notes if i == len(floats) - 1 else [], i == 0)
    return "\n".join(lines) + "\n"
