#!/usr/bin/env python3
"""Tests compare.py: plants one difference at a time in a program's results and checks what is reported.

    test/golden/planted_differences.py BINARIES [PATTERN]

BINARIES is a folder of host programs, such as build/host. Prints `ok NAME` or `FAILED NAME: why` for each
difference, then `N passed, N failed, N skipped`; exits with 1 if one failed.
"""
import fnmatch
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent

# Replaces a program: executes the real one, with the code of the planted difference before or after it.
STAND_IN = """#!/usr/bin/env python3
import json, re, struct, subprocess, sys
from pathlib import Path
arguments = sys.argv[1:]
{before}
done = subprocess.run([{program!r}, *arguments], capture_output=True)
out, err, code = done.stdout, done.stderr, done.returncode

def edit(pattern, change):
    for path in Path().glob(pattern):
        path.write_bytes(change(path.read_bytes()))

def flip(data, place):
    data = bytearray(data)
    data[place] ^= 1
    return bytes(data)

{after}
sys.stdout.buffer.write(out)
sys.stderr.buffer.write(err)
sys.exit(code)
"""


@dataclass
class Plant:
    name: str
    run: str  # name of a run in runs.py
    program: str
    code: str  # changes files, `out`, `err` or `code`; with `before` it changes `arguments`
    report: tuple = ()  # texts that the report must have
    differs: bool = True  # whether compare.py must exit with 1
    flags: tuple = ()
    before: bool = False
    both: bool = False  # both sides have the same fault


# Renames flags as a later build may. --resume verifies the manifest's checksum, so the manifest changes
# only after the last command, the one with --seq-len.
RENAME = ('change = lambda data: data.replace(b"--clip", b"--grad-clip").replace(b"--final-lr", b"--final-lr-fraction")\n'
          'err = change(err)\nif "--seq-len" in arguments:\n'
          '    edit("run/*/manifest.json", change)\n    edit("run.jsonl", change)')

PLANTS = [
    Plant("a flag that does something else", "fp32", "train_gpt2", 'arguments += ["--seed", "7"]',
          ("run.jsonl: line 1 (step 0): val_loss", "model.safetensors: transformer.h.0", "max abs difference",
           "manifest.json: state.seed: 1337 -> 7", "2.train_gpt2.stdout", "difference"), before=True),
    Plant("the last bit of a gradient norm", "tf32", "train_gpt2",
          'edit("run.jsonl", lambda data: re.sub(rb\'("grad_norm":[\\d.]*)\\d\', rb"\\g<1>3", data, 1))',
          ("run.jsonl: line 1 (step 1): grad_norm: ",)),
    Plant("a missing line of the log", "tf32", "train_gpt2",
          'edit("run.jsonl", lambda data: data[:data.rindex(b"\\n", 0, -1) + 1])', ("run.jsonl: number of lines: 3 -> 2",)),
    Plant("one bit of a weight", "tf32", "train_gpt2", 'edit("run/*/model.safetensors", lambda data: flip(data, -4))',
          ("model.safetensors: transformer.", "1 of ", "max abs difference")),
    Plant("one bit of a moment", "tf32", "train_gpt2", 'edit("run/*/optimizer.safetensors", lambda data: flip(data, -4))',
          ("optimizer.safetensors: ", "moment", "1 of ")),
    Plant("the name of a tensor", "tf32", "train_gpt2",
          'edit("run/*/model.safetensors", lambda data: data.replace(b"ln_f.bias", b"ln_g.bias"))',
          ("ln_f.bias: present -> missing", "ln_g.bias: missing -> present")),
    Plant("the shape of a tensor", "tf32", "train_gpt2",
          'edit("run/*/model.safetensors", lambda data: data.replace(b"[16,48]", b"[48,16]"))',
          ("F32 [16, 48] -> F32 [48, 16]",)),
    Plant("a value in the checkpoint's state", "tf32", "train_gpt2",
          'edit("run/*/manifest.json", lambda data: data.replace(b\'"tokens": 96\', b\'"tokens": 97\'))',
          ("manifest.json: state.tokens: 96 -> 97",)),
    Plant("a value in config.json", "tf32", "train_gpt2",
          'edit("run/*/config.json", lambda data: data.replace(b\'"n_head": 2\', b\'"n_head": 4\'))',
          ("config.json: n_head: 2 -> 4",)),
    Plant("a number in the model card", "tf32", "train_gpt2",
          'edit("run/*/README.md", lambda data: data.replace(b"| layers | 2 |", b"| layers | 3 |"))', ("README.md: line ",)),
    Plant("a missing file", "tf32", "train_gpt2", 'Path("run/step_000003/vocab.json").unlink()',
          ("vocab.json: present -> missing",)),
    Plant("a further file", "tf32", "train_gpt2", 'Path("run/left.tmp").write_text("")', ("run/left.tmp: missing -> present",)),
    Plant("one cached token", "tf32", "train_gpt2", 'edit("in/*.cache.bin", lambda data: flip(data, -2))',
          ("cache.bin: token ", "1 tokens differ")),
    Plant("one bit of a token", "tokenize-json", "tokenize",
          'if "body.bin" in arguments: edit("body.bin", lambda data: flip(data, 2000))',
          ("body.bin: token 488: ",)),
    Plant("the header of a token file", "tokenize-json", "tokenize",
          'if "body.bin" in arguments: edit("body.bin", lambda data: flip(data, 100))',
          ("body.bin: header[25]: 0 -> 1",)),
    Plant("a decoded text", "tokenize-json", "tokenize",
          'edit("a.jsonl", lambda data: data.replace(b"document 3 ", b"document 4 "))', ("a.jsonl: line ", "text: ")),
    Plant("the number of documents", "tokenize-dedup", "tokenize", 'out = out.replace(b"13 exact", b"12 exact")',
          ("1.tokenize.stdout: line 1",)),
    Plant("generated text", "infer-sampling", "infer_gpt2", "out = flip(out, -1)", ("1.infer_gpt2.stdout: line ",)),
    Plant("generated ids", "infer-greedy", "infer_gpt2", 'out = out.replace(b"]}", b",1]}")', ("1.infer_gpt2.stdout: line 1",)),
    Plant("samples at the end", "samples", "train_gpt2", 'edit("words.samples", lambda data: flip(data, 5))',
          ("words.samples: line 1",)),
    Plant("a sample during training", "samples", "train_gpt2",
          'err = err.replace(b"sample: the king", b"sample: the kong")',
          ("1.train_gpt2.stderr: line ", "sample: the kong")),
    Plant("a validation loss", "validation", "train_gpt2", 'out = re.sub(rb"(val_loss [\\d.]+)", rb"\\g<1>1", out)',
          ("2.train_gpt2.stdout: line 1",)),
    Plant("a table of evaluation", "tasks", "train_gpt2", 'out = re.sub(rb"(accuracy +)0 ", rb"\g<1>1 ", out, 1)',
          ("1.train_gpt2.stdout: line ",)),
    Plant("a number of operations", "profile", "train_gpt2",
          'edit("*.profile.jsonl", lambda data: data.replace(b\'"calls_per_step":4\', b\'"calls_per_step":5\'))',
          ("fp32.profile.jsonl: line ", "calls_per_step: 4.0 -> 5.0")),
    Plant("an exit code", "tf32", "train_gpt2", "code = 3", ("1.train_gpt2: exit code: 0 -> 3",)),
    Plant("a crash", "tf32", "train_gpt2", "import os\nos.abort()", ("1.train_gpt2: exit code: 0 -> -6",)),
    Plant("the exit code of an error", "errors-data", "train_gpt2", "code = 2", ("1.train_gpt2: exit code: 1 -> 2",)),
    Plant("the same failure on both sides", "tf32", "train_gpt2", 'err, code = err + b"why\\n", 1',
          ("exit code 1 on both sides, runs.py expects 0: why",), both=True),
    Plant("a number in a note of --resume", "resume-other-flags", "train_gpt2",
          'err = err.replace(b"--warmup was 2", b"--warmup was 3")', ("2.train_gpt2.stderr: line ", "--warmup was 3")),
    Plant("a missing note of --resume", "resume-other-flags", "train_gpt2",
          'err = re.sub(rb"resume: --tf32.*\\n", b"", err)', ("no such line",)),
    Plant("a note of --resume in the log", "resume-other-flags", "train_gpt2",
          'edit("run.jsonl", lambda data: data.replace(b"--warmup was 2", b"--warmup was 3"))',
          ("run.jsonl: line ", "resumed: ")),
    Plant("other data", "tf32", "train_gpt2", 'err = re.sub(rb"\\d+ windows", b"7 windows", err)',
          ("1.train_gpt2.stderr: line 2",)),
    Plant("messages that count", "tf32", "train_gpt2", 'err = err.replace(b"saved run", b"wrote run")',
          ("messages that differ\n",), flags=("--messages",)),
    Plant("wording of a message", "tf32", "train_gpt2", 'err = err.replace(b"saved run", b"wrote run")',
          ("messages that differ (", "wrote run", "1 messages differ"), differs=False),
    Plant("wording of a note of --resume", "resume-other-flags", "train_gpt2",
          'change = lambda data: re.sub(rb"was (\\S+), it is (\\S+) now", rb"changed from \\1 to \\2", data)\n'
          'err = change(err)\nedit("run.jsonl", change)', ("messages that differ (", "and 36 more like it"), differs=False),
    Plant("wording of the model card", "tf32", "train_gpt2",
          'edit("run/*/README.md", lambda data: data.replace(b"attention heads", b"heads"))',
          ("1 messages differ",), differs=False),
    Plant("wording of an error", "errors-data", "train_gpt2", 'err = err.replace(b"cannot open", b"could not open 1")',
          ("1 messages differ",), differs=False),
    Plant("renamed flags", "resume-other-flags", "train_gpt2", RENAME, ("0 messages differ",), differs=False),
    Plant("another order of notes", "resume-other-flags", "train_gpt2",
          'notes = re.findall(rb"resume: --.*\\n", err)\nerr = re.sub(rb"(resume: --.*\\n)+", b"".join(reversed(notes)), err)',
          ("0 messages differ",), differs=False),
    Plant("times and memory", "tf32", "train_gpt2",
          'err = re.sub(rb"\\d+ ms", b"1 ms", err)\nerr = re.sub(rb"[\\d.]+ MiB free", b"1 MiB free", err)\n'
          'edit("run.jsonl", lambda data: re.sub(rb\'"(step_ms|tok_per_s|mfu|mfu_full|cpu_percent)":[^,}]+\', '
          'rb\'"\\1":1.5\', data))',
          ("0 messages differ",), differs=False),
    Plant("times of a generation", "infer-sampling", "infer_gpt2",
          'err = re.sub(rb"[\\d.]+ (ms|tok/s)", rb"1.5 \\1", err)', ("0 messages differ",), differs=False),
]


def write_stand_in(folder, binaries, plant):
    """Creates a folder of programs in which one has the planted difference. Returns the folder."""
    folder.mkdir()
    for program in ("train_gpt2", "infer_gpt2", "tokenize", "toy_language"):
        if program != plant.program:
            (folder / program).symlink_to(binaries / program)
    before, after = (plant.code, "") if plant.before else ("", plant.code)
    stand_in = folder / plant.program
    stand_in.write_text(STAND_IN.format(before=before, after=after, program=str(binaries / plant.program)))
    stand_in.chmod(0o755)
    return folder


def check(plant, binaries, folder):
    """Returns what is wrong with the report, or None."""
    new = write_stand_in(folder / "new", binaries, plant)
    done = subprocess.run([HERE / "compare.sh", "--binaries", new if plant.both else binaries, new, "--only", plant.run,
                           "--work", folder / "work", *plant.flags], capture_output=True, text=True, env=os.environ)
    if done.returncode != plant.differs:
        return f"exit code {done.returncode}, not {int(plant.differs)}: {done.stdout[-1500:]}{done.stderr[-500:]}"
    missing = [text for text in plant.report if text not in done.stdout]
    return f"{missing} not in: {done.stdout[-1500:]}" if missing else None


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    binaries, pattern = Path(sys.argv[1]).resolve(), sys.argv[2] if len(sys.argv) == 3 else "*"
    failed = 0
    plants = [plant for plant in PLANTS if fnmatch.fnmatch(plant.name, pattern)]
    for plant in plants:
        with tempfile.TemporaryDirectory() as folder:
            problem = check(plant, binaries, Path(folder))
        failed += problem is not None
        print(f"FAILED {plant.name}: {problem}" if problem else f"ok {plant.name}", flush=True)
    print(f"{len(plants) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
