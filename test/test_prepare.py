#!/usr/bin/env python3
"""Tests the commands of data/README.md and scripts/get_gpt2.sh end to end, on small files in the real
formats from a local server. Needs no network.

    python3 test/test_prepare.py build/host [PATTERN]

The folder has the program tokenize; without it, the test that makes tokens is skipped.
Prints `ok NAME`, `FAILED NAME: why` or `[skipped] NAME: why`, then `N passed, N failed, N skipped`.
"""
import contextlib
import hashlib
import io
import json
import lzma
import os
import subprocess
import sys
from pathlib import Path

import made_up_data as samples
from http_host import Host, Page, cut
from runner import Skip, expect, run_tests

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "data"))
import convert  # noqa: E402
import download  # noqa: E402
import gpt2  # noqa: E402
import prepare  # noqa: E402
import unpack  # noqa: E402

DATA = Path(os.environ.get("LLMC_DATA", ROOT.parent / "shared/data"))
TOKENIZE = (ROOT / sys.argv[1] / "tokenize").resolve()
ENVIRONMENT = {k: v for k, v in os.environ.items()
               if not k.lower().endswith("_proxy") and k not in ("DATA_BASE_URL", "GPT2_DIR")}


def run(command, *arguments, code=0, **environment):
    done = subprocess.run([str(ROOT / command), *map(str, arguments)], env={**ENVIRONMENT, **environment},
                          capture_output=True, text=True, timeout=60)
    expect(done.returncode == code, f"{command} {arguments}: exit code {done.returncode}: {done.stderr[:1000]}")
    expect("Traceback" not in done.stderr, done.stderr)
    return done


def prepare_here(*arguments, code=0):
    """Runs data/prepare.py in this process, which saves its start-up time. Returns its output."""
    output, exit_code, before = io.StringIO(), 0, sys.argv
    sys.argv = ["prepare.py", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            download.run(prepare.main, prepare.EXPECTED)
    except SystemExit as end:
        exit_code = end.code
    finally:
        sys.argv = before
    expect(exit_code == code, f"{arguments}: exit code {exit_code}: {output.getvalue()[:1000]}")
    return output.getvalue()


class Rig:
    """prepare.py with a local server of made-up files."""

    def __init__(self, folder, files=None):
        self.folder = folder
        self.table, pages = samples.table_and_pages(folder, files)
        self.host = Host(pages)

    def __enter__(self):
        self.host.__enter__()
        return self

    def __exit__(self, *_):
        self.host.__exit__()

    def prepare(self, name, *arguments, code=0):
        """Prepares data set NAME in folder/NAME. Returns (that folder, output, requested paths)."""
        before = len(self.host.requests)
        output = prepare_here(name, "--out", self.folder / name, "--sources", self.table, "--base-url", self.host.url,
                              "--pause", "0.01", "--attempts", "2", *arguments, code=code)
        return self.folder / name, output, [path for path, _ in self.host.requests[before:]]


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def expect_idempotent(rig, name, *arguments):
    folder = rig.folder / name
    before = {p.name: p.stat().st_mtime_ns for p in folder.iterdir()}
    _, _, requests = rig.prepare(name, *arguments)
    expect(requests == [], f"a second run requested {requests}")
    expect(before == {p.name: p.stat().st_mtime_ns for p in folder.iterdir()}, "a second run wrote files")
    expect(not any(p.endswith((".tmp", ".part", ".part.json")) for p in before), f"remaining files: {before}")


def test_tinyshakespeare_is_split_after_nine_tenths(folder):
    with Rig(folder) as rig:
        out, output, _ = rig.prepare("tinyshakespeare")
        train, val = (out / "train.txt").read_text(), (out / "val.txt").read_text()
        expect(train + val == "".join(samples.SPEECHES), "the two parts are not the text")
        expect(len(val.split("\n\n")) == 2 and "1 documents" in output, f"not a tenth in complete speeches: {val!r} {output}")
        expect_idempotent(rig, "tinyshakespeare")
        subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=out, check=True)


def test_wikitext_is_unpacked_as_published(folder):
    with Rig(folder) as rig:
        for name in ("wikitext103", "wikitext2"):
            out, output, _ = rig.prepare(name)
            for file, count in (("train.txt", 5), ("val.txt", 2), ("test.txt", 3)):
                expect(f"{file}: {count} documents" in output, output)
            expect((out / "val.txt").read_text().startswith(" \n = Article 0 = \n \n A text @-@"), "not as published")
            expect_idempotent(rig, name)
        out, output, _ = rig.prepare("wikitext2", "--limit", 1)
        expect("Article 1" not in (out / "train.txt").read_text() and "1 documents" in output, output)


def test_openwebtext_is_one_page_per_line(folder):
    with Rig(folder) as rig:
        out, _, _ = rig.prepare("openwebtext")
        texts = [row["text"] for row in rows(out / "val.jsonl") + rows(out / "train.jsonl")]
        expect(texts == [f"Page {i}\n\nwith a text: “naïve”" for i in range(9)], texts)
        expect_idempotent(rig, "openwebtext")
        out, _, requests = rig.prepare("openwebtext", "--limit", 3)
        expect(len(rows(out / "train.jsonl")) == 2 and requests == [], "another limit converts again without a download")


def test_lambada_and_hellaswag_are_one_example_per_line(folder):
    with Rig(folder) as rig:
        out, _, _ = rig.prepare("lambada")
        expect(rows(out / "test.jsonl") == samples.PASSAGES, "passages")
        expect_idempotent(rig, "lambada")
        out, _, _ = rig.prepare("hellaswag", "--limit", 5)
        expect([row["label"] for row in rows(out / "val.jsonl")] == [0, 1, 2, 3, 0], "questions")
        expect_idempotent(rig, "hellaswag", "--limit", 5)
    wrong = [samples.PASSAGES[0], {"text": "one"}], [samples.QUESTIONS[0], {**samples.QUESTIONS[1], "label": 4}]
    with Rig(folder, {"lambada": samples.lines_of(wrong[0]), "hellaswag": b"{\n"}) as rig:
        (folder / "lambada/lambada_test.jsonl").unlink()
        (folder / "hellaswag/hellaswag_val.jsonl").unlink()
        expect("lambada_test.jsonl:2: not a passage" in rig.prepare("lambada", code=1)[1], "the error does not name the line")
        expect("hellaswag_val.jsonl:1: not a JSON" in rig.prepare("hellaswag", code=1)[1], "the error does not name the line")
        expect(rows(folder / "lambada/test.jsonl") == samples.PASSAGES, "a failed run changed existing files")
        expect(not list(folder.glob("*/*.tmp")), "a failed run left temporary files")
    (folder / "q").write_bytes(samples.lines_of(wrong[1]))
    expect_error(lambda: convert.hellaswag({"q": folder / "q"}, convert.Outputs(folder), None), "q:2: not a question")


def test_all_the_news_is_one_article_per_line(folder):
    with Rig(folder) as rig:
        out, output, _ = rig.prepare("all_the_news")
        texts = [row["text"] for row in rows(out / "val.jsonl") + rows(out / "train.jsonl")]
        begin = [text[:40] for text in texts]
        expect(begin[:3] == [f'Title {i}\n\nHe said "yes".\nA second line, w' for i in range(3)], begin)
        expect(len(texts[0]) > 200_000 and texts[3:] == ["Without a title"], "long fields, rows without a text")
        expect("no checksum was known" in output, output)
        expect_idempotent(rig, "all_the_news")
        (out / "all-the-news-2-1.zip").unlink()
        for page in rig.host.pages.values():
            page.body = page.body + b"changed"
        output = rig.prepare("all_the_news", code=1)[1]
        expect("SHA-256" in output and not (out / "all-the-news-2-1.zip").exists(), "a file with another checksum was accepted")


def test_fineweb10b_downloads_the_requested_shards(folder):
    with Rig(folder) as rig:
        out, output, requests = rig.prepare("fineweb10b", "--shards", 1)
        expect("2 files, 100 tokens" in output and len(requests) == 2, output)
        out, output, requests = rig.prepare("fineweb10b")
        expect("4 files, 170 tokens" in output and len(requests) == 2, "not exactly the missing files were downloaded")
        expect_idempotent(rig, "fineweb10b")
        wrong = {"too short": b"x" * 9, "not a token file": samples.token_shard(range(20), magic=20240521),
                 "expected 1066 bytes": samples.token_shard(range(20), announced=21)}
        last = out / "fineweb_train_000003.bin"
        for phrase, body in wrong.items():
            (out / "SHA256SUMS").unlink()
            last.unlink(missing_ok=True)
            next(p for name, p in rig.host.pages.items() if name.endswith("000003.bin")).body = body
            output = rig.prepare("fineweb10b", code=1)[1]
            expect(phrase in output and not last.exists(), f"{phrase}: {output}")
        expect("--shards" in rig.prepare("fineweb10b", "--limit", 3, code=2)[1], "--limit of a source of tokens")
        rig.prepare("fineweb10b", "--shards", 4, code=2)
        rig.prepare("lambada", "--shards", 1, code=2)


def test_a_broken_download_resumes_in_the_next_run(folder):
    with Rig(folder) as rig:
        page = next(p for name, p in rig.host.pages.items() if name.endswith("openwebtext.tar.xz"))
        page.actions = [cut(200), cut(0), cut(0)]
        rig.prepare("openwebtext", "--attempts", "1", code=1)
        expect([p.name for p in (folder / "openwebtext").iterdir()
                if not p.name.startswith("openwebtext.tar.xz.part")] == [], "there are more files than the part")
        page.actions = []
        rig.prepare("openwebtext")
        expect(rig.host.requests[-1][1]["Range"] == "bytes=200-", "the download was not resumed")


def test_copies_are_used_and_checked(folder):
    with Rig(folder) as rig:
        out = folder / "lambada"
        out.mkdir()
        (out / "lambada_test.jsonl").write_bytes(samples.lines_of(samples.PASSAGES))
        expect(rig.prepare("lambada")[2] == [], "a copy was downloaded")
        (out / "lambada_test.jsonl").write_bytes(samples.lines_of(samples.PASSAGES).replace(b"passage 1", b"passage 7"))
        expect("are not the known" in rig.prepare("lambada", "--verify", code=1)[1], "--verify does not recompute the checksum")
        (out / "SHA256SUMS").unlink()
        expect("remove it" in rig.prepare("lambada", code=1)[1], "a wrong copy was accepted")


def test_dry_runs_write_nothing_and_wrong_flags_are_usage_errors(folder):
    expect(len(run("data/prepare.py", "--list").stdout.splitlines()) == 8, "not eight data sets")
    run("data/prepare.py", "nothing", code=2)
    for name in json.loads((ROOT / "data/sources.json").read_text()):
        output = prepare_here(name, "--dry-run", "--out", folder / "none")
        expect(all(word in output for word in ("licence:", "https://", "to download:", "SHA-256")), output)
    expect(not (folder / "none").exists(), "a dry run wrote files")
    for arguments in ([], ["lambada", "--limit", "0"], ["lambada", "--tokenizer", folder / "none"],
                      ["hellaswag", "--tokenizer", folder]):
        prepare_here(*arguments, code=2)
    (folder / "bad.json").write_text("[]")
    expect("bad.json: not a table" in prepare_here("lambada", "--sources", folder / "bad.json", code=2), "no table")


def test_token_files_are_written_by_tokenize(folder):
    program = folder / "tokenize"
    program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\n[ -e {folder}/broken ] && exit 1\nexec {TOKENIZE} "$@"\n')
    program.chmod(0o755)
    vocabulary = DATA / "gpt2"
    if not TOKENIZE.exists() or not vocabulary.exists():
        raise Skip(f"{TOKENIZE} or {vocabulary} is missing")
    with Rig(folder) as rig:
        flags = ("--tokenizer", vocabulary, "--tokenize", program)
        expect("run make" in rig.prepare("lambada", *flags[:2], "--tokenize", folder / "none", code=2)[1], "no program")
        (folder / "broken").touch()
        expect("failed on" in rig.prepare("openwebtext", *flags, code=1)[1], "a program that fails")
        (folder / "broken").unlink()
        (folder / "calls").unlink()
        out, output, _ = rig.prepare("openwebtext", *flags)
        calls = (folder / "calls").read_text().splitlines()
        expect(sorted(calls) == [f"--tokenizer {vocabulary} {out}/{n}.jsonl -o {out}/{n}.bin --field text"
                                 for n in ("train", "val")], calls)
        expect("tokens in 1 files" in output and f"--train {out}/train.bin --val {out}/val.bin" in output, output)
        expect_idempotent(rig, "openwebtext", *flags)
        (out / "val.bin").unlink()
        rig.prepare("openwebtext", *flags)
        further_calls = (folder / "calls").read_text().splitlines()[2:]
        expect(further_calls == [call + " --force" for call in calls if "val.jsonl" in call], further_calls)
        rig.prepare("tinyshakespeare", *flags)
        expect("--field" not in (folder / "calls").read_text().splitlines()[-1], "a .txt file has no fields")


def test_several_token_files_are_one_source(folder):
    tokens = {"files": {"train_000000.bin": 1, "train_000001.bin": 1}}
    expect(prepare.as_source(folder, tokens) == f"'{folder}/train_*.bin'", prepare.as_source(folder, tokens))


def expect_error(action, *parts):
    try:
        action()
    except (unpack.ArchiveError, convert.ConvertError, gpt2.ModelError) as error:
        expect(all(part in str(error) for part in parts), f"'{error}' does not name {parts}")
        return
    raise AssertionError(f"no error; expected {parts}")


def test_damaged_archives_are_errors(folder):
    def texts(body, limit=1 << 20):
        (folder / "a.tar.xz").write_bytes(body)
        return list(unpack.texts_in_nested_tars(folder / "a.tar.xz", limit))

    def member(body, name="a.csv", limit=1 << 20):
        (folder / "a.zip").write_bytes(body)
        with unpack.zip_member(folder / "a.zip", name, limit) as stream:
            return stream.read()

    whole = samples.pages_archive()
    expect(len(texts(whole)) == 9, "the undamaged archive")
    expect_error(lambda: texts(whole[:-40]), "a.tar.xz")
    expect_error(lambda: texts(whole[:len(whole) // 2]), "a.tar.xz")
    expect_error(lambda: texts(b"no archive"), "a.tar.xz: the archive is damaged")
    expect_error(lambda: texts(samples.pages_archive(wrap=lambda n: f"../{n}")), "points out of its folder")
    expect_error(lambda: texts(lzma.compress(samples.tar_of([("/etc/x.xz", b"")]))), "points out of its folder")
    # A small decompression bomb: a text of 40 kB in an archive whose outer 10 kB are within the limit.
    expect_error(lambda: texts(samples.pages_archive([*samples.PAGES, "x" * 40_000]), 30_000), "have more than 30000 bytes")
    inner = lzma.compress(samples.tar_of([("1.txt", b"text")]))[:-20]
    expect_error(lambda: texts(lzma.compress(samples.tar_of([("a.xz", inner)]))), "a.tar.xz")

    good = samples.zip_of([("d/a.csv", b"x" * 9000), ("b", b"")])
    expect(member(good) == b"x" * 9000, "the undamaged archive")
    expect_error(lambda: member(good[:-30]), "a.zip: the archive is damaged")
    damaged = bytearray(good)
    damaged[45] ^= 255
    expect_error(lambda: member(bytes(damaged)), "a.zip: the archive is damaged")
    expect_error(lambda: member(good, "c.csv"), "contains 0 files named c.csv")
    expect_error(lambda: member(good, limit=8999), "unpacks to more than 8999 bytes")
    expect_error(lambda: member(samples.zip_of([("a.csv", b""), ("../../b", b"")])), "points out of its folder")


def write_model(folder, files):
    folder.mkdir(exist_ok=True)
    for name, body in files.items():
        (folder / name).write_bytes(body)
    return folder


def test_get_gpt2_downloads_and_checks_a_model(folder):
    files = samples.model_files()
    table, pages = samples.model_table_and_pages(folder, files)
    with Host(pages) as host:
        flags = ("--sources", table, "--base-url", host.url, "--pause", "0.01", "--attempts", "2")
        page = next(p for name, p in pages.items() if name.endswith("model.safetensors"))
        page.actions = [cut(1000)]
        done = run("scripts/get_gpt2.sh", "124M", folder / "m", *flags)
        expect(done.stdout == f"{folder}/m\n", f"not only the folder is printed: {done.stdout}")
        expect(f"./infer_gpt2 -m {folder}/m" in done.stderr and f"--init-from {folder}/m" in done.stderr, done.stderr)
        expect({p.name: p.read_bytes() for p in (folder / "m").iterdir() if p.name != "SHA256SUMS"} == files, "the files")
        before = len(host.requests)
        run("scripts/get_gpt2.sh", "124M", folder / "m", *flags)
        expect(len(host.requests) == before, "a second run downloaded files")
        del pages[next(name for name in pages if name.endswith("/tokenizer.json"))]
        (folder / "m/tokenizer.json").unlink()
        expect("continuing without it" in run("scripts/get_gpt2.sh", "124M", folder / "m", *flags).stderr, "an optional file")
        done = run("scripts/get_gpt2.sh", "--vocabulary", "124M", folder / "v", *flags)
        names = {path.name for path in (folder / "v").iterdir()}
        expect(names == {"vocab.json", "merges.txt", "SHA256SUMS"} and "--tokenizer gpt2" in done.stderr, f"{names}: {done.stderr}")
        page.body = page.body[:-1]
        (folder / "m/model.safetensors").unlink()
        output = run("scripts/get_gpt2.sh", "124M", folder / "m", *flags, code=1).stderr
        expect("it is a different file" in output and not (folder / "m/model.safetensors").exists(), output)


def test_gpt2_dir_names_a_copy_to_check(folder):
    copy = write_model(folder / "copy", samples.model_files())
    done = run("scripts/get_gpt2.sh", GPT2_DIR=str(copy), DATA_BASE_URL="http://127.0.0.1:1")
    expect(done.stdout == f"{copy}\n" and "downloading nothing" in done.stderr, done.stdout + done.stderr)
    output = run("scripts/get_gpt2.sh", "355M", GPT2_DIR=str(copy), code=1).stderr
    expect("are not GPT-2 355M, which has 24 and 1024" in output, output)
    run("scripts/get_gpt2.sh", "124M", folder / "other", GPT2_DIR=str(copy), code=2)
    run("scripts/get_gpt2.sh", GPT2_DIR=str(folder / "none"), code=1)
    run("scripts/get_gpt2.sh", "99M", code=2)
    weights = samples.model_files()["model.safetensors"]

    def expect_model_error(name, body, *parts):
        before = (copy / name).read_bytes()
        (copy / name).write_bytes(body)
        expect_error(lambda: gpt2.check_model(copy), name, *parts)
        (copy / name).write_bytes(before)

    expect_model_error("model.safetensors", weights[:-1], "its tensors end at")
    expect_model_error("model.safetensors", weights[:5], "not a complete safetensors")
    expect_model_error("model.safetensors", b"\xff" * 100, "not a complete safetensors")
    expect_model_error("model.safetensors", weights.replace(b'"F32"', b'"F16"', 1), "wte.weight does not have the bytes")
    expect_model_error("model.safetensors", weights[:8] + b"x" + weights[9:], "does not parse")
    for damage in (lambda t: t.pop("h.1.mlp.c_fc.weight"), lambda t: t.update({"wte.weight": [50256, 4]})):
        expect_model_error("model.safetensors", samples.model_files(damage=damage)["model.safetensors"], "expected (")
    expect_model_error("config.json", b"[]", "not a JSON object")
    expect_model_error("config.json", b"{}", "n_layer")
    expect_model_error("vocab.json", b'{"a": 0}', "expected 50257 tokens")
    expect_model_error("merges.txt", b"a b\n", "expected 50000 pairs")
    gpt2.check_model(copy)
    (copy / "merges.txt").unlink()
    expect_error(lambda: gpt2.check_model(copy), "neither")


def test_real_files_match_the_tables(folder):
    """Checks Tiny Shakespeare and GPT-2's vocabulary against the real tables of data/."""
    text, vocabulary = DATA / "text/tinyshakespeare.txt", DATA / "gpt2"
    if not text.exists() or not vocabulary.exists():
        raise Skip(f"no {text} or {vocabulary}")
    with Host({"/karpathy/char-rnn/master/data/tinyshakespeare/input.txt": Page(text.read_bytes())}) as host:
        output = prepare_here("tinyshakespeare", "--out", folder / "text", "--base-url", host.url)
    expect("train.txt: 6283 documents, 1.0 MB" in output, output)
    gpt2.check_vocabulary(vocabulary)
    table = {f["name"]: f for f in json.loads((ROOT / "data/models.json").read_text())["124M"]["files"]}
    for name, ours in (("encoder.json", "vocab.json"), ("vocab.bpe", "merges.txt")):
        body = (vocabulary / name).read_bytes()
        expect((table[ours]["size"], table[ours]["sha256"]) == (len(body), hashlib.sha256(body).hexdigest()), name)


if __name__ == "__main__":
    os.environ.pop(download.BASE_URL, None)
    os.environ["no_proxy"] = "*"
    sys.exit(run_tests(globals(), lambda folder: (folder,), *sys.argv[2:]))
