#!/usr/bin/env python3
"""Tests which files train_gpt2 may write, and which settings and data may change when a run resumes.

    python3 test/test_resume_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does.
"""
import json
import re
import signal
import sys

from runner import expect
from test_checkpoint_programs import QUIET, RUN, TINY, build_fault_library, finish, logged_steps, start, wait_for, with_flags
from test_programs import ROOT, run_program_tests, settings_of


def test_batch_size_schedule_and_data_may_change_on_resume(program):
    def train(**changes):
        """Starts or resumes the run with the flags in `changes`, by default for one step. Returns its messages."""
        return finish(start(program, with_flags([*TINY, *QUIET, "--steps", 8, "--out", "run", "--resume",
                                                 "--stop-after", 1], **changes)))

    def position():
        newest = program.folder / "run/latest"
        state = json.loads((newest / "manifest.json").read_text())["state"]
        return [state[key] for key in ("samples", "tokens", "seq_len")]

    train(stop_after=3)
    expect(position() == [3, 24, 8], position())
    train(batch_size=2, grad_accum=3, lr=1e-4, schedule="linear", steps=9)
    expect(position() == [9, 72, 8], position())
    # 15 sequences of 5 tokens for the 72 tokens so far, and one step of 1 x 3: the checkpoint's --grad-accum
    messages = train(seq_len=5)
    expect("sequences had 8 tokens and now have 5" in messages and "continues at sequence 15" in messages, messages)
    expect(position() == [18, 87, 5], position())
    (program.folder / "other.txt").write_text("another text " * 300)
    messages = train(seq_len=5, train="other.txt")
    expect("the run trained on text.txt so far and continues with other.txt" in messages, messages)


def test_model_seed_and_dtype_must_not_change_on_resume(program):
    arguments = with_flags([*TINY, *QUIET, "--steps", 1, "--out", "run"], channels=16)
    finish(start(program, arguments))
    for changes, phrase in (({"layers": 2}, "--layers 2 does not agree with 1"), ({"heads": 2}, "--heads 2 does not agree with 1"),
                            ({"channels": 8}, "--channels 8 does not agree with 16"),
                            ({"context": 16}, "--context 16 does not agree with 8"), ({"seed": 7}, "--seed 1337, not 7"),
                            ({"dtype": "bf16"}, "--dtype fp32, not bf16")):
        program.fails(*with_flags(arguments, **changes), "--resume", phrases=["run/step_000001", phrase], code=2)


def test_resume_reports_changed_flags(program):
    run = [*TINY, *QUIET, "--steps", 40, "--dtype", "bf16", "--out", "run", "--log", "run.jsonl", "--resume",
           "--stop-after", 1]

    def resume(arguments):
        """Returns the notes on changed flags from stderr, and checks that the log has the same notes."""
        messages = finish(start(program, arguments))
        notes = [line.removeprefix("resume: ") for line in messages.splitlines() if re.search("^resume: .* was ", line)]
        logged = [line["resumed"] for line in program.log("run.jsonl") if "resumed" in line]
        expect(logged[-len(notes):] == notes if notes else True, f"{notes} on stderr, {logged} in the log")
        return notes

    expect(resume(run) == [], "a new run reports changes")
    expect(resume(run) == [], "a run with the same flags reports changes")
    other = with_flags(run, batch_size=2, grad_accum=3, logits_rows=7, steps=50, lr=0.25, warmup=9, schedule="wsd", final_lr_fraction=0.5,
                       weight_decay=0.25, beta1=0.5, beta2=0.75, eps=1e-7, grad_clip=2, dropout=0.125,
                       attention="standard")
    notes = resume([*other, "--stochastic-rounding", "--tf32"])
    for flag, before, after in (
            ("--batch-size", "1", "2"), ("--grad-accum", "1", "3"), ("--logits-rows", "4096", "7"), ("--steps", "40", "50"), ("--warmup", "2", "9"),
            ("--lr", "0.0006", "0.25"), ("--schedule", '"cosine"', '"wsd"'), ("--final-lr-fraction", "0.1", "0.5"),
            ("--weight-decay", "0.1", "0.25"), ("--beta1", "0.9", "0.5"), ("--beta2", "0.95", "0.75"),
            ("--eps", "1e-08", "1e-07"), ("--grad-clip", "1.0", "2.0"), ("--embedding-dropout", "0.0", "0.125"),
            ("--attention-dropout", "0.0", "0.125"), ("--residual-dropout", "0.0", "0.125"),
            ("--stochastic-rounding", "false", "true"), ("--attention", '"flash"', '"standard"'),
            ("--tf32", "false", "true")):
        expect(f"{flag} was {before}, it is {after} now" in notes, f"{flag}: {notes}")
    expect(len(notes) == 19, notes)
    expect(resume([*other, "--stochastic-rounding", "--tf32"]) == [], "changes are reported twice")


def test_the_resume_table_of_the_readme_is_up_to_date(program):
    sys.path.insert(0, str(ROOT / "scripts"))
    from resume_table import README, replace_table
    text = README.read_text()
    expect(replace_table(text, settings_of(program)) == text, "the table is out of date: run scripts/resume_table.py build/host")


def test_resume_reports_changed_data(program):
    def resume(train, *flags):
        messages = finish(start(program, with_flags([*TINY, *QUIET, "--steps", 9, "--out", "run", "--resume",
                                                     "--stop-after", 1, *flags], train=train)))
        return [line for line in messages.splitlines() if line.startswith("resume: ")][1:]

    text = (program.folder / "text.txt").read_text()
    for name in ("a.txt", "b.txt", "moved/a.txt", "c.jsonl"):
        (program.folder / name).parent.mkdir(exist_ok=True)
        (program.folder / name).write_text(json.dumps({"text": text}) if name == "c.jsonl" else text)
    resume("a.txt:0.7,b.txt:0.3")
    expect(resume("moved/a.txt:7,b.txt:3") == [], "the same data in the same shares")
    notes = resume("moved/a.txt:0.6,b.txt:0.4")
    expect(notes == ["resume: the run trained on a.txt:0.7,b.txt:0.3 so far and continues with a.txt:0.6,b.txt:0.4"], notes)
    (program.folder / "a.txt").write_text(text * 2)
    notes = resume("a.txt:0.6,b.txt:0.4")
    expect(len(notes) == 1 and "a.txt:0.6,b.txt:0.4 had" in notes[0] and "tokens and now has" in notes[0], notes)
    resume("c.jsonl")
    notes = resume("c.jsonl", "--document-mask")
    expect(notes == ["resume: --document-mask was false, it is true now"], notes)


def test_resume_requires_the_same_vocabulary(program):
    (program.folder / "words.txt").write_text("a\nb\nc\n")
    (program.folder / "other.txt").write_text("c\nb\na\n")
    (program.folder / "abc.txt").write_text("a b c a c b " * 100)
    run = with_flags([*TINY, *QUIET, "--steps", 3, "--stop-after", 1, "--out", "run", "--resume"], train="abc.txt")
    finish(start(program, [*run, "--tokenizer", "words:words.txt"]))
    program.fails(*run, "--tokenizer", "words:other.txt", phrases=["run/step_000001", "--tokenizer words:other.txt"])
    (program.folder / "words.txt").rename(program.folder / "moved.txt")
    finish(start(program, [*run, "--tokenizer", "words:moved.txt"]))


def test_two_runs_do_not_share_a_directory(program):
    run = with_flags(RUN, steps=1000000)
    first = start(program, run)
    wait_for(first, "step 1/")
    for flags in ([], ["--resume"]):
        program.fails(*with_flags(run, log="other.jsonl"), *flags, phrases=["another run is writing into --out ckpts"])
    first.send_signal(signal.SIGTERM)
    finish(first)
    finish(start(program, [*run, "--resume", "--stop-after", 1]))


def test_outputs_are_checked_before_the_first_step(program):
    (program.folder / "broken").symlink_to("missing/target")
    tiny = [*TINY, *QUIET, "--steps", 1]
    for flags in (["--out", "broken"], ["--out", "text.txt/run"], ["--final-samples-out", "none/samples"],
                  ["--profile", 1, "--profile-out", "none/profile"]):
        result = program.run(*tiny, *flags, code=1)
        expect(flags[-1] in result.stderr and "step 1/" not in result.stderr, result.stderr)


def test_a_run_is_saved_if_its_log_cannot_be_written(program):
    run = [*TINY, *QUIET, "--steps", 3, "--out", "run"]
    program.fails(*run, "--log", "/dev/full", phrases=["cannot write /dev/full", "No space left"])  # before the first step
    library = build_fault_library(program)  # the disk is full after the opening, the settings and the first step
    messages = finish(start(program, [*run, "--log", "run.jsonl"], LD_PRELOAD=str(library), FAULT_IN="run.jsonl",
                            FAULT_DO="full", FAULT_AT="5"), code=1)
    expect("saved run/step_000002" in messages and "cannot write run.jsonl: No space left" in messages, messages)
    messages = finish(start(program, [*run, "--resume"]))
    expect("resume: from run/step_000002" in messages, messages)
    expect(logged_steps(program.folder / "run.jsonl") == [1, 3], "the log must have steps 1 and 3")


def test_resume_does_not_change_a_file_that_is_not_a_run_log(program):
    (program.folder / "data.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    (program.folder / "nested.jsonl").write_text('{"step": [1]}\n{"step": 2}\n')
    for name in ("text.txt", "data.jsonl", "nested.jsonl"):
        before = (program.folder / name).read_bytes()
        program.fails(*TINY, *QUIET, "--steps", 1, "--out", "run", "--resume", "--log", name,
                      phrases=[f"--log {name} is not the log of a run"])
        expect((program.folder / name).read_bytes() == before, f"{name} was changed")
    for content in (b'{"step":1,"lo', b"\0" * 40, b""):  # contents that a kill or a power failure can leave
        (program.folder / "cut.jsonl").write_bytes(content)
        finish(start(program, [*TINY, *QUIET, "--steps", 1, "--out", f"run{len(content)}", "--resume",
                               "--log", "cut.jsonl"]))
        expect(logged_steps(program.folder / "cut.jsonl") == [1], "the log must have step 1")


if __name__ == "__main__":
    # A shell's background jobs ignore SIGINT, and child processes would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(run_program_tests(globals(), "train_gpt2"))
