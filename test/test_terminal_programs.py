#!/usr/bin/env python3
"""Tests the programs on a terminal: --help, errors in flags and --config, progress, samples, statistics.

    python3 test/test_terminal_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does.
"""
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "oracle"))
import greedy  # noqa: E402
from runner import expect  # noqa: E402
from test_programs import SMALL, run_program_tests  # noqa: E402


def test_samples_start_with_a_token_of_the_tokenizer(program):
    (program.folder / "words.txt").write_text("a\nb\n")
    (program.folder / "ab.txt").write_text("a b b " * 200)
    result = program.run("--train", "ab.txt", "--tokenizer", "words:words.txt", *SMALL, "--steps", 1)
    expect("sample: a" in result.stderr, result.stderr[-300:])
    result = program.train("--steps", 1, "--seq-len", 1)
    expect("sample:" not in result.stderr, result.stderr[-300:])


def test_samples_of_bytes_are_long_and_have_a_visible_end(program):
    flags = ["--layers", 1, "--heads", 1, "--channels", 16, "--context", 256, "--batch-size", 1, "--steps", 1, "--eval-every", 0]
    for more, count in (([], 200), (["--sample-length", 30], 30), (["--seq-len", 64], 63)):
        errors = program.run("--train", "text.txt", *flags, *more).stderr
        sample = re.search(r"^sample:\n((?:  \|.*\n)+)  \(end of sample\)$", errors, re.M)
        expect(sample, f"no sample with an end: {errors[-600:]}")
        lines = [line.removeprefix("  |").removeprefix(" ") for line in sample[1].removesuffix("\n").split("\n")]
        text = "\n".join(lines).replace("<|endoftext|>", "E")
        # The default prompt is a line break, so the first line is empty. A U+FFFD stands for one byte.
        num_bytes = sum(1 if letter == "\ufffd" else len(letter.encode()) for letter in text)
        expect(lines[0] == "" and num_bytes == 1 + count, f"{num_bytes} bytes, not {count}: {lines}")
    (program.folder / "words.txt").write_text("a\nb\n")
    (program.folder / "ab.txt").write_text("a b b " * 200)
    errors = program.run("--train", "ab.txt", "--tokenizer", "words:words.txt", *flags).stderr
    words = re.search(r"^sample: (a(?: [ab])*)$", errors, re.M)
    expect(words and len(words[1].split()) == 49, f"not 48 words after the first: {errors[-600:]}")


def test_impossible_samples_are_refused_before_the_first_step(program):
    for flags, phrase in ((["--prompt", "x" * 16], "--prompt has 16 tokens"),
                          (["--seq-len", 1, "--sample-every", 1], "--prompt has 1 tokens"),
                          (["--batch-size", 65536], "--batch-size 65536 is too large\n  hint: use at most 65535")):
        arguments = ["--train", "text.txt", *SMALL, "--steps", 1]
        if "--batch-size" in flags:
            arguments = [*arguments[:arguments.index("--batch-size")], "--steps", 1]
        result = program.run(*arguments, *flags, code=2)
        expect(phrase in result.stderr and not re.search("^step ", result.stderr, re.M), result.stderr[-400:])


def test_progress_fits_the_terminal(program):
    for columns in (200, 80, 30):
        controller, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen([program.binary, "--train", "text.txt", *SMALL, "--steps", "5", "--eval-every", "0",
                                    "--sample-every", "0"], cwd=program.folder, stderr=terminal)
        os.close(terminal)
        output = b""
        try:
            while chunk := os.read(controller, 65536):
                output += chunk
        except OSError:  # the other end is closed
            pass
        expect(process.wait() == 0, output)
        os.close(controller)
        live = [line for line in output.decode().replace("\x1b[K", "\n").replace("\r\n", "\n").split("\n")
                if line.startswith("\r")]
        expect(live, output)
        for number, line in enumerate(live):  # the time left is known from the second step on
            expect("loss" in line and len(line) - 1 < columns, f"{columns} columns: {line!r}")
            expect(("[" in line) == (columns == 200) and ("ETA" in line) == (columns >= 80 and number > 0), f"{columns}: {line!r}")


def run_together(program, *arguments, folder):
    """The bytes of stdout alone, and those of stdout and stderr in one file."""
    greedy.write_model(folder / "model", layers=2, heads=3, channels=24, context=40)
    command = [program.binary.parent / "infer_gpt2", "-m", "model", "--prompt", "The", "-n", "5", "--temperature", "0", *arguments]
    alone = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
    with open(folder / "both.txt", "wb") as both:
        subprocess.run(command, cwd=folder, stdout=both, stderr=both, check=True)
    return alone.stdout, (folder / "both.txt").read_bytes()


def test_statistics_begin_on_their_own_line_if_stdout_is_stderr(program):
    text, both = run_together(program, folder=program.folder)
    expect(text and not text.endswith(b"\n"), text)
    expect(text + b"\nprompt: 3 tokens" in both, both)
    text, both = run_together(program, "--quiet", folder=program.folder)
    expect(both == text, (both, text))
    stop = text.decode()[0]  # without a text there is no line to end
    text, both = run_together(program, "--stop", stop, folder=program.folder)
    expect(text == b"" and b"\n\nprompt:" not in both and b"\nprompt: 3 tokens" in both, both)


def test_several_completions_are_separated_if_stdout_is_stderr(program):
    text, both = run_together(program, "--samples", "2", folder=program.folder)
    one = text[:len(text) // 2]
    expect(text == one + one and one.endswith(b"\n") and b"---" not in text, text)
    expect(b"--- sample 0 ---\n" + one + b"--- sample 1 ---\n" + one + b"completions: 2" in both, both)
    (program.folder / "prompts.txt").write_text("The\nThe\n")
    command = [program.binary.parent / "infer_gpt2", "-m", "model", "--prompts", "prompts.txt", "-n", "5"]
    both = subprocess.run(command, cwd=program.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True).stdout
    expect(b"--- prompt 1, sample 0 ---\n" in both and b"--- prompt 2, sample 0 ---\n" in both, both)
    text, both = run_together(program, "--samples", "2", "--quiet", folder=program.folder)
    expect(both == text, both)
    text, both = run_together(program, "--samples", "2", "--jsonl", folder=program.folder)
    expect(b"---" not in both, both)


def test_empty_values_are_refused(program):
    for flag in ("--train", "--val", "--out", "--log", "--tokenizer", "--init-from", "--final-samples-out", "--cache-dir"):
        program.fails(flag, "", phrases=[f"{flag}: is empty"], code=2)
    program.train("--steps", 1, "--prompt", "", "--eval-every", 0)


def test_errors_in_a_config_file_are_named(program):
    (program.folder / "run.toml").write_text("stepz = 1\n")
    program.fails("--config", "run.toml", phrases=["--config run.toml: there is no flag --stepz"], code=2)


def test_help_fits_a_terminal(program):
    for name in ("train_gpt2", "infer_gpt2", "tokenize"):
        binary = program.binary.parent / name
        if not binary.exists():
            continue
        lines = subprocess.run([binary, "--help"], capture_output=True, text=True, check=True).stdout.splitlines()
        wide_lines = [line for line in lines if len(line) > 80]
        expect(not wide_lines, f"{name}: {wide_lines}")


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
