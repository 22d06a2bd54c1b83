#!/usr/bin/env python3
"""Tests scripts/export_run.py: TensorBoard's event files, read by this file and by TensorBoard, and W&B.

    python3 test/test_run_export.py build/host [PATTERN]
"""
import math
import os
import struct
import subprocess
import sys

from runner import Skip, expect
from test_programs import run_program_tests
from test_run_history import write_resumed_log
from test_run_view import script, write_log

from run_view import tensorboard
from run_view.logs import LogError, load_runs


# ---- TensorBoard ---------------------------------------------------------------------------


def slow_crc32c(data):
    """CRC-32C by its definition: the remainder modulo the polynomial 0x1EDC6F41, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        for bit in range(8):
            top = crc >> 31 ^ (byte >> bit & 1)
            crc = crc << 1 & 0xFFFFFFFF ^ (0x1EDC6F41 if top else 0)
    return int(f"{crc ^ 0xFFFFFFFF:032b}"[::-1], 2)


def read_fields(data):
    """[(field number, value)] of a protocol buffer. A varint is an integer, any other value bytes."""
    fields, offset = [], 0

    def varint():
        nonlocal offset
        value = shift = 0
        while True:
            byte = data[offset]
            offset += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
    while offset < len(data):
        tag = varint()
        if tag & 7 == 0:
            fields.append((tag >> 3, varint()))
            continue
        size = varint() if tag & 7 == 2 else {1: 8, 5: 4}[tag & 7]
        fields.append((tag >> 3, data[offset:offset + size]))
        offset += size
    return fields


def read_events(path):
    """[(wall time, step, tag, number or text)] of an event file. Verifies every checksum."""
    data, offset, events = path.read_bytes(), 0, []

    def checked(part, crc):
        plain = slow_crc32c(part)
        masked = ((plain >> 15 | plain << 17) + 0xA282EAD8) & 0xFFFFFFFF
        expect(struct.unpack("<I", crc)[0] == masked, "a checksum is wrong")
        return part
    while offset < len(data):
        length = struct.unpack("<Q", checked(data[offset:offset + 8], data[offset + 8:offset + 12]))[0]
        begin, end = offset + 12, offset + 12 + length
        event = dict(read_fields(checked(data[begin:end], data[end:end + 4])))
        offset = end + 4
        time = struct.unpack("<d", event[1])[0]
        if 3 in event:
            expect(event[3] == b"brain.Event:2" and not events, "the version comes first")
            continue
        for number, value in read_fields(event[5]):
            expect(number == 1, "a summary has only values")
            inner = dict(read_fields(value))
            if 8 in inner:
                tensor = dict(read_fields(inner[8]))
                expect(tensor[1] == 7 and b"text" in inner[9], f"not a text: {tensor}, {inner[9]}")
                content = tensor[8].decode()
            else:
                content = struct.unpack("<f", inner[2])[0]
            events.append((time, event[2], inner[1].decode(), content))
    return events


def test_checksums_are_masked_crc32c(_):
    expect(slow_crc32c(b"123456789") == 0xE3069283, "the test's own")  # the check value of CRC-32C
    expect(tensorboard.masked_crc(b"123456789") == (((0xE3069283 >> 15 | 0xE3069283 << 17) & 0xFFFFFFFF)
                                                    + 0xA282EAD8) & 0xFFFFFFFF, "ours")


def test_event_files_have_all_steps_and_wall_times(program):
    write_log(program, "run.jsonl", steps=300)
    for _ in range(2):
        script("export_run.py", program, "run.jsonl", "--tensorboard", "board")
    files = list((program.folder / "board").rglob("*"))
    expect([f.name for f in files if f.is_file()] == [tensorboard.EVENT_FILE], f"{files}: exported twice")
    events = read_events(program.folder / "board/run" / tensorboard.EVENT_FILE)
    losses = [(step, value) for _, step, tag, value in events if tag == "loss/training"]
    expect([step for step, _ in losses] == list(range(1, 301)), "steps")
    expect(all(math.isclose(value, 5 - 0.1 * step, rel_tol=1e-6, abs_tol=1e-6) for step, value in losses), "values")
    expect(len([1 for _, _, tag, _ in events if tag == "loss/validation"]) == 61, "evaluations")
    expect({"training/lr", "machine/cpu_percent", "speed/tok_per_s"} <= {tag for _, _, tag, _ in events}, "tags")
    times = [time for time, *_ in events]
    expect(times == sorted(times) and math.isclose(times[-1] - times[0], 300 * 0.9, abs_tol=1e-3), "wall times")
    expect(abs(times[-1] - (program.folder / "run.jsonl").stat().st_mtime) < 1e-3, "the end is the file's")


def test_event_files_have_settings_and_resume_points(program):
    write_resumed_log(program, "run.jsonl")
    script("export_run.py", program, "run.jsonl", "--tensorboard", "board")
    events = read_events(program.folder / "board/run" / tensorboard.EVENT_FILE)
    texts = [(step, tag, text) for _, step, tag, text in events if isinstance(text, str)]
    expect([text[:2] for text in texts] == [(0, "settings"), (10, "settings"), (10, "resumed")], f"{texts}")
    expect("| --lr | 0.0006 |" in texts[0][2] and "| --prompt | a\\|b |" in texts[0][2], texts[0][2])
    expect("| --lr | 0.0003 |" in texts[1][2] and texts[2][2].startswith("resumed at step 10: --lr was"), f"{texts[1:]}")
    bits = {step: value for _, step, tag, value in events if tag == "loss/validation_bits_per_byte"}
    expect(math.isclose(bits[15], 3.55 / math.log(2) / 4, rel_tol=1e-6), f"{bits}")


def test_tensorboard_reads_the_event_file(program):
    python = os.environ.get("PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import tensorboard"], capture_output=True).returncode:
        raise Skip(f"{python} has no tensorboard")
    write_resumed_log(program, "run.jsonl")
    script("export_run.py", program, "run.jsonl", "--tensorboard", "board")
    reader = ("import sys\nfrom tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
              "board = EventAccumulator('board/run'); board.Reload()\n"
              "print([(e.step, round(e.value, 4)) for e in board.Scalars('loss/validation')])\n"
              "print([e.tensor_proto.string_val[0].decode()[:10] for e in board.Tensors('resumed')])")
    done = subprocess.run([python, "-c", reader], cwd=program.folder, capture_output=True, text=True, timeout=120)
    expect(done.stdout.strip() == "[(0, 5.1), (5, 4.55), (10, 4.05), (15, 3.55), (20, 3.05)]\n['resumed at']",
           f"{done.stdout[-300:]} {done.stderr[-500:]}")


# ---- Weights & Biases ----------------------------------------------------------------------

# Replaces the package: appends every call to calls.jsonl.
FAKE_WANDB = """
import json
def note(*what):
    with open("calls.jsonl", "a") as file:
        file.write(json.dumps(what) + "\\n")
class Config:
    def update(self, values, allow_val_change): note("config", values)
class Run:
    config = Config()
    def log(self, values, step): note("log", step, values)
    def finish(self): note("finish")
def init(**options):
    note("init", options)
    return Run()
"""


def test_each_step_is_exported_to_wandb_once(program):
    write_log(program, "run.jsonl", steps=4)
    (program.folder / "fake").mkdir()
    (program.folder / "fake/wandb.py").write_text(FAKE_WANDB)

    def export(*arguments):
        (program.folder / "calls.jsonl").write_text("")
        script("export_run.py", program, "run.jsonl", "--wandb", "shakespeare", *arguments,
               environment={"PYTHONPATH": str(program.folder / "fake")})
        return program.log("calls.jsonl")
    calls = export()
    options = calls[0][1]
    expect(options["project"] == "shakespeare" and options["name"] == "run" and options["mode"] == "offline", f"{options}")
    expect([c[1] for c in calls if c[0] == "log"] == [0, 1, 2, 3, 4] and calls[-1] == ["finish"], f"{calls}")
    expect(calls[1][2] == {"loss/validation": 5.1} and calls[2][2]["loss/training"] == 4.9, f"{calls[1:3]}")
    expect(export() == [], "exported twice")
    write_log(program, "run.jsonl", steps=6)
    calls = export("--online")
    expect([c[1] for c in calls if c[0] == "log"] == [5, 6], f"{calls}")
    expect(calls[0][1]["id"] == options["id"] and calls[0][1]["mode"] == "online", "another run")


def test_wandb_has_settings_as_config_and_resume_points_as_notes(program):
    write_resumed_log(program, "run.jsonl")
    (program.folder / "fake").mkdir()
    (program.folder / "fake/wandb.py").write_text(FAKE_WANDB)
    script("export_run.py", program, "run.jsonl", "--wandb", "p", environment={"PYTHONPATH": str(program.folder / "fake")})
    calls = program.log("calls.jsonl")
    expect(calls[0][1]["notes"].startswith("resumed at step 10: --lr was 0.0006"), f"{calls[0]}")
    expect(calls[1][0] == "config" and calls[1][1]["lr"] == 0.0003 and "step" not in calls[1][1], f"{calls[1]}")


def test_wandb_writes_an_offline_run(program):
    python = os.environ.get("PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import wandb; wandb.init"], capture_output=True).returncode:
        raise Skip(f"{python} has no wandb")
    write_resumed_log(program, "run.jsonl")
    script("export_run.py", program, "run.jsonl", "--wandb", "shakespeare", python=python,
           environment={"WANDB_SILENT": "true"})
    expect(len(list((program.folder / "wandb").glob("offline-run-*/*.wandb"))) == 1, "no offline run")


def test_errors_of_export_name_the_cause(program):
    write_log(program, "run.jsonl")
    (program.folder / "none").mkdir()
    (program.folder / "none/wandb.py").write_text("raise ImportError")
    done = script("export_run.py", program, "run.jsonl", "--wandb", "p", code=1,
                  environment={"PYTHONPATH": str(program.folder / "none")})
    expect("pip install wandb" in done.stderr, done.stderr)
    expect("--tensorboard DIR or --wandb" in script("export_run.py", program, "run.jsonl", code=2).stderr, "nothing to do")
    expect("no.jsonl" in script("export_run.py", program, "no.jsonl", "--tensorboard", "b", code=1).stderr, "the file")
    (program.folder / "file").write_text("")
    expect("file" in script("export_run.py", program, "run.jsonl", "--tensorboard", "file", code=1).stderr, "the folder")
    try:
        load_runs([program.folder / "run.jsonl"], ["a", "b"])
    except LogError as error:
        expect("2 names" in str(error), str(error))
    else:
        raise AssertionError("too many names")


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
