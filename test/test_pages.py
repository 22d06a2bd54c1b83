#!/usr/bin/env python3
"""Tests the pages: links lead to files and headings that exist, and the tour names and quotes code that exists.

    python3 test/test_pages.py [PATTERN]

Prints `ok NAME` or `FAILED NAME: why` for each test, then `N passed, N failed, N skipped`.
"""
import re
import subprocess
import sys
from pathlib import Path

from runner import expect, run_tests

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def pages():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=ROOT,
                            capture_output=True, text=True, check=True).stdout.split()
    return [ROOT / name for name in listed if (ROOT / name).is_file()]


def prose(text):
    """The page without code blocks, in which brackets are no links."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    return re.sub(r"^(?:    |\t).*$", lambda m: m[0] if re.match(r"\s*(?:[-*]|\d+\.|\[)", m[0]) else "", text, flags=re.M)


def anchors(text):
    """The anchors of a page's headings, as GitHub builds them."""
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken_links(page, text):
    """The links of a page whose file or heading does not exist."""
    broken = []
    for _, target in LINK.findall(prose(text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists():
            broken.append(target)
        elif anchor and anchor not in anchors(path.read_text(encoding="utf-8")):
            broken.append(target)
    return broken


def unknown_code(page, text):
    """Links such as [`Trainer::train`](trainer.h) whose file does not contain the named code."""
    unknown = []
    for label, target in LINK.findall(text):
        code = re.fullmatch(r"`([\w:]+)`", label)
        if code and (path := page.parent / target.partition("#")[0]).is_file():
            source = path.read_text(encoding="utf-8")
            if not all(re.search(rf"\b{word}\b", source) for word in code[1].split("::")):
                unknown.append(f"{label} in {target}")
    return unknown


def without_spaces(text):
    return re.sub(r"\s", "", text)


def changed_quotes(page, text):
    """The C++ blocks of a page that are not in the file of the last link before them.

    Spaces and line breaks do not count. A line with only dots (..., or a comment of them) stands for lines that are left out.
    """
    changed, path = [], None
    for number, part in enumerate(re.split(r"^```cpp\n(.*?)^```$", text, flags=re.S | re.M)):
        if number % 2 == 0:
            for _, target in LINK.findall(prose(part)):
                path = page.parent / target.partition("#")[0]
            continue
        source = without_spaces(path.read_text(encoding="utf-8")) if path and path.is_file() else ""
        end = 0
        for piece in re.split(r"^\s*(?://\s*)?\.\.\.\s*$", part, flags=re.M):
            begin = source.find(without_spaces(piece), end)
            if begin < 0:
                changed.append(f"{piece.strip().splitlines()[0]} in {path and path.name}")
                break
            end = begin + len(without_spaces(piece))
    return changed


def test_links_of_all_pages_resolve(_):
    num_links = 0
    for page in pages():
        text = page.read_text(encoding="utf-8")
        num_links += len(LINK.findall(prose(text)))
        broken = broken_links(page, text)
        expect(not broken, f"{page.relative_to(ROOT)}: {broken}")
    expect(num_links > 100, f"only {num_links} links: does the pattern still match them?")


def test_the_code_that_pages_link_to_exists(_):
    for page in pages():
        unknown = unknown_code(page, page.read_text(encoding="utf-8"))
        expect(not unknown, f"{page.relative_to(ROOT)}: {unknown}")


def test_the_tour_links_to_code(_):
    tour = (ROOT / "llmc/TOUR.md").read_text(encoding="utf-8")
    count = len(re.findall(r"\[`[\w:]+`\]\(", tour))
    expect(count >= 30, f"{count} links to code")


def test_the_tour_quotes_code(_):
    tour = ROOT / "llmc/TOUR.md"
    text = tour.read_text(encoding="utf-8")
    changed = changed_quotes(tour, text)
    expect(not changed, f"{changed}")
    count = text.count("```cpp\n")
    expect(count >= 12, f"{count} blocks of code")


def test_broken_links_are_reported(folder):
    page = folder / "page.md"
    (folder / "code.h").write_text("int answer();\n")
    page.write_text("# A page: title\n")
    for link, broken in [("[x](code.h)", False), ("[x](missing.h)", True), ("[x](#a-page-title)", False),
                         ("[x](#other)", True), ("[x](page.md#a-page-title)", False), ("[x](page.md#b)", True),
                         ("[x](https://example.org/missing)", False), ("- item [x](gone.h)", True)]:
        text = "# A page: title\n\n" + link + "\n"
        expect(bool(broken_links(page, text)) == broken, link)


def test_unknown_code_is_reported(folder):
    (folder / "code.h").write_text("struct Answer {\n  int value();\n};\n")
    page = folder / "page.md"
    for link, unknown in [("[`Answer::value`](code.h)", False), ("[`Answer::values`](code.h)", True), ("[`Answ`](code.h)", True)]:
        expect(bool(unknown_code(page, link)) == unknown, link)


def test_changed_quotes_are_reported(folder):
    (folder / "code.h").write_text("struct Answer {\n  int value() { return 42; }\n  int twice() {\n    return 84;\n  }\n};\n")
    (folder / "other.h").write_text("struct Other {};\n")
    page = folder / "page.md"
    for link, quote, changed in [
            ("code.h", "int value() { return 42; }", False), ("code.h", "int value() {\n  return 42;\n}", False),
            ("code.h", "int value() { return 43; }", True), ("code.h", "struct Answer {\n...\n  int twice() {", False),
            ("code.h", "int twice() {\n...\nstruct Answer {", True), ("code.h", "struct Answer {\n  // ...\n};", False),
            ("other.h", "int value() { return 42; }", True), ("missing.h", "int value() { return 42; }", True)]:
        text = f"[the other](other.h), [the code]({link}):\n\n```cpp\n{quote}\n```\n"
        expect(bool(changed_quotes(page, text)) == changed, f"{quote} in {link}")


if __name__ == "__main__":
    sys.exit(run_tests(globals(), lambda folder: (folder,), *sys.argv[1:2]))
