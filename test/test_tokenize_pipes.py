#!/usr/bin/env python3
"""Tests tokenize with inputs from pipes.

    python3 test/test_tokenize_pipes.py build/host [PATTERN]

Prints and exits as test_programs.py does.
"""
import os
import subprocess
import sys
import time

from runner import Skip, expect
from test_programs import run_program_tests
from test_tokenize_program import documents_of, output_files, run_bytes, tokens


def run_piped(program, *arguments, piped=b"", code=0):
    """Runs tokenize with the bytes `piped` on stdin. Returns stderr."""
    done = subprocess.run([str(program.binary), "--tokenizer", "bytes", *arguments], input=piped, cwd=program.folder,
                          capture_output=True, timeout=300)
    expect(done.returncode == code, f"exit code {done.returncode}, not {code}: {done.stderr}")
    return done.stderr.decode()


def test_a_pipe_has_the_tokens_of_the_file(program):
    text = (program.folder / "text.txt").read_bytes() * 200  # more than a pipe holds
    (program.folder / "long.txt").write_bytes(text)
    run_bytes(program, "long.txt", "-o", "file.bin")
    expected = (program.folder / "file.bin").read_bytes()
    for name in ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"):
        run_piped(program, name, "-o", "pipe.bin", "--force", piped=text)
        expect((program.folder / "pipe.bin").read_bytes() == expected, f"{name}: other tokens")
    with open(program.folder / "long.txt") as file:  # a file as stdin is not copied
        done = subprocess.run([program.binary, *"--tokenizer bytes - -o stdin.bin".split()], cwd=program.folder,
                              stdin=file, capture_output=True, text=True, timeout=300)
    expect(done.returncode == 0 and "copying" not in done.stderr, done.stderr)
    expect((program.folder / "stdin.bin").read_bytes() == expected, "a file as stdin: other tokens")


def test_several_pipes_are_read_in_their_order(program):
    cats = [subprocess.Popen(["printf", "%s", word], stdout=subprocess.PIPE) for word in ("one", "two")]
    pipes = [cat.stdout.fileno() for cat in cats]  # as <(printf one) <(printf two) in a shell
    first, second = (f"/dev/fd/{pipe}" for pipe in pipes)
    done = subprocess.run([program.binary, "--tokenizer", "bytes", second, "text.txt", first, "-o", "a.bin"],
                          cwd=program.folder, pass_fds=pipes, capture_output=True, timeout=300)
    for cat in cats:
        cat.communicate()
    expect(done.returncode == 0, done.stderr)
    text = (program.folder / "text.txt").read_bytes()
    expect(documents_of(tokens(program.folder / "a.bin")) == [b"two", text, b"one"], "other documents")


def test_the_format_of_a_pipe_is_a_flag_or_its_name(program):
    lines = b'{"text": "one"}\n{"text": "two"}\n'
    run_piped(program, "-", "-o", "flag.bin", "--format", "jsonl", piped=lines)
    expect(documents_of(tokens(program.folder / "flag.bin")) == [b"one", b"two"], "--format jsonl: other documents")
    os.mkfifo(program.folder / "pipe.jsonl")
    with subprocess.Popen(["sh", "-c", "printf '%s' \"$1\" > pipe.jsonl", "sh", lines], cwd=program.folder):
        run_bytes(program, "pipe.jsonl", "-o", "name.bin")
    expect(documents_of(tokens(program.folder / "name.bin")) == [b"one", b"two"], "pipe.jsonl: other documents")
    warnings = run_piped(program, "-", "-o", "text.bin", piped=lines)
    expect(documents_of(tokens(program.folder / "text.bin")) == [lines], "no flag: other documents")
    expect("warning: /dev/stdin looks like JSON lines but is read as a text" in warnings and "use --format jsonl" in warnings, warnings)
    expect("warning" not in run_piped(program, "-", "-o", "b.bin", piped=b"one {}"), "a warning about a text")


def test_a_pipe_is_copied_to_the_directory_of_the_output(program):
    out = program.folder / "out"
    out.mkdir()
    with subprocess.Popen([program.binary, *"--tokenizer bytes - -o out/a.bin".split()], cwd=program.folder,
                          stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        running.stdin.write(b"x" * 500_000)
        running.stdin.flush()
        copies, end = [], time.monotonic() + 60
        while not copies and running.poll() is None and time.monotonic() < end:
            links = [os.readlink(link.path) for link in os.scandir(f"/proc/{running.pid}/fd")]
            copies = [link for link in links if link.endswith(" (deleted)")]
        names = {path.name for path in out.iterdir()}
        running.stdin.write(b"y")
        running.stdin.close()
        expect(running.wait() == 0, "the run failed")
    expect(len(copies) == 1 and copies[0].startswith(f"{out.resolve()}/"), copies)
    expect(names == {"a.bin.progress"}, f"the copy has a name: {names}")
    expect(len(tokens(out / "a.bin")) == 500_002, "other tokens")


def test_errors_name_the_pipe(program):
    for names, piped, phrases in ((["-", "/dev/stdin"], b"x", ["/dev/stdin is named twice"]),
                                  (["-", "text.txt", "-"], b"x", ["/dev/stdin is named twice"]),
                                  (["-", "/dev/fd/0"], b"x", ["/dev/stdin and /dev/fd/0 are the same pipe"]),
                                  (["-"], b"", ["/dev/stdin is empty"]),
                                  (["--format", "jsonl", "-"], b'{"text": "x"}\n{', ["/dev/stdin:2 is not valid JSON"]),
                                  (["-", "none.txt"], b"x", ["none.txt: No such file"])):
        message = run_piped(program, *names, "-o", "a.bin", piped=piped, code=1)
        expect(all(phrase in message for phrase in phrases), f"{names}: {message}")
        expect(output_files(program, "a") == {}, f"{names}: something was left")
    with open("/dev/zero") as zero:
        for stdin, phrase in ((zero, "/dev/stdin is a device"), (subprocess.DEVNULL, "/dev/stdin is empty")):
            done = subprocess.run([program.binary, *"--tokenizer bytes - -o a.bin".split()], cwd=program.folder,
                                  stdin=stdin, capture_output=True, text=True, timeout=60)
            expect(done.returncode == 1 and phrase in done.stderr, done.stderr)
    done = subprocess.run(["sh", "-c", f"{program.binary} --tokenizer bytes - -o a.bin <&-"], cwd=program.folder,
                          capture_output=True, text=True, timeout=60)
    expect(done.returncode == 1 and "stdin is closed" in done.stderr, done.stderr)
    message = run_piped(program, "-", "text.txt", "-o", "a.bin", piped=b"")
    expect("warning: /dev/stdin is empty, skipped" in message, message)
    message = run_piped(program, "-", "-o", "a.bin", piped=b"x", code=1)
    expect("a.bin already exists" in message and "copying" not in message, message)


def test_a_disk_that_is_too_full_for_a_copy_is_an_error(program):
    """The disk is a real tmpfs of 1 MB."""
    (program.folder / "disk").mkdir()
    script = f"""mount -t tmpfs -o size=1m none disk || exit 99
        head -c 3000000 /dev/zero | {program.binary} --tokenizer bytes - -o disk/a.bin
        code=$?; ls -A disk; exit $code"""
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], cwd=program.folder, capture_output=True, text=True,
                          timeout=300)
    if done.returncode not in (0, 1):
        raise Skip("no tmpfs can be mounted here")
    expect(done.returncode == 1 and done.stdout == "", f"exit code {done.returncode}, left {done.stdout}")
    for phrase in ("cannot write a copy of /dev/stdin in disk: No space left on device", "free some space"):
        expect(phrase in done.stderr, done.stderr)


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "tokenize"))
