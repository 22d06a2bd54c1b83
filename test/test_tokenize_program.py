#!/usr/bin/env python3
"""Tests tokenize from the command line: text to tokens and back, dropped and held-out documents, errors.

    python3 test/test_tokenize_program.py build/host [PATTERN]

Prints and exits as test_programs.py does.
"""
import array
import gzip
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

from runner import Skip, expect, run_unprivileged
from test_programs import DATA, check_help, run_program_tests

END = 256  # the id of <|endoftext|> in the tokenizer "bytes"
# The bytes in the order of their ids: the printable ones of Latin-1, then the others.
PRINTABLE = [b for b in range(256) if 33 <= b <= 126 or (161 <= b and b != 173)]
BYTES = PRINTABLE + [b for b in range(256) if b not in PRINTABLE]


def tokens(path):
    """The ids in a token file, decoded here from the description of the format."""
    data = Path(path).read_bytes()
    header = array.array("i", data[:1024])
    expect(header[:2].tolist() == [20240520, 1] and not any(header[3:]), f"{path}: header {header[:4]}")
    ids = array.array("H", data[1024:])
    expect(len(ids) == header[2], f"{path}: {len(ids)} tokens, {header[2]} in the header")
    return ids.tolist()


def documents_of(ids):
    """The documents in ids of the tokenizer "bytes", without the <|endoftext|> that begins each."""
    expect(ids[0] == END, "no <|endoftext|> at the beginning")
    texts = [bytearray()]
    for i in ids[1:]:
        texts.append(bytearray()) if i == END else texts[-1].append(BYTES[i])
    return [bytes(text) for text in texts]


def write_json_lines(path, texts, field="text"):
    Path(path).write_text("".join(json.dumps({"n": n, field: text}) + "\n" for n, text in enumerate(texts)))


def random_documents(count, seed=1):
    """Documents of random words, some of them exact or near duplicates."""
    draw = random.Random(seed)
    texts = []
    for _ in range(count):
        words = [f"w{draw.randrange(10000)}" for _ in range(draw.randrange(20, 200))]
        if texts and draw.random() < 0.2:
            words = draw.choice(texts).split()
            if draw.random() < 0.5:
                words[0] = "changed"
        texts.append(" ".join(words))
    return texts


def output_files(program, name):
    """{file name: content} of all files whose name begins with `name`."""
    return {p.name: p.read_bytes() for p in sorted(program.folder.glob(f"{name}*"))}


def run_bytes(program, *arguments, code=0):
    return program.run("--tokenizer", "bytes", *arguments, code=code)


# ---- round trips ---------------------------------------------------------------------------


def test_help_names_every_flag(program):
    check_help(program)


def test_texts_of_any_bytes_are_restored(program):
    draw = random.Random(5)
    for name, content in (("random", draw.randbytes(5000)), ("nul", b"\0\0a\0"), ("crlf", b"a\r\n\r\nb\r\n"),
                          ("broken", b"\xff\xc3(\xe2\x82 \xf0\x9f\x98"), ("spelled", b"a<|endoftext|>b")):
        (program.folder / f"{name}.txt").write_bytes(content)
        run_bytes(program, f"{name}.txt", "-o", f"{name}.bin")
        expect(documents_of(tokens(program.folder / f"{name}.bin")) == [content], f"{name}: other tokens")
        run_bytes(program, "--decode", f"{name}.bin", "-o", f"{name}.out")
        expect((program.folder / f"{name}.out").read_bytes() == b"<|endoftext|>" + content, f"{name}: other text")
        run_bytes(program, f"{name}.txt", "-o", f"{name}-bare.bin", "--no-end-of-text")
        run_bytes(program, "--decode", f"{name}-bare.bin", "-o", f"{name}-bare.out")
        expect((program.folder / f"{name}-bare.out").read_bytes() == content, f"{name}: other bare text")


def test_compressed_inputs_give_the_same_documents(program):
    write_json_lines(program.folder / "a.jsonl", ["one", "two"])
    (program.folder / "b.txt").write_text("three")
    run_bytes(program, "a.jsonl", "b.txt", "-o", "plain.bin")
    for name in ("a.jsonl", "b.txt"):
        (program.folder / f"{name}.gz").write_bytes(gzip.compress((program.folder / name).read_bytes()))
    run_bytes(program, "a.jsonl.gz", "b.txt.gz", "-o", "packed.bin")
    expect(tokens(program.folder / "packed.bin") == tokens(program.folder / "plain.bin"), "other tokens")
    command = [str(program.binary), "--tokenizer", "bytes", "--format", "jsonl", "-", "-o", "pipe.bin"]
    done = subprocess.run(command, cwd=program.folder, input=(program.folder / "a.jsonl.gz").read_bytes(), capture_output=True)
    expect(done.returncode == 0 and documents_of(tokens(program.folder / "pipe.bin")) == [b"one", b"two"], done.stderr)
    (program.folder / "torn.txt.gz").write_bytes((program.folder / "b.txt.gz").read_bytes() + b"x")
    program.fails("--tokenizer", "bytes", "torn.txt.gz", "-o", "torn.bin", phrases=["torn.txt.gz has 1 bytes after its gzip data"])
    expect(not output_files(program, "torn.bin"), "files of a failed run")


def test_other_formats_are_answered_with_the_command_that_converts_them(program):
    (program.folder / "a b.parquet").write_bytes(b"PAR1" + bytes(range(256)))
    program.fails("--tokenizer", "bytes", "a b.parquet", "-o", "a.bin", phrases=["it is a Parquet file", "'a b.parquet' 'a b.jsonl'"])
    (program.folder / "a.txt.xz").write_bytes(b"\xfd7zXZ\0" + bytes(range(256)))
    program.fails("--tokenizer", "bytes", "a.txt.xz", "-o", "a.bin", phrases=["it is xz data: unpack it with xz -dk a.txt.xz"])


def test_lines_that_are_no_documents_are_skipped_on_request(program):
    texts = [json.dumps({"text": f"document {i}"}).encode() for i in range(300)]
    bad = [b"no", b'{"text": 1}', b'{"body": ""}', b'{"text": "\xc3("}', b'{"text": ']
    (program.folder / "a.jsonl").write_bytes(b"\n".join(texts[:7] + bad + texts[7:]))
    program.fails("--tokenizer", "bytes", "a.jsonl", "-o", "a.bin", phrases=["a.jsonl:8", "with --skip-bad-lines"])
    for threads in (1, 3):
        done = run_bytes(program, "a.jsonl", "-o", "a.bin", "--skip-bad-lines", "--threads", threads, "--force")
        expect(done.stderr.count("warning: 5 lines that are no documents were skipped; the first is a.jsonl:8") == 1,
               done.stderr)
        expect(len(documents_of(tokens(program.folder / "a.bin"))) == 300, "other documents")
    expect(json.loads((program.folder / "a.json").read_text())["documents"]["bad_lines"] == 5, "OUT.json")
    (program.folder / "b.jsonl").write_bytes(b"no\nno\n")
    program.fails("--tokenizer", "bytes", "b.jsonl", "-o", "b.bin", "--skip-bad-lines", phrases=["no document is left", "2 read"])


def test_tokens_without_a_header_are_decoded_in_their_format(program):
    (program.folder / "n.bin").write_bytes(array.array("H", [PRINTABLE.index(c) for c in b"nano"] + [END]).tobytes())
    program.fails("--tokenizer", "bytes", "--decode", "n.bin", phrases=["n.bin is not a token file", "--bin-format nanogpt"])
    expect(run_bytes(program, "--decode", "n.bin", "--bin-format", "nanogpt").stdout == "nano<|endoftext|>", "another text")


def test_texts_are_restored_from_gpt2_tokens(program):
    text = DATA / "text/tinyshakespeare.txt"
    if not text.exists():
        raise Skip("the shared texts are not here")
    wild = program.folder / "wild.txt"  # long enough to be cut into parts; has bytes that are not UTF-8
    wild.write_bytes(text.read_bytes() * 2 + random.Random(6).randbytes(20000) + text.read_bytes())
    program.run("--tokenizer", DATA / "gpt2", text, wild, "-o", "a.bin", "--shard-tokens", 300000)
    shards = sorted(program.folder.glob("a_*.bin"))
    ids = sum((tokens(shard) for shard in shards), [])
    expect(ids[0] == 50256 and ids.count(50256) == 2, "two documents, each after <|endoftext|>")
    expect([len(tokens(shard)) for shard in shards[:-1]] == [300000] * (len(shards) - 1), "shards of other sizes")
    program.run("--tokenizer", DATA / "gpt2", "--decode", *shards, "-o", "a.out")
    expect((program.folder / "a.out").read_bytes() ==
           b"<|endoftext|>" + text.read_bytes() + b"<|endoftext|>" + wild.read_bytes(), "another text")
    program.run("--tokenizer", DATA / "gpt2", text, "-o", "alone.bin")
    expect(ids[:ids.index(50256, 1)] == tokens(program.folder / "alone.bin"), "a document depends on its neighbours")


def test_json_lines_are_restored(program):
    texts = ["one", "zwei \u00e4\u4e2d\U0001f600\n", "a\0b", "<|endoftext|>", " "]
    write_json_lines(program.folder / "a.jsonl", texts, "body")
    run_bytes(program, "a.jsonl", "-o", "a.bin", "--field", "body")
    expect(documents_of(tokens(program.folder / "a.bin")) == [t.encode() for t in texts], "other documents")
    run_bytes(program, "--decode", "a.bin", "-o", "b.jsonl")
    lines = [json.loads(line) for line in (program.folder / "b.jsonl").read_text().splitlines()]
    expect(lines == [{"text": text} for text in texts], lines)
    done = run_bytes(program, "--decode", "a.bin")
    expect(done.stdout == "".join("<|endoftext|>" + text for text in texts), repr(done.stdout))


def test_documents_with_invalid_utf8_are_counted_in_json(program):
    (program.folder / "a.txt").write_bytes(b"good\n--\nb\xffd\n")
    run_bytes(program, "a.txt", "-o", "a.bin", "--split-on", "--")
    done = run_bytes(program, "--decode", "a.bin", "-o", "b.jsonl")
    expect("1 documents have bytes that are not UTF-8" in done.stderr, done.stderr)
    lines = [json.loads(line)["text"] for line in (program.folder / "b.jsonl").read_text().splitlines()]
    expect(lines == ["good\n", "b\ufffdd\n"], lines)


def test_split_on_cuts_a_text_into_documents(program):
    (program.folder / "a.txt").write_text("one\n\ntwo\ntwo\n\n\nthree")
    for flag, texts in ((None, ["one\n\ntwo\ntwo\n\n\nthree"]), ("", ["one\n", "two\ntwo\n", "three"]),
                        ("two", ["one\n\n", "\n\nthree"])):
        run_bytes(program, "a.txt", "-o", "a.bin", "--force", *([] if flag is None else ["--split-on", flag]))
        expect(documents_of(tokens(program.folder / "a.bin")) == [t.encode() for t in texts], f"split on {flag!r}")


def test_the_printed_summary_agrees_with_the_json_summary(program):
    texts = random_documents(300) + [""]
    write_json_lines(program.folder / "a.jsonl", texts)
    done = run_bytes(program, "a.jsonl", "-o", "a.bin", "--shard-tokens", 50000, "--dedup", "near")
    note = json.loads((program.folder / "a.json").read_text())
    count, out = note["documents"], note["outputs"][0]
    expect(count["read"] == 301 and count["empty"] == 1, count)
    expect(count["exact_duplicates"] == len(texts) - len(set(texts)), count)
    expect(count["near_duplicates"] > 10, count)
    expect(out["documents"] == 300 - count["exact_duplicates"] - count["near_duplicates"], out)
    expect(out["tokens"] == out["documents"] + out["text_bytes"], out)
    expect(out["tokens"] == sum(len(tokens(program.folder / f["file"])) for f in out["files"]), out)
    expect(note["inputs"][0]["bytes"] == (program.folder / "a.jsonl").stat().st_size, note["inputs"])
    for text in (f"{out['documents']} documents, {out['tokens']} tokens", f"{len(out['files'])} files",
                 f"{count['exact_duplicates']} exact duplicates, {count['near_duplicates']} near-duplicates"):
        expect(text in done.stdout, f"'{text}' is not in {done.stdout}")
    expect(sorted(output_files(program, "a_")) == [f["file"] for f in out["files"]], "other files")


# ---- kept documents ------------------------------------------------------------------------


def test_the_first_of_several_duplicates_stays(program):
    base = " ".join(f"word{i}" for i in range(200))
    texts = ["first", base, "first", base + ".", base.replace("word150", "other"), "FIRST", base[:600]]
    for dedup, expected in (("none", texts), ("exact", [texts[i] for i in (0, 1, 3, 4, 5, 6)]),
                            ("near", [texts[i] for i in (0, 1, 6)])):
        write_json_lines(program.folder / "a.jsonl", texts)
        run_bytes(program, "a.jsonl", "-o", "a.bin", "--force", "--dedup", dedup)
        actual = [text.decode() for text in documents_of(tokens(program.folder / "a.bin"))]
        expect(actual == expected, f"{dedup}: {[texts.index(text) for text in actual]}")


def test_held_out_documents_are_chosen_by_content(program):
    texts = sorted(set(random_documents(1000)))
    write_json_lines(program.folder / "a.jsonl", texts)
    write_json_lines(program.folder / "b.jsonl", reversed(texts[100:]))
    sides = []
    for name in "ab":
        run_bytes(program, f"{name}.jsonl", "-o", f"{name}.bin", "--val", f"{name}-val.bin", "--val-fraction", 0.2)
        sides.append([documents_of(tokens(program.folder / f)) for f in (f"{name}.bin", f"{name}-val.bin")])
    (train, val), (other_train, other_val) = sides
    expect(sorted(train + val) == sorted(t.encode() for t in texts), "documents are missing")
    expect(abs(len(val) - 0.2 * len(texts)) < 5 * (0.16 * len(texts)) ** 0.5, f"{len(val)} held out")
    expect(set(other_val) < set(val) and set(other_train) < set(train), "a document moved to the other file")
    expect([t for t in texts if t.encode() in set(val)] == [t.decode() for t in val], "the order changed")


# ---- errors --------------------------------------------------------------------------------


def test_files_are_overwritten_only_with_force(program):
    run_bytes(program, "text.txt", "-o", "a.bin")
    first = output_files(program, "a")
    program.fails("--tokenizer", "bytes", "text.txt", "-o", "a.bin", phrases=["a.bin already exists", "--force"])
    expect(output_files(program, "a") == first, "something changed")
    run_bytes(program, "text.txt", "-o", "a.bin", "--shard-tokens", 3000, "--force")
    sharded = output_files(program, "a")
    expect("a.bin" not in sharded and "a_000000.bin" in sharded, "the old file is still there")
    program.fails("--tokenizer", "bytes", "text.txt", "-o", "a.bin", phrases=["a_000000.bin already exists"])
    run_bytes(program, "text.txt", "-o", "a.bin", "--force")
    expect(output_files(program, "a") == first, "the old shards are still there")
    program.fails("--tokenizer", "bytes", "text.txt", "-o", "b.bin", "--val", "a.bin", "--val-fraction", 0.5,
                  phrases=["a.bin already exists"])
    (program.folder / "a.out").write_text("old text")
    program.fails("--tokenizer", "bytes", "--decode", "a.bin", "-o", "a.out", phrases=["a.out already exists"])
    expect((program.folder / "a.out").read_text() == "old text", "overwritten")


def test_errors_name_the_input_and_leave_no_file(program):
    def write(name, content):
        (program.folder / name).write_bytes(content)
        return name

    good = b'{"text": "x"}\n'
    for inputs, phrases in (
            ([], None), (["none.txt"], ["none.txt", "No such file"]), ([write("e.txt", b"")], ["e.txt is empty"]),
            ([write("e.jsonl", b"\n \n")], ["no document"]), ([write("n.jsonl", b'{"text": ""}\n')], ["no document"]),
            ([write("j.jsonl", good * 2 + b"oops\n")], ["j.jsonl:3 is not valid JSON"]),
            ([write("s.jsonl", good + b'{"text": "\\ud800"}\n')], ["s.jsonl:2 is not valid JSON"]),
            ([write("f.jsonl", good + b'{"body": "x"}\n')], ["f.jsonl:2 has no field", "text", "body", "--field"]),
            ([write("t.jsonl", good + b'{"text": 1}\n')], ["t.jsonl:2", "text", "not a string"]),
            ([write("l.jsonl", b'["text"]\n')], ["l.jsonl:1 is not a JSON object"]),
            ([write("a.csv", b"x")], ["a.csv", ".jsonl", "--format"]), ([write("x.bin", b"x")], ["x.bin", "--decode"]),
            (["."], ["."])):
        if phrases is None:
            program.fails("--tokenizer", "bytes", "-o", "o.bin", phrases=["inputs is required"], code=2)
        else:
            program.fails("--tokenizer", "bytes", *inputs, "-o", "o.bin", phrases=phrases)
        expect(output_files(program, "o") == {}, f"{inputs}: left {list(output_files(program, 'o'))}")
    program.fails("--tokenizer", "bytes", "text.txt", "-o", "o.bin", "--split-on", "a\nb",
                  phrases=["--split-on", "one line"], code=2)


def test_empty_inputs_are_skipped_with_a_warning(program):
    for name, content in (("e.txt", ""), ("e.jsonl", ""), ("blank.jsonl", "\n \r\n"), ("one.txt", "one"),
                          ("two.jsonl", '{"text": "two"}\n')):
        (program.folder / name).write_text(content)
    done = run_bytes(program, "e.txt", "one.txt", "e.jsonl", "blank.jsonl", "two.jsonl", "e.txt", "-o", "a.bin")
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    expect(warnings == ["warning: e.txt is empty, skipped", "warning: e.jsonl is empty, skipped",
                        "warning: blank.jsonl has no documents, skipped", "warning: e.txt is empty, skipped"], done.stderr)
    expect(documents_of(tokens(program.folder / "a.bin")) == [b"one", b"two"], "other documents")
    program.fails("--tokenizer", "bytes", "e.txt", "blank.jsonl", "-o", "b.bin", phrases=["all 2 inputs are empty"])
    program.fails("--tokenizer", "bytes", "blank.jsonl", "-o", "b.bin", phrases=["blank.jsonl has no documents"])
    expect(output_files(program, "b.") == {}, "something was left")


def test_an_unreadable_input_is_an_error(program):
    (program.folder / "shut.txt").write_text("x")
    (program.folder / "shut.txt").chmod(0)
    (program.folder / "out").mkdir()
    (program.folder / "out").chmod(0o777)
    done = run_unprivileged([program.binary, *"--tokenizer bytes text.txt shut.txt -o out/a.bin".split()], program.folder)
    expect(done.returncode == 1 and "cannot open shut.txt: Permission denied" in done.stderr, done.stderr)


def test_errors_name_the_output(program):
    common = ["--tokenizer", "bytes", "text.txt"]
    program.fails(*common, "-o", "none/a.bin", phrases=["none/a.bin", "No such file"])
    (program.folder / "d.bin").mkdir()
    program.fails(*common, "-o", "d.bin", phrases=["d.bin already exists"])
    program.fails(*common, "-o", "d.bin", "--force", phrases=["d.bin", "directory"])
    expect((program.folder / "d.bin").is_dir(), "the folder is gone")
    program.fails(*common, "-o", "a.bin", "--val", "./a.bin", "--val-fraction", 0.5, phrases=["same file"], code=2)
    shutil.copy(program.folder / "text.txt", program.folder / "t.bin")
    program.fails("--tokenizer", "bytes", "t.bin", "--format", "txt", "-o", "t.bin", "--force",
                  phrases=["t.bin is an input"], code=2)
    expect((program.folder / "t.bin").exists(), "the input is gone")
    program.fails(*common, "-o", "v.bin", "--val", "w.bin", "--val-fraction", 0.5, phrases=["no document is left for "])
    if os.getuid() != 0:
        (program.folder / "shut").mkdir(mode=0o500)
        program.fails(*common, "-o", "shut/a.bin", phrases=["shut/a.bin", "Permission denied"])


def test_errors_name_the_tokenizer(program):
    (program.folder / "words").write_text("one\ntwo\n")
    (program.folder / "w.txt").write_text("one two\none three\n")
    program.fails("--tokenizer", "none", "text.txt", "-o", "a.bin", phrases=["none", "words:FILE"])
    program.fails("--tokenizer", "words:words", "w.txt", "-o", "a.bin",
                  phrases=["no token <|endoftext|>", "--no-end-of-text"])
    program.fails("--tokenizer", "words:words", "w.txt", "-o", "a.bin", "--no-end-of-text",
                  phrases=["w.txt:1: line 2", '"three"'])
    (program.folder / "many").write_text("".join(f"w{i}\n" for i in range(65537)))
    program.fails("--tokenizer", "words:many", "w.txt", "-o", "a.bin", phrases=["65537", "16 bits", "65536"])
    expect(output_files(program, "a") == {}, "something was left")


def test_errors_name_the_token_file(program):
    run_bytes(program, "text.txt", "-o", "a.bin")
    (program.folder / "words").write_text("one\ntwo\n")
    (program.folder / "cut.bin").write_bytes((program.folder / "a.bin").read_bytes()[:-1])
    for name, tokenizer, phrase in (("none.bin", "bytes", "none.bin"), ("text.txt", "bytes", "is not a token file"),
                                    ("cut.bin", "bytes", "truncated"), ("a.bin", "words:words", "outside the vocabulary")):
        program.fails("--tokenizer", tokenizer, "--decode", name, phrases=[name, phrase])
    if Path("/dev/full").exists():
        with open("/dev/full", "w") as full:
            done = subprocess.run([str(program.binary), "--tokenizer", "bytes", "--decode", "a.bin"], stdout=full,
                                  stderr=subprocess.PIPE, text=True, cwd=program.folder, timeout=60)
        expect(done.returncode == 1 and "stdout" in done.stderr, done.stderr)


def test_errors_name_the_flag(program):
    common = ["--tokenizer", "bytes", "text.txt", "-o", "a.bin"]
    for flags, phrase in ((common[2:], "--tokenizer"), (common[:3], "--out"), (common[:4] + ["a.txt"], ".bin"),
                          (common + ["--val", "v.bin"], "--val-fraction"), (common + ["--val-fraction", "0.1"], "--val"),
                          (common + ["--val", "v.bin", "--val-fraction", "1"], "--val-fraction"),
                          (common + ["--threads", "0"], "--threads"), (common + ["--shard-tokens", "0"], "--shard-tokens"),
                          (common + ["--shard-tokens", "3000000000"], "--shard-tokens"),
                          (common + ["--dedup", "some"], "--dedup"), (common + ["--dedup-threshold", "2"], "--dedup-threshold"),
                          (common + ["--dedup-threshold", "0.5"], "--dedup near"),
                          (common + ["--decode", "--threads", "2"], "--decode"), (common + ["--nonsense"], "--nonsense"),
                          (common + ["--decode", "--dedup", "near"], "--decode")):
        program.fails(*flags, phrases=[phrase], code=2)
    expect(output_files(program, "a") == {}, "something was left")


def test_a_config_file_sets_flags(program):
    (program.folder / "flags.toml").write_text('tokenizer = "bytes"\nout = "a.bin"\nno-end-of-text = true\n'
                                               'inputs = ["text.txt"]\n')
    program.run("--config", "flags.toml")
    actual = bytes(BYTES[i] for i in tokens(program.folder / "a.bin"))
    expect(actual == (program.folder / "text.txt").read_bytes(), "another text")


def test_train_gpt2_reads_the_token_file(program):
    """train_gpt2 reads the token file."""
    run_bytes(program, "text.txt", "-o", "a.bin")
    trainer = program.binary.parent / "train_gpt2"
    done = subprocess.run([trainer, *"--train a.bin --layers 1 --heads 2 --channels 16 --context 16 --batch-size 2 --steps 2 "
                           "--eval-every 0 --sample-every 0".split()], cwd=program.folder, capture_output=True, text=True,
                          timeout=300)
    expect(done.returncode == 0, done.stderr[-500:])


if __name__ == "__main__":
    sys.exit(run_program_tests(globals(), "tokenize"))
