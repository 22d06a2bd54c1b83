#!/usr/bin/env python3
"""Writes the table of what --resume allows into llmc/io/checkpoint/README.md, from the settings table.

    python3 scripts/resume_table.py build/host
"""
import json
import subprocess
import sys
from pathlib import Path

import standard_output

README = Path(__file__).resolve().parent.parent / "llmc/io/checkpoint/README.md"
BEGIN = "<!-- Written by scripts/resume_table.py -->\n"
END = "<!-- End of the table -->\n"
MEANING = {
    "fixed": "an error that names the flag",
    "noted": "allowed and reported",
    "indirect": "allowed; the settings that follow from it are reported",
    "process": "not recorded: it belongs to one process",
    "adapted": "allowed and reported; the position in the data is converted",
    "ignored": "not used: the checkpoint has weights and a loss scale of its own",
    "free": "allowed and reported; it changes no result, or only the rounding",
}


def table(rows):
    lines = ["| flag | if it differs from the checkpoint's run |", "|---|---|"]
    for policy, meaning in MEANING.items():
        flags = [row["flag"] for row in rows if row["on_resume"] == policy]
        notes = [f"`{row['flag']}`: {row['resume_text']}" for row in rows
                 if row["on_resume"] == policy and row["resume_text"]]
        names = ", ".join(f"`{flag}`" for flag in flags)
        lines.append(f"| {names} | {'. '.join([meaning, *notes])} |")
    return "\n".join(lines) + "\n"


def replace_table(text, rows):
    """The README's text with the table of these rows."""
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:begin] + table(rows) + text[end:]


def main():
    program = Path(sys.argv[1]).resolve() / "train_gpt2"
    done = subprocess.run([program, "--help-json"], capture_output=True, text=True, check=True)
    README.write_text(replace_table(README.read_text(), json.loads(done.stdout)))


if __name__ == "__main__":
    standard_output.run(main)
