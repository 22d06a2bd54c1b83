#!/usr/bin/env python3
"""Tests data/download.py with a local server that cuts, stalls and sends wrong lengths. Needs no network.

    python3 test/test_download.py [PATTERN]

Prints `ok NAME` or `FAILED NAME: why` for each test, then `N passed, N failed, N skipped`.
"""
import hashlib
import io
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from http_host import Host, Page, announce, cut, other_range, slow, stall, status
from runner import expect, run_tests

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "data"))
import download  # noqa: E402

BODY = random.Random(1).randbytes(300_000)
OTHER = random.Random(2).randbytes(300_000)
FIRST, SECOND = {"ETag": '"first"'}, {"ETag": '"second"'}
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and k != download.BASE_URL}


def sha256(body):
    return hashlib.sha256(body).hexdigest()


def fetch(host, path, name="/f", **settings):
    urls = settings.pop("urls", None) or [host.url + name]
    return download.fetch(urls, path, timeout=0.3, pause=0.01, out=io.StringIO(), **settings)


def refusal(host, path, *parts, **settings):
    """Expects a DownloadError that has all of `parts`, and no file at `path`. Returns its text."""
    try:
        fetch(host, path, **settings)
    except download.DownloadError as error:
        expect(all(part in str(error) for part in parts), f"'{error}' does not name {parts}")
        expect(not path.exists(), "a file that is not the right one has the final name")
        return str(error)
    raise AssertionError("what should have failed did not")


def expect_file(path, body):
    expect(path.read_bytes() == body, f"{path.name} is not what was served")
    expect(sorted(p.name for p in path.parent.iterdir()) == [path.name], f"left over: {list(path.parent.iterdir())}")


def asked(host):
    """The Range header of each request; None: it asked for the whole file."""
    return [headers.get("Range") for _, headers in host.requests]


def test_a_file_arrives_whole(folder):
    with Host({"/f": Page(BODY)}) as host:
        expect(fetch(host, folder / "f", size=len(BODY), sha256=sha256(BODY)) == len(BODY), "the size")
        expect_file(folder / "f", BODY)
        (folder / "f").write_bytes(b"old")
        fetch(host, folder / "f")
        expect_file(folder / "f", BODY)


def test_a_cut_download_goes_on_where_it_was(folder):
    with Host({"/f": Page(BODY, [cut(100_000), cut(50_000)], headers=FIRST)}) as host:
        fetch(host, folder / "f", attempts=2)  # every attempt makes progress: no failures in a row
        expect_file(folder / "f", BODY)
        expect(asked(host) == [None, "bytes=100000-", "bytes=150000-"], f"asked for {asked(host)}")
        expect(host.requests[1][1].get("If-Range") == '"first"', "the version was not named")


def test_a_host_without_ranges_is_read_anew(folder):
    with Host({"/f": Page(BODY, [cut(100_000), cut(200_000)], ranges=False, headers=FIRST)}) as host:
        fetch(host, folder / "f")
        expect_file(folder / "f", BODY)
    with Host({"/f": Page(BODY, [cut(100_000)] * 9, ranges=False)}) as host:
        refusal(host, folder / "f2", "ended after", "3 attempts", attempts=3)
        expect(len(host.requests) == 3, "the same bytes again are no progress")


def test_a_file_that_changed_is_not_joined_to_the_old_one(folder):
    page = Page(BODY, [cut(100_000)], headers=FIRST)
    with Host({"/f": page}) as host:
        refusal(host, folder / "f", attempts=1)
        page.body, page.headers = OTHER, SECOND
        fetch(host, folder / "f")
        expect_file(folder / "f", OTHER)
        expect(asked(host)[-1] == "bytes=100000-", "the second run did not try to go on")


def test_without_a_version_pieces_are_joined_only_under_a_checksum(folder):
    with Host({"/f": Page(BODY, [cut(100_000)])}) as host:
        fetch(host, folder / "f")
        expect_file(folder / "f", BODY)
        expect(asked(host) == [None, None], "pieces of unknown versions were joined")
    page = Page(BODY, [cut(100_000)])
    with Host({"/f": page}) as host:
        refusal(host, folder / "g", attempts=1, sha256=sha256(OTHER))
        page.body = OTHER
        fetch(host, folder / "g", sha256=sha256(OTHER))
        expect((folder / "g").read_bytes() == OTHER, "two versions were joined")
        expect(asked(host)[1:] == ["bytes=100000-", None], "a wrong joint is begun anew, in one piece")


def test_a_stalled_connection_is_left_and_taken_up(folder):
    with Host({"/f": Page(BODY, [stall(100_000), stall(0)], headers=FIRST)}) as host:
        fetch(host, folder / "f")
        expect_file(folder / "f", BODY)
        expect(asked(host) == [None, "bytes=100000-", "bytes=100000-"], f"asked for {asked(host)}")


def test_a_slow_host_is_waited_for(folder):
    with Host({"/f": Page(BODY[:800], [slow(100, 0.06)])}) as host:  # 0.48 s in total; the limit is 0.3 s without a byte
        fetch(host, folder / "f")
        expect_file(folder / "f", BODY[:800])
        expect(len(host.requests) == 1, "a slow host was left")


def test_lengths_that_are_wrong(folder):
    with Host({"/f": Page(BODY, [announce(10)] * 9, ranges=False)}) as host:
        refusal(host, folder / "f", "ended after 300.0 kB", attempts=2)
        expect((folder / "f.part").stat().st_size == len(BODY), "what came was thrown away")
    with Host({"/f": Page(BODY)}) as host:
        refusal(host, folder / "g", "300000 bytes, not 300001", size=len(BODY) + 1)
        refusal(host, folder / "g", "300000 bytes, not 299999", size=len(BODY) - 1)
    with Host({"/f": Page(BODY, [announce(None)] * 2)}) as host:
        refusal(host, folder / "h", "does not say how long")
        fetch(host, folder / "h", size=len(BODY))
        expect((folder / "h").read_bytes() == BODY, "a host that names no length")


def test_a_wrong_checksum_leaves_nothing(folder):
    with Host({"/f": Page(BODY)}) as host:
        refusal(host, folder / "f", sha256(BODY), sha256(OTHER), "/f", sha256=sha256(OTHER))
        expect(len(host.requests) == 1, "a whole file with a wrong checksum is no reason to try again")
        expect(list(folder.iterdir()) == [], f"left over: {list(folder.iterdir())}")


def test_a_mirror_steps_in(folder):
    with Host({"/bad": Page(OTHER), "/cut": Page(BODY, [cut(100_000)] + [status(503)] * 9), "/f": Page(BODY)}) as host:
        urls = [host.url + path for path in ("/none", "/bad", "/cut", "/f")]
        fetch(host, folder / "f", urls=urls, sha256=sha256(BODY), attempts=2)
        expect_file(folder / "f", BODY)
        expect(asked(host)[-1] == "bytes=100000-", "under a checksum, one mirror goes on where another stopped")
        text = refusal(host, folder / "g", "404", urls=[host.url + "/none", host.url + "/nor"])
        expect("/none:" in text and "/nor:" in text, "not every mirror is named")


def test_answers_that_are_errors(folder):
    for code, requests in ((404, 1), (403, 1), (500, 3), (503, 3)):
        with Host({"/f": Page(BODY, [status(code)] * 9)}) as host:
            refusal(host, folder / "f", f"{code} ", attempts=3)
            expect(len(host.requests) == requests, f"{code}: {len(host.requests)} requests")
    with Host({"/f": Page(BODY, [status(503, {"Retry-After": "0"}), status(429)])}) as host:
        fetch(host, folder / "f")
        expect_file(folder / "f", BODY)


def test_redirects(folder):
    with Host({"/f": Page(b"", [status(302, {"Location": "/g"})] * 2), "/g": Page(BODY, [cut(10_000)], headers=FIRST),
               "/loop": Page(b"", [status(302, {"Location": "/loop"})] * 99)}) as host:
        fetch(host, folder / "f")
        expect_file(folder / "f", BODY)
        refusal(host, folder / "g", "302", urls=[host.url + "/loop"])


def test_parts_that_do_not_fit(folder):
    part, notes = folder / "f.part", folder / "f.part.json"
    with Host({"/f": Page(BODY, headers=FIRST)}) as host:
        part.write_bytes(OTHER + OTHER)  # longer than the file; the notes name the same version
        notes.write_text(json.dumps({"url": host.url + "/f", "validator": '"first"'}))
        fetch(host, folder / "f")
        expect_file(folder / "f", BODY)
        part.write_bytes(OTHER[:1000])
        notes.write_text("{not json")
        fetch(host, folder / "f")
        expect_file(folder / "f", BODY)
        part.write_bytes(BODY)  # complete: killed before the rename
        before = len(host.requests)
        fetch(host, folder / "f", size=len(BODY), sha256=sha256(BODY))
        expect_file(folder / "f", BODY)
        expect(len(host.requests) == before, "what is here is asked for")
    with Host({"/f": Page(BODY, [cut(1000), other_range(500)], headers=FIRST)}) as host:
        fetch(host, folder / "f")
        expect_file(folder / "f", BODY)


def test_a_host_that_is_not_there(folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/f"
        refusal(None, folder / "f", "no connection", "2 attempts", urls=[url], attempts=2)
    refusal(None, folder / "f", "is no URL", urls=["nonsense"])
    expect(list(folder.iterdir()) == [], "left over")


def test_a_full_disk_is_named(folder):
    with Host({"/f": Page(BODY, headers=FIRST)}) as host:
        command = f"ulimit -f 100; exec {sys.executable} {ROOT}/data/download.py {host.url}/f {folder}/f"
        run = subprocess.run(["bash", "-c", command], env=ENVIRONMENT, capture_output=True, text=True)
        expect(run.returncode == 1 and "f.part: File too large" in run.stderr, run.stderr)
        expect(len(run.stderr.splitlines()) == 1, f"not one line: {run.stderr}")
        expect((folder / "f.part").stat().st_size == 102_400, "what fitted is kept")
        fetch(host, folder / "f")
        expect_file(folder / "f", BODY)
        expect(asked(host)[-1] == "bytes=102400-", "it went on")
        whole, download.shutil.disk_usage = download.shutil.disk_usage, lambda _: type("Usage", (), {"free": 10 ** 6})
        try:
            refusal(host, folder / "g", "only 1.0 MB are free")
        finally:
            download.shutil.disk_usage = whole


def test_interrupted_and_killed_downloads_go_on(folder):
    for number, expected in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
        with Host({"/f": Page(BODY, [slow(20_000, 0.1)], headers=FIRST)}) as host:
            command = [sys.executable, f"{ROOT}/data/download.py", f"{host.url}/f", f"{folder}/f"]
            with subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as process:
                part, deadline = folder / "f.part", time.monotonic() + 10
                while not (part.exists() and part.stat().st_size > 0) and time.monotonic() < deadline:
                    time.sleep(0.01)
                process.send_signal(number)
                said = process.stderr.read()
            expect(process.returncode == expected, f"exit code {process.returncode}: {said}")
            expect("Traceback" not in said, said)
            got = part.stat().st_size
            expect(0 < got < len(BODY) and not (folder / "f").exists(), "no part of the file was there")
            run = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
            expect(run.returncode == 0, run.stderr)
            expect_file(folder / "f", BODY)
            expect(asked(host)[-1] == f"bytes={got}-", "it began anew")
            (folder / "f").unlink()


def test_two_at_once_are_refused(folder):
    with Host({"/f": Page(BODY)}) as host:
        part = download._Part(folder / "f")
        refusal(host, folder / "f", "another program")
        part.close()
        fetch(host, folder / "f")


def test_proxies_and_mirrors(folder):
    with Host({"/a/f": Page(BODY)}) as host:
        command = [sys.executable, f"{ROOT}/data/download.py", "http://host.invalid/a/f?x=1", f"{folder}/f"]
        run = subprocess.run(command, env={**ENVIRONMENT, "http_proxy": host.url}, capture_output=True, text=True)
        expect(run.returncode == 0, run.stderr)
        expect(host.requests[-1][0] == "http://host.invalid/a/f?x=1", "the proxy was not asked")
        run = subprocess.run(command, env={**ENVIRONMENT, download.BASE_URL: host.url + "/"}, capture_output=True, text=True)
        expect(run.returncode == 0, run.stderr)
        expect(host.requests[-1][0] == "/a/f?x=1", "the mirror was not asked")


def test_the_command_line(folder):
    def run(*arguments):
        return subprocess.run([sys.executable, f"{ROOT}/data/download.py", *arguments], env=ENVIRONMENT,
                              capture_output=True, text=True)
    for wrong in ((), ("--size", "x"), ("--timeout", "0"), ("--attempts", "nan"), ("--sha256", "12")):
        expect(run(*wrong, *(["u", "p"] if wrong else [])).returncode == 2, f"{wrong} is no usage error")
    (folder / "file").write_text("")
    failed = run("http://127.0.0.1:1/f", f"{folder}/file/f", "--attempts", "1")
    expect(failed.returncode == 1 and "Traceback" not in failed.stderr, failed.stderr)


if __name__ == "__main__":
    os.environ.update({"no_proxy": "*"})
    sys.exit(run_tests(globals(), lambda folder: (folder,), *sys.argv[1:]))
