#!/usr/bin/env python3
"""Finds words that the rules of writing rule out, and prints each as file:line.

    scripts/check_words.py [FILE ...]     (default: every tracked source and page)

- PROSE applies to comments, docstrings, strings and pages. Code in `backquotes` and code blocks of pages
  are not prose.
- STARTS applies to the first word of a comment: a fragment that needs the line above it.
- NAMES applies to names in C++ and Python code: a name is a noun for a thing and a verb for a function.

CONTRIBUTING.md has the rules. A line of a text that is data, such as a sample sentence, can be
exempted by the comment `lint: data`.
"""
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import standard_output

ROOT = Path(__file__).resolve().parent.parent
# A pattern and what to write instead.
PROSE = [
    (r"nobody|somebody|anybody|everybody|whoever|heirs?", "name the program, function or caller"),
    (r"beside|besides", "next to, in addition to"),
    (r"anew|afresh|once more", "again"),
    (r"(?:go|goes|going|went|gone) on(?! (?:a|the|one|each|every|its)\b)", "continue, resume"),
    (r"pass(?:ed|ing) over", "skip"),
    (r"puts? together|putting together", "assemble, join"),
    (r"(?:is|are|was|were|be|been) told", "receives, is configured with"),
    (r"(?:gives?|gave|given|giving) back", "return, free, release"),
    (r"finds? out|found out", "detect, determine"),
    (r"of no use|but for|meanwhile|thereof|whereby", "a plain phrase"),
    (r"(?:nats|bits|bytes?|tokens?|ns|us|ms|s|seconds?|lines?|floats?|FLOPs?|KB|MB|GB|KiB|MiB|GiB|times)"
     r" an? (?:token|second|step|row|byte|target|block|sequence|file|GPU|rank|thread|call|word|line|document)",
     "per token, per step"),
]
SPEECH = (r"says|said|saying", "report, state, print, name")
STARTS = [(r"(?:Of|That|What|Or|But for|Nobody|Whoever)\b", "a complete sentence or a noun phrase")]
NAMES = [(r"there|found|made|held|asked|said|says|told|want|wants|wanted", "a noun: expected, result, path")]
CPP, PYTHON, SHELL = (".h", ".cu", ".cpp"), (".py",), (".sh",)
# Words of the toy language, and this list itself.
EXEMPT = {"data/grammar.h", "data/toy_language.h", "scripts/check_words.py", "test/test_check_words.py"}


def whole_words(rules, flags=0):
    return [(re.compile(rf"\b(?:{pattern})\b", flags), hint) for pattern, hint in rules]


PROSE_RULES = whole_words([*PROSE, SPEECH], re.I)
STRING_RULES = whole_words(PROSE, re.I)
NAME_RULES = whole_words(NAMES)
START_RULES = [(re.compile(pattern), hint) for pattern, hint in STARTS]


class Piece:
    """A part of a file of one kind: comment, string, code or page."""

    def __init__(self, kind, line, text):
        self.kind, self.line, self.text = kind, line, text


def cpp_pieces(text):
    """Comments, strings and code of C++. Neighbouring lines of // comments are one comment."""
    tokens = (r"(?P<comment>(?://[^\n]*\n[ \t]*)*//[^\n]*|/\*.*?\*/)",
              r'(?P<string>R"([^\s()]*)\(.*?\)\3"|"(?:\\.|[^"\\\n])*")', r"(?P<character>'(?:\\.[^'\n]*|[^'\\\n])')")
    at = 0
    for match in re.finditer("|".join(tokens), text, re.S):
        yield Piece("code", 1 + text.count("\n", 0, at), text[at:match.start()])
        if match.lastgroup != "character":
            kind = "comment" if match["comment"] else "string"
            yield Piece(kind, 1 + text.count("\n", 0, match.start()), match[0])
        at = match.end()
    yield Piece("code", 1 + text.count("\n", 0, at), text[at:])


def python_pieces(text):
    """Comments, strings and names of Python. Neighbouring comments are one comment."""
    comment = None
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if comment and comment.line + comment.text.count("\n") + 1 == token.start[0]:
                comment.text += "\n" + token.string
            else:
                if comment:
                    yield comment
                comment = Piece("comment", token.start[0], token.string)
        elif token.type == tokenize.STRING:
            yield Piece("string", token.start[0], token.string)
        elif token.type == tokenize.NAME:
            yield Piece("code", token.start[0], token.string)
    if comment:
        yield comment


def shell_pieces(text):
    """Comments of a shell script or Makefile, neighbouring ones as one; everything else as strings."""
    block = []
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"\s*#[^!]?.*", line)
        if match:
            block.append((number, line))
            continue
        if block:
            yield Piece("comment", block[0][0], "\n".join(part for _, part in block))
            block = []
        yield Piece("string", number, line)
    if block:
        yield Piece("comment", block[0][0], "\n".join(part for _, part in block))


def page_pieces(text):
    """The prose of a page: code blocks and code in backquotes are blanked."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match[0])
    text = re.sub(r"^```.*?^```", blank, text, flags=re.S | re.M)
    text = re.sub(r"^(?:    |\t)[^\n]*$", lambda m: m[0] if m[0].lstrip()[:1] in "-*" else "", text, flags=re.M)
    yield Piece("page", 1, re.sub(r"`[^`\n]*`", blank, text))


def pieces_of(path, text):
    suffix = Path(path).suffix
    if suffix in CPP:
        return cpp_pieces(text)
    if suffix == ".md":
        return page_pieces(text)
    if suffix in PYTHON or text.startswith("#!/usr/bin/env python3"):
        return python_pieces(text)
    return shell_pieces(text)


def rules_of(kind):
    return {"code": NAME_RULES, "string": STRING_RULES}.get(kind, PROSE_RULES)


def prose_of(comment):
    """A comment without its markers, with line numbers kept."""
    return re.sub(r"(?m)^[ \t]*(?://+|#+|/\*+)[ \t]?|`[^`\n]*`", " ", comment)


def breaches(path, text):
    """Yields (line, word, hint) for each word of a file that the rules rule out."""
    exempt = {number for number, line in enumerate(text.splitlines(), 1) if "lint: data" in line}
    for piece in pieces_of(path, text):
        prose = prose_of(piece.text) if piece.kind == "comment" else piece.text
        # A phrase may be broken over two lines.
        flat = re.sub(r"\n[ \t]*(?=\S)", lambda m: "\n", prose)
        for rule, hint in rules_of(piece.kind):
            for match in rule.finditer(re.sub(r"\n", " ", flat)):
                line = piece.line + flat.count("\n", 0, match.start())
                if line not in exempt:
                    yield line, match[0], hint
        if piece.kind == "comment":
            for rule, hint in START_RULES:
                if match := rule.match(prose.lstrip()):
                    yield piece.line, match[0], hint


def tracked_files():
    patterns = [f"*{suffix}" for suffix in (*CPP, *PYTHON, *SHELL, ".md")]
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns, "Makefile",
                             ".ci/run", "scripts/plot"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\n") if name and name not in EXEMPT and (ROOT / name).is_file()]


def main():
    names = sys.argv[1:] or tracked_files()
    count = 0
    for name in names:
        text = (ROOT / name).read_text(encoding="utf-8", errors="replace")
        for line, word, hint in sorted(set(breaches(name, text))):
            print(f"{name}:{line}: \"{word}\": write {hint}")
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    standard_output.run(main)
