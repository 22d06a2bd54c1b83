#!/usr/bin/env python3
"""Tests where train_gpt2 may write, and which settings and data may change when a run resumes.

    python3 test/test_resume_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does.
"""
import json
import re
import signal
import sys

from runner import expect
from test_checkpoint_programs import QUIET, RUN, TINY, finish, start, steps_logged, wait_for, with_flags
from test_programs import ROOT, run_program_tests, settings_of


def test_what_may_change_when_a_run_goes_on(program):
    def train(**changes):
        """Starts or resumes the run with the flags in `changes`, by default for one step. Returns its messages."""
        return finish(start(program, with_flags([*TINY, *QUIET, "--steps", 8, "--out", "run", "--resume",
                                                 "--stop-after", 1], **changes)))

    def position():
        newest = sorted((program.folder / "run").iterdir())[-1]
        state = json.loads((newest / "manifest.json").read_text())["state"]
        return [state[key] for key in ("samples", "tokens", "seq_len")]

    train(stop_after=3)
    expect(position() == [3, 24, 8], position())
    train(batch_size=2, grad_accum=3, lr=1e-4, schedule="linear", steps=9)
    expect(position() == [9, 72, 8], position())
    messages = train(seq_len=5)  # 15 sequences of 5 tokens for the 72 tokens so far, and one more
    expect("sequences had 8 tokens, now they have 5" in messages and "from sequence 15 on" in messages, messages)
    expect(position() == [16, 77, 5], position())
    (program.folder / "other.txt").write_text("another text " * 300)
    messages = train(seq_len=5, train="other.txt")
    expect("the run trained on text.txt so far, it goes on with other.txt" in messages, messages)


def test_what_may_not_change_when_a_run_goes_on(program):
    arguments = with_flags([*TINY, *QUIET, "--steps", 1, "--out", "run"], channels=16)
    finish(start(program, arguments))
    for changes, says in (({"layers": 2}, ["layers 1, not 2", "--layers"]), ({"heads": 2}, ["heads 1, not 2"]),
                          ({"channels": 8}, ["channels 16, not 8"]), ({"context": 16}, ["context 8, not 16"]),
                          ({"seed": 7}, ["--seed 1337, not 7"]), ({"dtype": "bf16"}, ["--dtype fp32, not bf16"])):
        program.fails(*with_flags(arguments, **changes), "--resume", says=["run/step_000001 ", *says])


def test_a_run_that_goes_on_says_which_flags_are_others(program):
    run = [*TINY, *QUIET, "--steps", 40, "--dtype", "bf16", "--out", "run", "--log", "run.jsonl", "--resume",
           "--stop-after", 1]

    def resume(arguments):
        """Returns the notes on changed flags on stderr, and checks that the log has the same."""
        messages = finish(start(program, arguments))
        said = [line.removeprefix("resume: ") for line in messages.splitlines() if re.search("^resume: .* was ", line)]
        logged = [line["resumed"] for line in program.log("run.jsonl") if "resumed" in line]
        expect(logged[-len(said):] == said if said else True, f"{said} on stderr, {logged} in the log")
        return said

    expect(resume(run) == [], "a run that begins has nothing to say")
    expect(resume(run) == [], "nothing changed")
    other = with_flags(run, batch_size=2, grad_accum=3, logits_rows=7, steps=50, lr=0.25, warmup=9, schedule="wsd", final_lr_fraction=0.5,
                       weight_decay=0.25, beta1=0.5, beta2=0.75, eps=1e-7, grad_clip=2, dropout=0.125,
                       attention="standard")
    said = resume([*other, "--stochastic-rounding", "--tf32"])
    for flag, before, after in (
            ("--batch-size", "1", "2"), ("--grad-accum", "1", "3"), ("--logits-rows", "4096", "7"), ("--steps", "40", "50"), ("--warmup", "2", "9"),
            ("--lr", "0.0006", "0.25"), ("--schedule", '"cosine"', '"wsd"'), ("--final-lr-fraction", "0.1", "0.5"),
            ("--weight-decay", "0.1", "0.25"), ("--beta1", "0.9", "0.5"), ("--beta2", "0.95", "0.75"),
            ("--eps", "1e-08", "1e-07"), ("--grad-clip", "1.0", "2.0"), ("--embedding-dropout", "0.0", "0.125"),
            ("--attention-dropout", "0.0", "0.125"), ("--residual-dropout", "0.0", "0.125"),
            ("--stochastic-rounding", "false", "true"), ("--attention", '"flash"', '"standard"'),
            ("--tf32", "false", "true")):
        expect(f"{flag} was {before}, it is {after} now" in said, f"{flag}: {said}")
    expect(len(said) == 19, said)
    expect(resume([*other, "--stochastic-rounding", "--tf32"]) == [], "what was said is no news")


def test_the_resume_table_of_the_readme_is_the_programs(program):
    sys.path.insert(0, str(ROOT / "scripts"))
    from resume_table import README, updated
    text = README.read_text()
    expect(updated(text, settings_of(program)) == text, "the table is out of date: run scripts/resume_table.py build/host")


def test_a_run_that_goes_on_says_which_data_are_others(program):
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
    said = resume("moved/a.txt:0.6,b.txt:0.4")
    expect(said == ["resume: the run trained on a.txt:0.7,b.txt:0.3 so far, it goes on with a.txt:0.6,b.txt:0.4"], said)
    (program.folder / "a.txt").write_text(text * 2)
    said = resume("a.txt:0.6,b.txt:0.4")
    expect(len(said) == 1 and "a.txt:0.6,b.txt:0.4 had" in said[0] and "tokens, now it has" in said[0], said)
    resume("c.jsonl")
    said = resume("c.jsonl", "--document-mask")
    expect(said == ["resume: --document-mask was false, it is true now"], said)


def test_a_run_goes_on_with_its_own_tokens(program):
    (program.folder / "words.txt").write_text("a\nb\nc\n")
    (program.folder / "other.txt").write_text("c\nb\na\n")
    (program.folder / "abc.txt").write_text("a b c a c b " * 100)
    run = with_flags([*TINY, *QUIET, "--steps", 3, "--stop-after", 1, "--out", "run", "--resume"], train="abc.txt")
    finish(start(program, [*run, "--tokenizer", "words:words.txt"]))
    program.fails(*run, "--tokenizer", "words:other.txt", says=["run/step_000001", "--tokenizer words:other.txt"])
    (program.folder / "words.txt").rename(program.folder / "moved.txt")
    finish(start(program, [*run, "--tokenizer", "words:moved.txt"]))


def test_two_runs_do_not_share_a_directory(program):
    run = with_flags(RUN, steps=1000000)
    first = start(program, run)
    wait_for(first, "step 1/")
    for flags in ([], ["--resume"]):
        program.fails(*with_flags(run, log="other.jsonl"), *flags, says=["another run is writing into --out ckpts"])
    first.send_signal(signal.SIGTERM)
    finish(first)
    finish(start(program, [*run, "--resume", "--stop-after", 1]))


def test_places_to_write_are_tried_before_the_first_step(program):
    (program.folder / "broken").symlink_to("nowhere/at/all")
    tiny = [*TINY, *QUIET, "--steps", 1]
    for flags in (["--out", "broken"], ["--out", "text.txt/run"], ["--final-samples-out", "none/samples"],
                  ["--profile", 1, "--profile-out", "none/profile"]):
        failed = program.run(*tiny, *flags, code=1)
        expect(flags[-1] in failed.stderr and "step 1/" not in failed.stderr, failed.stderr)


def test_a_log_that_cannot_be_written_costs_no_step(program):
    run = [*TINY, *QUIET, "--steps", 3, "--out", "run"]
    program.fails(*run, "--log", "/dev/full", says=["saved run/step_000001", "cannot write /dev/full", "No space left"])
    messages = finish(start(program, [*run, "--resume", "--log", "run.jsonl"]))
    expect("resume: from run/step_000001" in messages, messages)
    expect(steps_logged(program.folder / "run.jsonl") == [2, 3], "step 1 is done")


def test_a_file_that_is_no_log_is_not_cut(program):
    (program.folder / "data.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    (program.folder / "nested.jsonl").write_text('{"step": [1]}\n{"step": 2}\n')
    for name in ("text.txt", "data.jsonl", "nested.jsonl"):
        before = (program.folder / name).read_bytes()
        program.fails(*TINY, *QUIET, "--steps", 1, "--out", "run", "--resume", "--log", name,
                      says=[f"--log {name} is not the log of a run"])
        expect((program.folder / name).read_bytes() == before, f"{name} was changed")
    for cut in (b'{"step":1,"lo', b"\0" * 40, b""):  # contents that a kill or a power failure can leave
        (program.folder / "cut.jsonl").write_bytes(cut)
        finish(start(program, [*TINY, *QUIET, "--steps", 1, "--out", f"run{len(cut)}", "--resume",
                               "--log", "cut.jsonl"]))
        expect(steps_logged(program.folder / "cut.jsonl") == [1], "another log")


if __name__ == "__main__":
    # A shell's background jobs ignore SIGINT, and child processes would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(run_program_tests(globals(), "train_gpt2"))
