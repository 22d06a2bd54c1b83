#!/usr/bin/env python3
"""Tests `train_gpt2 --task chat` from the command line: answers that a model learns and infer_gpt2 writes, which tokens
count, long conversations, templates, and errors.

    python3 test/test_chat_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does.
"""
import json
import subprocess
import sys
from pathlib import Path

from runner import expect
from task_samples import QUIET, SIZES, WORDS, conversations, questions, write_lines
from test_programs import run_program_tests
from test_rank_programs import expect_equal_runs, mpirun
from test_task_programs import records

ROOT = Path(__file__).resolve().parent.parent
MODEL = ["--layers", 2, "--heads", 2, "--channels", 48, "--context", 48]
LEARN = ["--batch-size", 10, "--lr", 1e-2, "--warmup", 5, "--steps", 300, "--eval-every", 300]
SMALL = ["--task", "chat", *SIZES[:6], "--context", 64, "--batch-size", 4, "--steps", 2, "--eval-every", 1]


def learn(program, name, objects, *flags):
    """Trains on conversations until the model knows them. Returns what the run printed."""
    write_lines(program, f"{name}.jsonl", objects)
    data = ["--train", f"{name}.jsonl", "--val", f"{name}.jsonl"]
    return program.run("--task", "chat", *data, *MODEL, *LEARN, "--peak-tflops", 1, *flags, "--out", name, "--log", f"log-{name}.jsonl")


def answers(program, model, prompts):
    """What infer_gpt2 writes after each prompt, and why it ends."""
    write_lines(program, "prompts.jsonl", [{"prompt": prompt} for prompt in prompts])
    words = [program.binary.parent / "infer_gpt2", "-m", model, "--prompts", "prompts.jsonl", "--jsonl", "--temperature", "0", "-n", "30"]
    done = subprocess.run(words, cwd=program.folder, capture_output=True, text=True, check=True)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    return [(one["text"], one["finish_reason"]) for one in results]


def losses(program, log):
    return [line.get("loss", line.get("val_loss")) for line in program.log(log)]


# ---- what a model learns -------------------------------------------------------------------


def test_a_model_writes_the_completions_of_its_prompts_and_stops(program):
    done = learn(program, "qa", questions(), "--test", "qa.jsonl")
    written = answers(program, "qa", [one["prompt"] for one in questions()])
    expect(written == [(one["completion"], "stop") for one in questions()], written)
    # Prompts are not learnt: a loss of all tokens would be greater than ln(10) / 15, as the words of prompts are random.
    last, test = records(program, "log-qa.jsonl")[-1], records(program, "log-qa.jsonl", "test")
    expect(last["val_loss"] < 0.05 and len(test) == 1 and abs(test[0]["test_loss"] / last["val_loss"] - 1) < 2e-6, (last, test))
    expect(done.stdout == f"test_loss {test[0]['test_loss']:.6f}\n", done.stdout)
    count = sum(len(one["completion"]) + 1 for one in questions())  # bytes, and end-of-text
    total = sum(len(one["prompt"]) + len(one["completion"]) for one in questions())
    expect(f"data: qa.jsonl: 20 conversations, {count} tokens of answers, {total} tokens\n" in done.stderr, done.stderr)
    expect("try: ./infer_gpt2 -m qa -p" in done.stderr, done.stderr)


def test_a_model_answers_as_the_assistant_of_its_template(program):
    learn(program, "messages", conversations())
    prompts = [f"user: {one['prompt']}\nassistant:" for one in questions()]
    written = answers(program, "messages", prompts)
    expect(written == [(one["completion"], "stop") for one in questions()], written)
    learn(program, "brackets", conversations(), "--chat-template", "[{role}]\\n{content}\\t")
    prompts = [f"[user]\n{one['prompt']}\t[assistant]\n" for one in questions()]
    written = answers(program, "brackets", prompts)
    expect(written == [(one["completion"].strip(), "stop") for one in questions()], written)


# ---- which tokens count --------------------------------------------------------------------


def test_loss_and_gradient_of_a_step_are_those_of_transformers(program):
    fixture = ROOT / "test/oracle/fixtures/chat"
    lines = (fixture / "expected.fixture").read_bytes().splitlines()
    numbers = {key.decode(): float(value) for kind, key, value in (line.split() for line in lines if line.startswith(b"number "))}
    run = ["--task", "chat", "--init-from", fixture / "model", "--tokenizer", "bytes", "--train", fixture / "conversations.jsonl",
           "--val", fixture / "conversations.jsonl", "--steps", 1, "--peak-tflops", 1]
    for name, flags in {"whole": ["--batch-size", 4], "parts": ["--batch-size", 1, "--grad-accum", 4]}.items():
        done = program.run(*run, *flags, "--log", f"{name}.jsonl")
        expect("4 conversations" in done.stderr, done.stderr)
        step, = (line for line in program.log(f"{name}.jsonl") if "grad_norm" in line)
        for key in ("loss", "grad_norm"):  # within the errors of fp32, which the fixture has
            expect(abs(step[key] / numbers[key] - 1) < 2e-6, f"{name}: {key} {step[key]}, not {numbers[key]}")


def test_only_answers_count_in_every_step(program):
    def objects(role, tail):
        return [{"messages": [{"role": "system", "content": "be short"}, {"role": role, "content": "ab"},
                              {"role": "assistant", "content": word}, {"role": "user", "content": tail}]} for word in WORDS]
    forms = {"tail": objects("user", "thanks"), "other-tail": objects("user", "x"), "answer": objects("assistant", "x")}
    targets = {"tail": 10 * (1 + 3 + 1), "other-tail": 10 * (1 + 3 + 1), "answer": 10 * (1 + 3 + 1 + 1 + 2 + 1)}
    for name, lines in forms.items():
        write_lines(program, f"{name}.jsonl", lines)
        done = program.run(*SMALL, "--train", f"{name}.jsonl", "--val", f"{name}.jsonl", "--peak-tflops", 1, "--log", f"log-{name}.jsonl")
        expect(f"10 conversations, {targets[name]} tokens of answers" in done.stderr, done.stderr)
    expect(losses(program, "log-tail.jsonl") == losses(program, "log-other-tail.jsonl"), "a message after the last answer counts")
    expect(losses(program, "log-tail.jsonl") != losses(program, "log-answer.jsonl"), "an answer does not count")


def test_a_long_conversation_loses_its_beginning_and_is_counted(program):
    def objects(beginning):
        return [{"prompt": beginning + "q" * 20, "completion": f" {word}"} for word in WORDS]
    forms = {"short": objects(""), "long": objects("a long beginning "), "longer": objects("another longer beginning ")}
    for name, lines in forms.items():
        write_lines(program, f"{name}.jsonl", lines)
        done = program.run(*SMALL, "--seq-len", 20, "--train", f"{name}.jsonl", "--val", f"{name}.jsonl", "--peak-tflops", 1, "--log", f"log-{name}.jsonl")
        expect(f"{name}.jsonl: 10 of 10 examples lose their beginning to fit 20 tokens" in done.stderr, done.stderr)
    expect(losses(program, "log-short.jsonl") == losses(program, "log-long.jsonl") == losses(program, "log-longer.jsonl"), "losses differ")


def test_ranks_train_on_the_same_conversations(program):
    write_lines(program, "qa.jsonl", questions())
    run = ["--task", "chat", *SIZES, "--train", "qa.jsonl", "--split", "70/20/10", "--steps", 6, "--eval-every", 2, "--eps", 1e-4, *QUIET]
    program.run(*run, "--batch-size", 4, "--grad-accum", 2, "--log", "one.jsonl")
    for name, flags in {"dp": ["--batch-size", 4], "pp": ["--pp", 2, "--batch-size", 4, "--grad-accum", 2],
                        "tp": ["--tp", 2, "--batch-size", 4, "--grad-accum", 2]}.items():
        mpirun(program, 2, *run, *flags, "--log", f"{name}.jsonl")
        expect_equal_runs(program, f"{name}.jsonl", "one.jsonl")


# ---- errors --------------------------------------------------------------------------------


def test_wrong_conversations_are_one_clear_error(program):
    write_lines(program, "qa.jsonl", questions())
    write_lines(program, "label.jsonl", [{"text": "a", "label": 0}])
    write_lines(program, "silent.jsonl", [{"messages": [{"role": "user", "content": "a"}]}])
    write_lines(program, "robot.jsonl", [{"messages": [{"role": "robot", "content": "a"}]}])
    write_lines(program, "empty.jsonl", [])
    write_lines(program, "blank.jsonl", [{"prompt": "a", "completion": ""}])
    (program.folder / "words.txt").write_text("a\nb\n")
    data = ["--train", "qa.jsonl"]
    for flags, code, phrases in (
            (["--train", "label.jsonl"], 1, ["label.jsonl:1 has neither", "completion"]),
            (["--train", "silent.jsonl"], 1, ["silent.jsonl:1", "assistant"]),
            (["--train", "robot.jsonl"], 1, ["robot.jsonl:1", "robot"]),
            (["--train", "empty.jsonl"], 1, ["empty.jsonl"]),
            (["--train", "blank.jsonl", "--split", "1/0"], 1, ["blank.jsonl:1", "completion"]),
            (["--train", "none.jsonl"], 1, ["none.jsonl"]),
            ([], 2, ["--task chat needs data", "--train FILE.jsonl"]),
            (["--val", "qa.jsonl"], 2, ["--val without --train"]),
            ([*data, "--test", "qa.jsonl"], 2, ["--test needs --val"]),
            ([*data, "--classes", "a=text.txt,b=text.txt"], 2, ["--classes and --train exclude each other"]),
            ([*data, "--chat-template", "{content}{role}"], 2, ["has {content} before {role}"]),
            ([*data, "--document-mask"], 2, ["--document-mask has no effect with --task chat"]),
            ([*data, "--eval-batches", 3], 2, ["--eval-batches 3 with --task chat"]),
            ([*data, "--keep-best-by", "macro-f1", "--out", "o"], 2, ["--keep-best-by macro-f1 is for classifiers"]),
            ([*data, "--seq-len", 2], 1, ["qa.jsonl"]),
            ([*data, "--tokenizer", "words:words.txt"], 1, ["words:words.txt", "end-of-text"])):
        done = program.run("--task", "chat", *SIZES, "--steps", 1, "--batch-size", 2, *QUIET, *flags, code=code)
        expect(all(phrase in done.stderr for phrase in phrases), f"{flags}: {done.stderr}")
        expect(done.stderr.count("train_gpt2: ") == 1 and not (program.folder / "o").exists(), f"{flags}: {done.stderr}")


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
