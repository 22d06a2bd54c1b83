#!/usr/bin/env python3
"""Tests scripts/check_words.py with planted words, and on the repository.

    python3 test/test_check_words.py [PATTERN]

Prints `ok NAME` or `FAILED NAME: why` for each test, then `N passed, N failed, N skipped`.
"""
import subprocess
import sys
from pathlib import Path

from runner import expect, run_tests

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import check_words  # noqa: E402

PHRASES = ["nobody", "somebody", "anybody", "everybody", "whoever", "heir", "heirs", "beside", "besides", "anew",
           "afresh", "once more", "goes on", "go on", "went on", "going on", "gone on", "passed over", "passing over",
           "puts together", "putting together", "is told", "be told", "gives back", "gave back", "finds out",
           "found out", "of no use", "but for", "meanwhile", "thereof", "whereby", "4 bytes a token", "ms a step",
           "one line a step", "TFLOP in 3 s a GPU"]
NAMES = ["there", "found", "made", "held", "asked", "said", "says", "told", "want", "wants", "wanted"]


def lines_of(name, text):
    return [line for line, _, _ in check_words.breaches(name, text)]


def test_phrases_are_found_in_comments_strings_and_pages(_):
    for phrase in PHRASES:
        for name, text in [("a.h", f"int a;\n// It is {phrase} here.\n"), ("a.cu", f'int a;\nauto s = "it is {phrase}";\n'),
                           ("a.py", f"a = 1\n# It is {phrase} here.\n"), ("a.py", f'a = 1\nb = "it is {phrase}"\n'),
                           ("a.py", f'a = 1\nb = f"it is {phrase} {{a}}"\n'), ("a.sh", f"a=1\n# It is {phrase}.\n"),
                           ("a.sh", f"a=1\necho 'it is {phrase}'\n"), ("Makefile", f"a:\n# It is {phrase}.\n"),
                           ("a.md", f"# Title\nIt is {phrase} here.\n")]:
            expect(lines_of(name, text) == [2], f"{phrase} in {name}: {lines_of(name, text)}")


def test_a_phrase_over_two_lines_is_found(_):
    expect(lines_of("a.h", "// It goes\n// on here.\n") == [1], "comment")
    expect(lines_of("a.md", "It is passed\nover.\n") == [1], "page")


def test_speech_is_found_in_comments_and_pages_but_not_in_strings(_):
    for word in ["says", "said", "saying"]:
        expect(lines_of("a.h", f"// The header {word} so.\n") == [1], word)
        expect(lines_of("a.md", f"The page {word} so.\n") == [1], word)
        expect(lines_of("a.h", f'auto s = "the king {word} so";\n') == [], word)


def test_a_comment_that_is_a_fragment_is_found(_):
    for start in ["Of all rows.", "That the rows exist.", "What the file has.", "Or nothing.", "But for one."]:
        expect(1 in lines_of("a.h", f"// {start}\n"), start)
        expect(1 in lines_of("a.py", f"# {start}\n"), start)
    expect(lines_of("a.h", "// The rows that exist, or\n// That is fine.\n") == [], "second line")


def test_names_are_found_in_code(_):
    for name in NAMES:
        expect(lines_of("a.h", f"int x;\nconst int {name} = 1;\n") == [2], f"{name} in C++")
        expect(lines_of("a.py", f"x = 1\n{name} = 1\n") == [2], f"{name} in Python")


def test_what_is_allowed_is_not_found(_):
    for name, text in [("a.h", "// If there is one, we found it by asking.\nint found_rows, is_wanted;\n"),
                       ("a.h", '// `goes on` in backquotes is code.\nint a = f("there");\n'),
                       ("a.md", "Run `nobody beside`.\n\n    code beside\n\n```\nanew\n```\n"),
                       ("a.md", "The step goes on the GPU.\n"), ("a.h", "char c = '\"';  // fine\nint a;\n"),
                       ("a.py", 'TEXT = "the king stands beside her"  # lint: data\n'),
                       ("a.h", 'auto s = R"(a " quote)";  // fine\n')]:
        expect(lines_of(name, text) == [], f"{text!r}: {list(check_words.breaches(name, text))}")


def test_the_repository_is_clean(_):
    done = subprocess.run([sys.executable, str(ROOT / "scripts/check_words.py")], capture_output=True, text=True, timeout=120)
    expect(done.returncode == 0, done.stdout + done.stderr)


def test_the_script_reports_file_line_and_hint(folder):
    page = folder / "page.md"
    page.write_text("Title\n\nIt begins anew.\n")
    done = subprocess.run([sys.executable, str(ROOT / "scripts/check_words.py"), str(page)], capture_output=True, text=True,
                          timeout=60)
    expect(done.returncode == 1 and done.stdout == f'{page}:3: "anew": write again\n', f"{done.returncode} {done.stdout}")


if __name__ == "__main__":
    sys.exit(run_tests(globals(), lambda folder: (folder,), *sys.argv[1:2]))
