#!/usr/bin/env python3
"""Tests the data of train_gpt2 from the command line: several sources, every kind of file, epochs, the
token cache, documents, and errors for bad input.

    python3 test/test_data_programs.py build/host [PATTERN]

Prints and exits as test_programs.py does.
"""
import gzip
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from runner import expect, run_unprivileged  # noqa: E402
from stored_tensors import same_state  # noqa: E402
from test_programs import SMALL, TEXT, Program, run_program_tests, write_bin  # noqa: E402

QUIET = ["--eval-every", 0, "--sample-every", 0]
END = 256  # the id of <|endoftext|> in the byte tokenizer


def write_documents(path, count=150, field="text"):
    path.write_text("".join(json.dumps({field: f"document {i} is short. " * (1 + i % 3)}) + "\n" for i in range(count)))


def write_megatron(prefix, documents, wide=False):
    """Writes PREFIX.idx and PREFIX.bin like Megatron-LM's preprocess_data.py: tokens of 16 or, if wide, 32 bits, one
    sequence per document."""
    kind, size, code = ("i", 4, 4) if wide else ("H", 2, 8)
    lengths = [len(d) for d in documents]
    pointers = [size * sum(lengths[:i]) for i in range(len(lengths))]
    n = len(documents)
    prefix.with_suffix(".idx").write_bytes(
        b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, n, n + 1) + struct.pack(f"<{n}i", *lengths)
        + struct.pack(f"<{n}q", *pointers) + struct.pack(f"<{n + 1}q", *range(n + 1)))
    tokens = [t for d in documents for t in d]
    prefix.with_suffix(".bin").write_bytes(struct.pack(f"<{len(tokens)}{kind}", *tokens))


def losses(program, name):
    return [line["loss"] for line in program.log(name) if "loss" in line]


def test_shards_train_like_the_uncut_file(program):
    tokens = [(7 * i + i // 50) % 250 for i in range(1500)]
    write_bin(program.folder / "whole.bin", tokens)
    for i in range(3):
        write_bin(program.folder / f"part_{i}.bin", tokens[500 * i:500 * (i + 1)])
    for name, data in (("whole", "whole.bin"), ("parts", "part_*.bin")):
        program.run("--train", data, *SMALL, *QUIET, "--steps", 4, "--log", f"{name}.jsonl")
    expect(losses(program, "whole.jsonl") == losses(program, "parts.jsonl"), "the losses differ")


def test_sources_of_every_format_are_mixed_by_weight(program):
    write_documents(program.folder / "d.jsonl")
    write_bin(program.folder / "t.bin", [i % 250 for i in range(900)])
    write_megatron(program.folder / "m", [[i % 250 for i in range(17)] for _ in range(50)])
    done = program.run("--train", "text.txt:0.4,d.jsonl:0.3,t.bin:0.2,m:0.1", *SMALL, "--steps", 6, "--eval-every", 3,
                       "--sample-every", 0, "--log", "run.jsonl")
    for phrase in ("text.txt: ", "40% of the samples", "d.jsonl: ", "30% of", "t.bin: 855 tokens", "20% of",
                   "m: 808 tokens", "10% of"):
        expect(phrase in done.stderr, f"'{phrase}' is not in: {done.stderr[-900:]}")
    program.run("--train", "text.txt", "--val", "d.jsonl,m", *SMALL, *QUIET, "--steps", 1)


def test_files_of_a_pattern_are_counted(program):
    for name in "ab":
        (program.folder / f"part_{name}.txt").write_text(TEXT)
    for _ in range(2):  # in the second run, their token caches are in the folder too
        done = program.run("--train", "part_*", *SMALL, *QUIET, "--steps", 1)
        expect(" tokens in 2 files, " in done.stderr, done.stderr[-600:])


def test_the_tokens_of_val_that_fill_no_window_are_reported(program):
    (program.folder / "val.txt").write_text(TEXT[:100])
    done = program.run("--train", "text.txt", "--val", "val.txt", *SMALL, *QUIET, "--steps", 1)
    expect("data: --val val.txt: 100 tokens, 6 windows; the last 3 tokens fill no window\n" in done.stderr, done.stderr)
    (program.folder / "val.txt").write_text(TEXT[:97])
    done = program.run("--train", "text.txt", "--val", "val.txt", *SMALL, *QUIET, "--steps", 1)
    expect("data: --val val.txt: 97 tokens, 6 windows\n" in done.stderr, done.stderr)


def test_epochs_set_the_number_of_steps(program):
    (program.folder / "val.txt").write_text(TEXT[:100])
    write_bin(program.folder / "t.bin", [i % 250 for i in range(16 * 20 + 1)])  # 20 windows, batches of 2
    common = ["--train", "t.bin", "--val", "val.txt", *SMALL, *QUIET, "--log"]
    done = program.run(*common, "two.jsonl", "--epochs", 2)
    expect(len(losses(program, "two.jsonl")) == 20, "two epochs are not 20 steps")
    expect("2 x 20 windows are 20 steps" in done.stderr, done.stderr[-800:])
    program.run(*common, "part.jsonl", "--epochs", 0.25)  # 5 windows
    expect(len(losses(program, "part.jsonl")) == 3, "a quarter of an epoch is not 3 steps")
    program.fails(*common, "x.jsonl", "--epochs", 1, "--steps", 1, phrases=["--epochs", "--steps"], code=2)
    for value in ("0", "-1", "nan", "x"):
        program.fails(*common, "x.jsonl", "--epochs", value, phrases=["--epochs", f"'{value}'"], code=2)


def test_a_resumed_run_with_weights_equals_the_uninterrupted_run(program):
    write_documents(program.folder / "d.jsonl")
    common = ["--train", "text.txt:0.7,d.jsonl:0.3", *SMALL, *QUIET, "--document-mask", "--steps", 7]
    program.run(*common, "--out", "a", "--log", "a.jsonl")
    for _ in range(3):
        program.run(*common, "--out", "b", "--log", "b.jsonl", "--resume", "--stop-after", 3)
    expect(losses(program, "a.jsonl") == losses(program, "b.jsonl"), "the losses differ")
    expect(same_state(program.folder / "a/step_000007", program.folder / "b/step_000007"), "the weights differ")


def test_a_text_is_tokenized_once(program):
    common = ["--train", "text.txt", *SMALL, *QUIET, "--steps", 2]
    first = program.run(*common, "--log", "first.jsonl")
    caches = list(program.folder.glob("*.cache.bin"))
    expect(len(caches) == 1 and caches[0].name.startswith("text.txt.257-"), f"caches: {caches}")
    expect(f"cached the tokens of text.txt in {caches[0].name}" in first.stderr, first.stderr[:500])
    second = program.run(*common, "--log", "second.jsonl")
    expect("cache" not in second.stderr, second.stderr[:500])
    without = program.run(*common, "--no-cache", "--log", "without.jsonl")
    expect("cache" not in without.stderr, without.stderr[:500])
    damaged = bytearray(caches[0].read_bytes())
    damaged[1100] ^= 1
    caches[0].write_bytes(damaged)
    third = program.run(*common, "--log", "third.jsonl")
    expect(f"{caches[0].name} is damaged" in third.stderr, third.stderr[:500])
    (program.folder / "caches").mkdir()
    program.run(*common, "--cache-dir", "caches", "--log", "elsewhere.jsonl")
    expect(len(list((program.folder / "caches").iterdir())) == 1, "no cache in --cache-dir")
    runs = [losses(program, f"{name}.jsonl") for name in ("first", "second", "without", "third", "elsewhere")]
    expect(all(run == runs[0] for run in runs), f"the losses differ: {runs}")
    program.fails(*common, "--no-cache", "--cache-dir", "x", phrases=["--no-cache"], code=2)


def test_the_document_mask_limits_attention_to_documents(program):
    write_documents(program.folder / "d.jsonl")
    write_documents(program.folder / "b.jsonl", field="body")
    common = [*SMALL, *QUIET, "--steps", 3, "--log"]
    program.run("--train", "d.jsonl", *common, "open.jsonl")
    for attention in ("flash", "standard"):
        program.run("--train", "d.jsonl", *common, f"{attention}.jsonl", "--document-mask", "--attention", attention)
    flash, standard = losses(program, "flash.jsonl"), losses(program, "standard.jsonl")
    expect(all(abs(a / b - 1) < 3e-6 for a, b in zip(flash, standard)), f"{flash} and {standard}")
    expect(flash != losses(program, "open.jsonl"), "--document-mask changes no loss")
    program.run("--train", "b.jsonl", "--text-field", "body", *common, "body.jsonl", "--document-mask")
    expect(losses(program, "body.jsonl") == flash, "--text-field body gives other losses")
    write_megatron(program.folder / "m", [[i % 250 for i in range(9)] for _ in range(90)])
    program.run("--train", "m", *common, "m.jsonl", "--document-mask")
    program.fails("--train", "text.txt", *common, "x.jsonl", "--document-mask", phrases=["--document-mask", "end-of-text"], code=2)
    program.fails("--steps", 1, "--document-mask", phrases=["--document-mask", "toy language", "end-of-text"], code=2)


def test_errors_name_the_bad_source(program):
    write_documents(program.folder / "d.jsonl")
    write_bin(program.folder / "t.bin", [i % 250 for i in range(900)])
    (program.folder / "torn.jsonl").write_text('{"text": "a"}\n{"text": "b"')
    (program.folder / "m.idx").write_bytes(b"MMIDIDX\x00\x00" + b"\x01")
    for train, phrases in (("text.txt:0.5,d.jsonl", ["--train", "1 weights for 2 sources"]),
                           ("text.txt:x", ["--train", "'x' is not a weight"]),
                           ("text.txt,", ["--train", "without a name"])):
        program.fails("--train", train, *SMALL, "--steps", 1, phrases=phrases, code=2)
    for train, phrases in (("none_*.bin", ["--train", "none_*.bin"]),
                           ("torn.jsonl", ["torn.jsonl:2"]),
                           ("m", ["m.idx is truncated"]),
                           (".", ["."]),
                           ("t.bin,nowhere.bin", ["nowhere.bin"])):
        program.fails("--train", train, *SMALL, "--steps", 1, phrases=phrases)
    program.fails("--train", "t.bin", "--val", "text.txt:1", *SMALL, phrases=["--val takes no weights"], code=2)
    program.fails("--train", "d.jsonl", "--text-field", "body", *SMALL, phrases=["d.jsonl:1", '"body"'])
    (program.folder / "words").write_text("line\n")
    program.fails("--train", "d.jsonl", "--tokenizer", "words:words", *SMALL, phrases=["d.jsonl", "end-of-text"])


def warnings_of(done):
    return [line for line in done.stderr.splitlines() if line.startswith("warning: ")]


def test_texts_that_are_meant_in_another_way_are_reported_once(program):
    write_documents(program.folder / "d.json")
    for name in "ab":
        (program.folder / f"{name}.txt").write_text((TEXT + "\n<|endoftext|>\n") * 3)
    (program.folder / "w.txt").write_bytes(TEXT.replace("\n", "\r\n").encode() + b"\r\n")
    run = ["--train", "d.json,a.txt,w.txt", "--val", "b.txt", *SMALL, *QUIET, "--steps", 1]
    for _ in range(2):  # the second run uses the cache
        lines = warnings_of(program.run(*run))
        expect(len(lines) == 3, lines)
        expect("d.json looks like JSON lines" in lines[0] and lines[0].endswith("use --text-format jsonl"), lines[0])
        expect("a.txt and 1 other file: <|endoftext|> is spelled out 6 times" in lines[1] and "--split-on" in lines[1], lines[1])
        expect("w.txt has line ends of Windows" in lines[2], lines[2])
    write_documents(program.folder / "d.jsonl")
    common = [*SMALL, *QUIET, "--steps", 2, "--log"]
    program.run("--train", "d.jsonl", *common, "jsonl.jsonl")
    done = program.run("--train", "d.json", "--text-format", "jsonl", *common, "json.jsonl")
    expect(not warnings_of(done) and losses(program, "json.jsonl") == losses(program, "jsonl.jsonl"), done.stderr)
    texts = [json.loads(line)["text"] for line in (program.folder / "d.jsonl").read_text().splitlines()]
    (program.folder / "s.txt").write_text("\n<|endoftext|>\n".join(texts))
    (program.folder / "s.jsonl").write_text("".join(json.dumps({"text": t + "\n"}) + "\n" for t in texts[:-1])
                                            + json.dumps({"text": texts[-1]}))
    program.run("--train", "s.jsonl", *common, "documents.jsonl", "--document-mask")
    done = program.run("--train", "s.txt", "--split-on", "<|endoftext|>", *common, "split.jsonl", "--document-mask")
    expect(not warnings_of(done) and losses(program, "split.jsonl") == losses(program, "documents.jsonl"), done.stderr)


def test_a_pipe_is_examined_like_a_file(program):
    os.mkfifo(program.folder / "pipe.json")
    with subprocess.Popen(["sh", "-c", "printf '{\"text\": \"%0999d\"}\\n' 1 > pipe.json"], cwd=program.folder):
        done = program.run("--train", "pipe.json", *SMALL, *QUIET, "--steps", 1)
    expect(len(warnings_of(done)) == 1 and "pipe.json looks like JSON lines" in done.stderr, done.stderr)


def test_compressed_texts_train_like_plain_ones(program):
    write_documents(program.folder / "d.jsonl")
    for name in ("d.jsonl", "text.txt"):
        data = (program.folder / name).read_bytes()
        (program.folder / f"{name}.gz").write_bytes(gzip.compress(data[:500]) + gzip.compress(data[500:]))
    common = [*SMALL, *QUIET, "--steps", 2, "--log"]
    program.run("--train", "d.jsonl,text.txt", *common, "plain.jsonl")
    program.run("--train", "d.jsonl.gz,text.txt.gz", *common, "packed.jsonl")
    expect(losses(program, "packed.jsonl") == losses(program, "plain.jsonl"), "the losses differ")
    torn = (program.folder / "d.jsonl.gz").read_bytes()[:-3]
    (program.folder / "torn.jsonl.gz").write_bytes(torn)
    program.fails("--train", "torn.jsonl.gz", *SMALL, phrases=["torn.jsonl.gz is truncated", f"{len(torn)} bytes"])
    (program.folder / "p.parquet").write_bytes(b"PAR1" + bytes(range(256)) * 4)
    program.fails("--train", "p.parquet", *SMALL,
                  phrases=["p.parquet is not a text: it is a Parquet file", "read_parquet", "p.parquet p.jsonl"])


def test_tokens_without_a_header_need_the_format_to_be_named(program):
    ids = [i % 250 for i in range(900)]
    (program.folder / "n.bin").write_bytes(struct.pack("<900H", *ids))
    write_bin(program.folder / "t.bin", ids)
    common = [*SMALL, "--tokenizer", "bytes", *QUIET, "--steps", 2, "--log"]
    program.run("--train", "t.bin", *common, "t.jsonl")
    nanogpt = ["--bin-format", "nanogpt", "--eval", "perplexity:n.bin"]
    done = program.run("--train", "n.bin", *nanogpt, *common, "n.jsonl", "--out", "run")
    expect(losses(program, "n.jsonl") == losses(program, "t.jsonl"), done.stderr[-500:])
    program.fails("--train", "n.bin", *common, "x.jsonl", phrases=["n.bin is not a token file", "--bin-format nanogpt"])
    done = program.run("--out", "run", "--resume", "--steps", 3)  # the checkpoint has the format
    infer = program.binary.parent / "infer_gpt2"
    if infer.exists():
        done = Program(infer, program.folder).run("perplexity", "n.bin", "-m", "run/step_000002", "--bin-format", "nanogpt")
        expect("token_nll" in done.stdout, done.stderr)


def test_bad_lines_are_skipped_only_on_request(program):
    write_documents(program.folder / "good.jsonl")
    lines = (program.folder / "good.jsonl").read_bytes().splitlines(keepends=True)
    bad = [b'{"text": "a\n', b'{"body": "no text"}\n', b'{"text": "\xff"}\n', b"plain\n"]
    (program.folder / "bad.jsonl").write_bytes(b"".join(lines[:5] + bad[:2] + lines[5:] + bad[2:]))
    common = [*SMALL, *QUIET, "--steps", 2, "--log"]
    program.run("--train", "good.jsonl", *common, "good_log.jsonl")
    program.fails("--train", "bad.jsonl", *common, "x.jsonl", phrases=["bad.jsonl:6", "skip lines that are no documents with --skip-bad-lines"])
    for name in ("first", "cached"):
        done = program.run("--train", "bad.jsonl", "--skip-bad-lines", *common, f"{name}.jsonl")
        expect(done.stderr.count("warning: 4 lines that are no documents were skipped; the first is bad.jsonl:6\n") == 1,
               done.stderr)
        expect(losses(program, f"{name}.jsonl") == losses(program, "good_log.jsonl"), "the losses differ")
    program.fails("--train", "bad.jsonl", *common, "y.jsonl", phrases=["bad.jsonl:6"])  # the cache is not used


def test_unreadable_files_and_directories_are_errors(program):
    (program.folder / "shut").mkdir()
    for name in ("shut/a.txt", "shut.txt", "shut.bin", "shut.jsonl"):
        (program.folder / name).write_text(TEXT)
        (program.folder / name).chmod(0)
    (program.folder / "shut").chmod(0)
    for train, phrase in (("shut/*", "--train: cannot read shut: Permission denied"),
                          ("text.txt,shu*/*.txt", "--train: cannot read shut: Permission denied"),
                          ("shut/a.txt", "cannot open shut/a.txt: Permission denied"),
                          ("shut.txt", "cannot open shut.txt: Permission denied"),
                          ("shut.bin", "cannot open shut.bin: Permission denied"),
                          ("text.txt,*.jsonl", "cannot open shut.jsonl: Permission denied")):
        done = run_unprivileged([program.binary, "--train", train, *SMALL, "--steps", 1], program.folder)
        expect(done.returncode == 1 and phrase in done.stderr, f"{train}: {done.stderr}")
    done = run_unprivileged([program.binary, "--train", "text.txt", "--val", "shut/*", *SMALL], program.folder)
    expect("--val: cannot read shut: Permission denied" in done.stderr, done.stderr)
    (program.folder / "shut").chmod(0o755)


def test_a_bad_token_inside_a_file_ends_the_run_with_its_position(program):
    """The token is outside the two ends that are checked at the start, so the read-ahead thread finds it."""
    num_checked, num_unchecked = 1 << 22, 1 << 23
    with open(program.folder / "t.bin", "wb") as file:
        file.write(struct.pack("<256i", 20240520, 1, 2 * num_checked + num_unchecked, *[0] * 253))
        file.write(bytes(2 * num_checked) + struct.pack("<H", 300) * num_unchecked + bytes(2 * num_checked))
    program.fails("--train", "t.bin", "--tokenizer", "bytes", *SMALL, *QUIET, "--steps", 100,
                  phrases=["t.bin: token ", "is 300, outside the vocabulary of 257"])


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "train_gpt2"))
